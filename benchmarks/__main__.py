"""The benchmarks' command line: ``python -m benchmarks COMMAND``."""

import argparse
import pathlib
import sys
from collections.abc import Sequence

import jax
from rich.console import Console
from rich.table import Table

from benchmarks import devices, logs, optimizers, trainer, workloads


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code."""
    commands = parser()
    options = commands.parse_args(arguments)
    console = Console()
    try:
        return options.run(options, console)
    except (ValueError, OSError, ImportError) as error:
        commands.exit(2, f"error: {error}\n")
    except trainer.NonFiniteLossError as error:
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
    _add_train(
        commands.add_parser("train", help="train one network", allow_abbrev=False)
    )
    command = commands.add_parser("list", help="list workloads and optimizers")
    command.set_defaults(run=_list)
    return root


def _add_train(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_train)
    add = parser.add_argument
    add("--workload", required=True, help="what to train, see list")
    add(
        "--optimizer",
        required=True,
        help="NAME[@LEARNING_RATE][+average][:KEY=VALUE,...], see list",
    )
    add("--seed", type=int, default=0, help="of weights and data (%(default)s)")
    add("--epochs", type=int, help="epochs to train (the workload's)")
    add("--steps", type=int, help="stop after so many steps")
    add("--batch-size", type=int, help="examples in a batch (the workload's)")
    add(
        "--data-dir",
        type=pathlib.Path,
        help="folder of the data ($CTAGD_DATA, or a folder in the user's cache)",
    )
    add("--no-download", action="store_true", help="fetch nothing")
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
        "--refresh-batch-stats",
        type=int,
        default=0,
        metavar="N",
        help="evaluate also with BatchNorm statistics of N training batches",
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
    add("--tensorboard", action="store_true", help="write TensorBoard's files, too")
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
    name = optimizers.arm(options.optimizer).name
    work = workloads.workload(options.workload)
    out = options.out or pathlib.Path("runs", work.name, name, str(options.seed))
    config = trainer.Config(
        workload=work.name,
        optimizer=name,
        out=out,
        seed=options.seed,
        epochs=options.epochs,
        steps=options.steps,
        batch_size=options.batch_size,
        data_dir=options.data_dir,
        download=not options.no_download,
        synthetic=options.synthetic,
        part=options.part,
        dtype=options.dtype,
        accumulate=options.accumulate,
        refresh_batch_stats=options.refresh_batch_stats,
        checkpoint_every=options.checkpoint_every,
        keep=options.keep,
        devices=options.devices,
        shard=options.shard,
        tensorboard=options.tensorboard,
    )
    summary = trainer.train(
        config,
        resume=options.resume,
        make_reporter=lambda *sizes: logs.reporter(console, *sizes),
    )
    if jax.process_index() == 0:
        table = Table(title=f"{work.name}, {name}", show_header=False)
        for key, value in summary.items():
            table.add_row(key.replace("_", " "), _shown(value))
        console.print(table)
        print(f"Wrote {out / 'summary.json'}")
    return 0


def _shown(value: object) -> str:
    if value is None:
        return "never"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _list(options: argparse.Namespace, console: Console) -> int:
    del options
    for title, entries in (
        ("Workloads", {w.name: w.description for w in workloads.WORKLOADS.values()}),
        ("Optimizers", optimizers.descriptions()),
    ):
        table = Table(title=title, show_header=False, title_justify="left")
        for name, description in entries.items():
            table.add_row(name, description)
        console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
