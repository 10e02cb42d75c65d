"""The benchmarks' command line: ``python -m benchmarks COMMAND``.

What a single command needs it imports itself: every process of a comparison imports
this module.
"""

import argparse
import contextlib
import pathlib
import sys
import tempfile
from collections.abc import Callable, Sequence

import jax
from rich.console import Console
from rich.table import Table

from benchmarks import specs, workloads
from benchmarks.options import add_workload, workload_options
from benchmarks.probes import corrections, estimators, overhead
from benchmarks.study import commands as studies
from benchmarks.study import manifests
from benchmarks.study.compare import read_results
from benchmarks.train import devices, loop, progress
from benchmarks.train.config import LOGS, Config


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
    for name, (add, run, help_text) in studies.COMMANDS.items():
        add(command(name, run, help_text))
    _add_profile(command("profile", _profile, "profiles over several comparisons"))
    for probe, help_text in (
        (overhead, "measure what the methods cost: compiling, time, memory"),
        (estimators, "measure the curvature estimators against the true diagonal"),
        (corrections, "measure what corrections do to the training loss"),
    ):
        name = probe.__name__.rpartition(".")[2]
        probe.add_arguments(command(name, probe.run, help_text))
    command("report", _report, "write README.md and docs from templates")
    command("list", _list, "list workloads, optimizers and studies")
    return root


def _add_train(parser: argparse.ArgumentParser) -> None:
    add_workload(parser)
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
            **workload_options(options),
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
    from benchmarks.analysis import plots, profiles

    found = [profiles.relabelled(read_results(p)) for p in options.comparisons]
    arms = profiles.common_arms(found)
    if not arms:
        raise ValueError("comparisons must have an arm in common, these have none")
    print(f"Wrote {plots.plot_profile(found, arms, options.out)}")
    return 0


def _report(options: argparse.Namespace, console: Console) -> int:
    del options, console
    from benchmarks.pages import report

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
