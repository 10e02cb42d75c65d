"""The commands of studies."""

import argparse
import pathlib
from collections.abc import Sequence

from rich.console import Console

from benchmarks import paper, specs, workloads
from benchmarks.analysis import sweep_cells, tables
from benchmarks.files import read_json
from benchmarks.locks import holding
from benchmarks.options import add_data, add_many, workload_options
from benchmarks.study import ablate, compare, manifests, recipes, sweep, tune
from ctagd_optax.testbed.files import replacing


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Options of compare."""
    add_many(parser, "runs/compare/WORKLOAD")
    add = parser.add_argument
    add(
        "--optimizers",
        nargs="+",
        metavar="O",
        help="the arms (the paper's, the controls and four peers)",
    )
    add("--seeds", type=int, default=5, help="runs an arm (%(default)s)")
    add(
        "--tuned",
        type=pathlib.Path,
        metavar="DIR",
        help="adds what tune has chosen in this folder",
    )


def run_compare(options: argparse.Namespace, console: Console) -> int:
    """Trains every arm on every seed; prints a table, writes files."""
    work = workloads.workload(options.workload)
    if options.optimizers:
        arms = [compare.entry(spec) for spec in options.optimizers]
    else:
        arms = list(compare.standard_arms(work))
    if options.tuned:
        chosen = tune.read_tuned(options.tuned, work.name)
        arms += [compare.Entry(spec, "tuned") for spec in chosen]
    out = options.out or pathlib.Path("runs", "compare", work.name)
    return _run_and_show(options, arms, range(options.seeds), out, console)


def _run_and_show(
    options: argparse.Namespace,
    arms: Sequence[compare.Entry],
    seeds: Sequence[int],
    out: pathlib.Path,
    console: Console,
) -> int:
    with holding(out):  # another process may be about to add arms, too
        arms = [*arms, *_arms_there(out, arms, seeds, options)]
        compare.compare(
            options.workload,
            arms,
            seeds,
            out,
            jobs=options.jobs,
            console=console,
            **workload_options(options),
        )
        made = [out / "results.json", *_show_comparison(out, console)]
    for path in made:
        print(f"Wrote {path}")
    return 0


def _arms_there(
    out: pathlib.Path,
    arms: Sequence[compare.Entry],
    seeds: Sequence[int],
    options: argparse.Namespace,
) -> list[compare.Entry]:
    """The other arms that the folder compares, which would be lost without them.

    Raises:
      ValueError: they are of another workload, other seeds, or other epochs.
    """
    if not (out / "results.json").exists():
        return []
    results = compare.read_results(out / "results.json")
    named = {specs.arm(entry.spec).name for entry in arms}
    others = [
        compare.Entry(name, arm["role"])
        for name, arm in results["arms"].items()
        if name not in named
    ]
    epochs = options.epochs or workloads.workload(options.workload).epochs
    asked = {"workload": options.workload, "seeds": list(seeds), "epochs": epochs}
    changed = [name for name, value in asked.items() if results[name] != value]
    if others and changed:
        raise ValueError(
            f"out: {out} compares {', '.join(entry.spec for entry in others)}, too, "
            f"with other {' and '.join(changed)}; name them, or give another folder"
        )
    return others


def _show_comparison(out: pathlib.Path, console: Console) -> list[pathlib.Path]:
    """Prints a finished comparison; writes its table and its curves."""
    from benchmarks.analysis import plots  # here, as matplotlib takes its time

    results = compare.read_results(out / "results.json")
    timings = read_json(out / "timings.json", {"arms": dict}, "times of a comparison")
    rows = tables.comparison(results, timings)
    text = f"{tables.markdown(rows)}\n\n{tables.caption(results, rows)}\n"
    with replacing(out / "results.md") as temporary:
        temporary.write_text(text)
    title = f"{results['workload']}: {results['part']} accuracy in % after some epochs"
    console.print(tables.terminal(tables.progress(results), title, texts=3))
    print(tables.progress_caption(results))
    plots.plot(results, out / "curves.png")
    return [out / "results.md", out / "curves.png"]


def add_tune(parser: argparse.ArgumentParser) -> None:
    """Options of tune."""
    add_many(parser, "runs/tune/WORKLOAD")
    add = parser.add_argument
    add("--optimizer", required=True, help="the arm, see list")
    add("--trials", type=int, default=7, help="points to try (%(default)s)")


def run_tune(options: argparse.Namespace, console: Console) -> int:
    """Searches the options of an arm; prints the trials."""
    out = options.out or pathlib.Path("runs", "tune", options.workload)
    found = tune.tune(
        options.workload,
        options.optimizer,
        options.trials,
        out,
        jobs=options.jobs,
        console=console,
        **workload_options(options),
    )
    rows = [
        {"trial": trial, "validation accuracy": f"{score:.1%}"}
        for trial, score in found["trials"].items()
    ]
    console.print(tables.terminal(rows, f"{found['workload']}, {found['arm']}"))
    print(f"Chosen: {found['chosen']}")
    return 0


def add_ablate(parser: argparse.ArgumentParser) -> None:
    """Options of ablate."""
    add_many(parser, "runs/ablate/OPTIMIZER/WORKLOAD[@LEARNING_RATE]")
    add = parser.add_argument
    add("--seeds", type=int, default=5, help="runs an arm (%(default)s)")
    add(
        "--optimizer",
        default="ct_sgd",
        help=f"what to change: {', '.join(ablate.ABLATIONS)} (%(default)s)",
    )
    add("--learning-rate", type=float, help="of all arms (the paper's)")


def run_ablate(options: argparse.Namespace, console: Console) -> int:
    """Trains a method with one thing changed at a time."""
    rate = options.learning_rate
    arms = ablate.ablation_arms(options.optimizer, rate)
    name = options.workload if rate is None else f"{options.workload}@{rate:g}"
    out = options.out or pathlib.Path("runs", "ablate", options.optimizer, name)
    return _run_and_show(options, arms, range(options.seeds), out, console)


def add_sweep(parser: argparse.ArgumentParser) -> None:
    """Options of sweep."""
    add_many(parser, "runs/sweep/OPTIMIZER/WORKLOAD")
    add = parser.add_argument
    add("--optimizer", default="robust_sgd", help="the method (%(default)s)")
    add("--seeds", type=int, default=5, help="runs an arm (%(default)s)")
    add(
        "--factors",
        nargs="+",
        type=float,
        default=[0.1, 0.3, 1.0, 3.0, 10.0],
        metavar="F",
        help="what the learning rate is multiplied by (%(default)s)",
    )
    add(
        "--batch-sizes",
        nargs="+",
        type=int,
        metavar="B",
        help="examples in a batch, for epochs of several lengths (--batch-size)",
    )


def run_sweep(options: argparse.Namespace, console: Console) -> int:
    """Trains a method and its backbone over learning rates."""
    work = workloads.workload(options.workload)
    if options.batch_size and options.batch_sizes:
        raise ValueError("give --batch-size or --batch-sizes, not both")
    method = specs.arm(options.optimizer).name
    out = options.out or pathlib.Path("runs", "sweep", method, work.name)
    found = sweep.sweep(
        work.name,
        options.optimizer,
        options.factors,
        options.batch_sizes or [options.batch_size or work.batch_size],
        range(options.seeds),
        out,
        jobs=options.jobs,
        console=console,
        **workload_options(options),
    )
    title = f"{work.name}, {found['method']}"
    console.print(tables.terminal(sweep_cells.rows(found), title))
    print(f"Wrote {out / 'sweep.json'}")
    return 0


def add_study(parser: argparse.ArgumentParser) -> None:
    """Options of study."""
    add = parser.add_argument
    add("name", metavar="NAME", help="a manifest, see list, or the path of one")
    add("--jobs", type=int, default=1, help="runs at once (%(default)s)")
    add("--out", type=pathlib.Path, help="folder of runs and files (runs/study/NAME)")
    add(
        "--publish",
        action="store_true",
        help="copy the files to benchmarks/results, where report finds them",
    )
    add_data(parser)


def run_study(options: argparse.Namespace, console: Console) -> int:
    """Makes what a manifest says."""
    study = manifests.read(options.name)
    out = options.out or pathlib.Path("runs", "study", study.name)
    made = manifests.run(
        study,
        out,
        jobs=options.jobs,
        console=console,
        data_dir=options.data_dir,
        download=not options.no_download,
    )
    if study.kind == "compare":
        made += _show_comparison(out, console)
    if options.publish:
        manifests.publish(study, [path for path in made if path.suffix != ".md"], out)
    for path in made:
        print(f"Wrote {path}")
    return 0


def add_recipes(parser: argparse.ArgumentParser) -> None:
    """Options of recipes."""
    add = parser.add_argument
    add(
        "--check",
        action="store_true",
        help="take two steps of each that has not been checked, and write it down",
    )
    add("--workload", choices=paper.NUMBERS, help="only those of this one")
    add("--batch-size", type=int, help="check with smaller batches (the workload's)")
    add(
        "--out",
        type=pathlib.Path,
        default=manifests.RESULTS / "recipes.json",
        help="the file of what was checked (the committed one)",
    )


def run_recipes(options: argparse.Namespace, console: Console) -> int:
    """Prints the recipes, or checks them."""
    path = options.out
    if options.check:
        recipes.check(
            path, console, only=options.workload, batch_size=options.batch_size
        )
        print(f"Wrote {path}")
        return 0
    needed = {recipe.key: {"hours": float} for recipe in recipes.distinct()}
    hours = read_json(path, {"estimates": needed}, "recipes")["estimates"]
    for title, rows in recipes.tables().items():
        wanted = [r for r in rows if options.workload in (None, r.workload)]
        if wanted:
            print(f"# {title}: {recipes.HARDWARE}")
        for recipe in wanted:
            print(f"# {recipe.row}: about {hours[recipe.key]['hours']:.1f} hours")
            print(recipe.command)
    print(f"# The testbed, all rows: seconds on a CPU\n{recipes.TESTBED}")
    return 0


# By name: the options, what runs, and one line of help.
COMMANDS = {
    "compare": (add_compare, run_compare, "train every arm on every seed"),
    "tune": (add_tune, run_tune, "search the options of an arm"),
    "ablate": (add_ablate, run_ablate, "train a method with one thing changed"),
    "sweep": (add_sweep, run_sweep, "a method over learning rates and epochs"),
    "study": (add_study, run_study, "make committed results again, or your own"),
    "recipes": (add_recipes, run_recipes, "the commands behind the paper's tables"),
}
