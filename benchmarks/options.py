"""Options that several commands have."""

import argparse
import pathlib
from typing import Any

from benchmarks.train.config import Config


def add_workload(parser: argparse.ArgumentParser) -> None:
    """Options that every command with a workload has."""
    add = parser.add_argument
    add("--workload", required=True, help="what to train, see list")
    add("--epochs", type=int, help="epochs to train (the workload's)")
    add("--batch-size", type=int, help="examples in a batch (the workload's)")
    add_data(parser)
    add(
        "--refresh-batch-stats",
        type=int,
        default=Config.refresh_batch_stats,
        metavar="N",
        help="training batches from which BatchNorm statistics are taken anew after a "
        "correction; 0 leaves them (%(default)s)",
    )


def add_data(parser: argparse.ArgumentParser) -> None:
    """Options that say where data is."""
    add = parser.add_argument
    add(
        "--data-dir",
        type=pathlib.Path,
        help="folder of the data ($CTAGD_DATA, or a folder in the user's cache)",
    )
    add("--no-download", action="store_true", help="fetch nothing")


def workload_options(options: argparse.Namespace) -> dict[str, Any]:
    """What the options of a workload say, for a run's configuration."""
    return {
        "epochs": options.epochs,
        "batch_size": options.batch_size,
        "data_dir": options.data_dir,
        "download": not options.no_download,
        "refresh_batch_stats": options.refresh_batch_stats,
    }


def add_many(parser: argparse.ArgumentParser, out: str) -> None:
    """Options that every command with many runs has."""
    add_workload(parser)
    add = parser.add_argument
    add("--jobs", type=int, default=1, help="runs at once (%(default)s)")
    add("--out", type=pathlib.Path, help=f"folder of the runs and files ({out})")
