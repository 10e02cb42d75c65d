"""The benchmarks' command line: ``python -m benchmarks COMMAND``."""

import argparse
import contextlib
import json
import pathlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

from benchmarks import paper, specs, workloads
from benchmarks.analysis import plots, profiles, sweep_cells, tables
from benchmarks.files import read_json
from benchmarks.pages import report
from benchmarks.probes import corrections, estimators, overhead
from benchmarks.study import ablate, compare, manifests, recipes, sweep, tune
from benchmarks.train import devices, loop, progress
from benchmarks.train.config import LOGS, Config
from ctagd_optax.testbed.files import replacing


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code."""
    commands = parser()
    options = commands.parse_args(arguments)
    console = Console()
    try:
        return options.run(options, console)
    except (ValueError, OSError, ImportError) as error:
        commands.exit(2, f"error: {error}\n")
    except loop.NonFiniteLossError as error:
        commands.exit(1, f"error: {error}\n")
    except KeyboardInterrupt as error:
        commands.exit(130, f"{error or 'interrupted'}\n")


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    root = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Train networks with CT-AGD, its backbones, controls and peers.",
    )
    commands = root.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable, help_text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=help_text, allow_abbrev=False)
        made.set_defaults(run=run)
        return made

    _add_train(command("train", _train, "train one network"))
    _add_compare(command("compare", _compare, "train every arm on every seed"))
    _add_tune(command("tune", _tune, "search the options of an arm"))
    _add_ablate(command("ablate", _ablate, "train CT-AGD with one thing changed"))
    _add_sweep(command("sweep", _sweep, "a method over learning rates and epochs"))
    _add_study(command("study", _study, "make committed results again, or your own"))
    _add_profile(command("profile", _profile, "profiles over several comparisons"))
    _add_recipes(command("recipes", _recipes, "the commands behind the paper's tables"))
    for probe, help_text in (
        (overhead, "measure what the methods cost: compiling, time, memory"),
        (estimators, "measure the curvature estimators against the true diagonal"),
        (corrections, "measure what corrections do to the training loss"),
    ):
        name = probe.__name__.rpartition(".")[2]
        probe.add_arguments(command(name, probe.run, help_text))
    command("report", _report, "rewrite the tables and pictures of README.md and docs")
    command("list", _list, "list workloads, optimizers and studies")
    return root


def _add_workload(parser: argparse.ArgumentParser) -> None:
    """Options that every command with a workload has."""
    add = parser.add_argument
    add("--workload", required=True, help="what to train, see list")
    add("--epochs", type=int, help="epochs to train (the workload's)")
    add("--batch-size", type=int, help="examples in a batch (the workload's)")
    _add_data(parser)
    add(
        "--refresh-batch-stats",
        type=int,
        default=Config.refresh_batch_stats,
        metavar="N",
        help="training batches from which BatchNorm statistics are taken anew after a "
        "correction; 0 leaves them (%(default)s)",
    )


def _add_data(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--data-dir",
        type=pathlib.Path,
        help="folder of the data ($CTAGD_DATA, or a folder in the user's cache)",
    )
    add("--no-download", action="store_true", help="fetch nothing")


def _workload_options(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "epochs": options.epochs,
        "batch_size": options.batch_size,
        "data_dir": options.data_dir,
        "download": not options.no_download,
        "refresh_batch_stats": options.refresh_batch_stats,
    }


def _add_many(parser: argparse.ArgumentParser, out: str) -> None:
    """Options that every command with many runs has."""
    _add_workload(parser)
    add = parser.add_argument
    add("--jobs", type=int, default=1, help="runs at once (%(default)s)")
    add("--out", type=pathlib.Path, help=f"folder of the runs and files ({out})")


def _add_train(parser: argparse.ArgumentParser) -> None:
    _add_workload(parser)
    add = parser.add_argument
    add(
        "--optimizer",
        required=True,
        help="NAME[@LEARNING_RATE][+average][:KEY=VALUE,...], see list",
    )
    add("--seed", type=int, default=0, help="of weights and data (%(default)s)")
    add("--steps", type=int, help="stop after so many steps")
    add(
        "--dry-run",
        action="store_true",
        help="two steps at true shapes on a generated set, in a folder of its own",
    )
    add(
        "--synthetic",
        action="store_true",
        help="train on a generated set of the same shapes",
    )
    add(
        "--out",
        type=pathlib.Path,
        help="folder of the run (runs/WORKLOAD/OPTIMIZER/SEED)",
    )
    add("--resume", action="store_true", help="go on with the run in that folder")
    add(
        "--part",
        default="test",
        choices=("test", "validation"),
        help="what to evaluate on; validation is set aside from training (%(default)s)",
    )
    add(
        "--dtype",
        default="float32",
        choices=("float32", "bfloat16"),
        help="what the network computes in (%(default)s)",
    )
    add(
        "--accumulate",
        type=int,
        default=1,
        help="parts of a batch whose gradients are averaged (%(default)s)",
    )
    add(
        "--checkpoint-every",
        type=int,
        metavar="STEPS",
        help="steps between checkpoints (an epoch)",
    )
    add("--keep", type=int, default=2, help="checkpoints to keep (%(default)s)")
    add("--devices", type=int, help="devices to use (all)")
    add(
        "--shard",
        action="store_true",
        help="spread parameters and optimizer state over the devices, too",
    )
    add(
        "--log",
        nargs="+",
        action="extend",
        choices=LOGS,
        default=["jsonl"],
        help="where metrics go besides metrics.jsonl",
    )
    add(
        "--distributed",
        action="store_true",
        help="run with other processes, as the cluster's environment says",
    )
    add("--coordinator", metavar="HOST:PORT", help="the first of several processes")
    add("--processes", type=int, help="how many processes there are")
    add("--process", type=int, help="the number of this process, from 0")


def _train(options: argparse.Namespace, console: Console) -> int:
    by_hand = options.coordinator, options.processes, options.process
    if options.distributed or any(value is not None for value in by_hand):
        devices.connect(*by_hand)
    name = specs.arm(options.optimizer).name
    work = workloads.workload(options.workload)
    with contextlib.ExitStack() as stack:
        out = options.out or pathlib.Path("runs", work.name, name, str(options.seed))
        if options.dry_run:
            out = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        config = Config(
            workload=work.name,
            optimizer=name,
            out=out,
            seed=options.seed,
            steps=2 if options.dry_run else options.steps,
            synthetic=options.dry_run or options.synthetic,
            part=options.part,
            dtype=options.dtype,
            accumulate=options.accumulate,
            checkpoint_every=options.checkpoint_every,
            keep=options.keep,
            devices=options.devices,
            shard=options.shard,
            log=tuple(dict.fromkeys(options.log)),
            **_workload_options(options),
        )
        summary = loop.train(
            config,
            resume=options.resume,
            make_reporter=lambda *sizes: progress.reporter(console, *sizes),
        )
    if jax.process_index() == 0:
        table = Table(title=f"{work.name}, {name}", show_header=False)
        for key, value in summary.items():
            table.add_row(key.replace("_", " "), _shown(value))
        console.print(table)
        if not options.dry_run:
            print(f"Wrote {out / 'summary.json'}")
    return 0


def _shown(value: object) -> str:
    if value is None:
        return "never"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _add_compare(parser: argparse.ArgumentParser) -> None:
    _add_many(parser, "runs/compare/WORKLOAD")
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


def _compare(options: argparse.Namespace, console: Console) -> int:
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
    compare.compare(
        options.workload,
        arms,
        seeds,
        out,
        jobs=options.jobs,
        console=console,
        **_workload_options(options),
    )
    for path in [out / "results.json", *_show_comparison(out, console)]:
        print(f"Wrote {path}")
    return 0


def _show_comparison(out: pathlib.Path, console: Console) -> list[pathlib.Path]:
    """Prints a finished comparison; writes its table and its curves."""
    results, timings = (
        json.loads((out / name).read_text())
        for name in ("results.json", "timings.json")
    )
    rows = tables.comparison(results, timings)
    text = f"{tables.markdown(rows)}\n\n{tables.caption(results, rows)}\n"
    with replacing(out / "results.md") as temporary:
        temporary.write_text(text)
    title = f"{results['workload']}: {results['part']} accuracy in % after some epochs"
    console.print(tables.terminal(tables.progress(results), title, texts=3))
    print(tables.progress_caption(results))
    plots.plot(results, out / "curves.png")
    return [out / "results.md", out / "curves.png"]


def _add_tune(parser: argparse.ArgumentParser) -> None:
    _add_many(parser, "runs/tune/WORKLOAD")
    add = parser.add_argument
    add("--optimizer", required=True, help="the arm, see list")
    add("--trials", type=int, default=7, help="points to try (%(default)s)")


def _tune(options: argparse.Namespace, console: Console) -> int:
    out = options.out or pathlib.Path("runs", "tune", options.workload)
    found = tune.tune(
        options.workload,
        options.optimizer,
        options.trials,
        out,
        jobs=options.jobs,
        console=console,
        **_workload_options(options),
    )
    rows = [
        {"trial": trial, "validation accuracy": f"{score:.1%}"}
        for trial, score in found["trials"].items()
    ]
    console.print(tables.terminal(rows, f"{found['workload']}, {found['arm']}"))
    print(f"Chosen: {found['chosen']}")
    return 0


def _add_ablate(parser: argparse.ArgumentParser) -> None:
    _add_many(parser, "runs/ablate/OPTIMIZER/WORKLOAD[@LEARNING_RATE]")
    add = parser.add_argument
    add("--seeds", type=int, default=5, help="runs an arm (%(default)s)")
    add(
        "--optimizer",
        default="ct_sgd",
        help=f"what to change: {', '.join(ablate.ABLATIONS)} (%(default)s)",
    )
    add("--learning-rate", type=float, help="of all arms (the paper's)")


def _ablate(options: argparse.Namespace, console: Console) -> int:
    rate = options.learning_rate
    arms = ablate.ablation_arms(options.optimizer, rate)
    name = options.workload if rate is None else f"{options.workload}@{rate:g}"
    out = options.out or pathlib.Path("runs", "ablate", options.optimizer, name)
    return _run_and_show(options, arms, range(options.seeds), out, console)


def _add_sweep(parser: argparse.ArgumentParser) -> None:
    _add_many(parser, "runs/sweep/OPTIMIZER/WORKLOAD")
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


def _sweep(options: argparse.Namespace, console: Console) -> int:
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
        **_workload_options(options),
    )
    title = f"{work.name}, {found['method']}"
    console.print(tables.terminal(sweep_cells.rows(found), title))
    print(f"Wrote {out / 'sweep.json'}")
    return 0


def _add_study(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", metavar="NAME", help="a manifest, see list, or the path of one")
    add("--jobs", type=int, default=1, help="runs at once (%(default)s)")
    add("--out", type=pathlib.Path, help="folder of runs and files (runs/study/NAME)")
    add(
        "--publish",
        action="store_true",
        help="copy the files to benchmarks/results, where report finds them",
    )
    _add_data(parser)


def _study(options: argparse.Namespace, console: Console) -> int:
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


def _add_profile(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "comparisons",
        nargs="+",
        type=pathlib.Path,
        metavar="RESULTS",
        help="results.json of several comparisons",
    )
    add(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("runs", "profile.png"),
        help="the picture to write (%(default)s)",
    )


def _profile(options: argparse.Namespace, console: Console) -> int:
    del console
    kind = "a comparison, as the results.json of compare does"
    found = [
        profiles.relabelled(read_json(path, {"workload", "arms"}, kind))
        for path in options.comparisons
    ]
    arms = profiles.common_arms(found)
    if not arms:
        raise ValueError("comparisons must have an arm in common, these have none")
    print(f"Wrote {plots.plot_profile(found, arms, options.out)}")
    return 0


def _add_recipes(parser: argparse.ArgumentParser) -> None:
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
        default=report.RESULTS / "recipes.json",
        help="the file of what was checked (the committed one)",
    )


def _recipes(options: argparse.Namespace, console: Console) -> int:
    path = options.out
    if options.check:
        recipes.check(
            path, console, only=options.workload, batch_size=options.batch_size
        )
        print(f"Wrote {path}")
        return 0
    hours = json.loads(path.read_text())["estimates"]
    for title, rows in recipes.tables().items():
        wanted = [r for r in rows if options.workload in (None, r.workload)]
        if wanted:
            print(f"# {title}: {recipes.HARDWARE}")
        for recipe in wanted:
            print(f"# {recipe.row}: about {hours[recipe.key]['hours']:.1f} hours")
            print(recipe.command)
    print(f"# The testbed, all rows: seconds on a CPU\n{recipes.TESTBED}")
    return 0


def _report(options: argparse.Namespace, console: Console) -> int:
    del options, console
    report.write()
    return 0


def _list(options: argparse.Namespace, console: Console) -> int:
    del options
    for title, entries in (
        ("Workloads", {w.name: w.description for w in workloads.WORKLOADS.values()}),
        ("Optimizers", specs.descriptions()),
        ("Studies", {name: manifests.read(name).title for name in manifests.names()}),
    ):
        table = Table(title=title, show_header=False, title_justify="left")
        for name, description in entries.items():
            table.add_row(name, description)
        console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
