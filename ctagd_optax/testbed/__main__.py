"""Command line of the testbed."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ctagd_optax.testbed._optimizers import (
    PICTURE_OPTIMIZERS,
    TABLE_OPTIMIZERS,
    get_optimizer,
)
from ctagd_optax.testbed.files import check_writable, replacing

_NAMES = f"""\
Optimizers by name: {", ".join(TABLE_OPTIMIZERS)}, or any optimizer in optax or
optax.contrib that a learning rate makes, such as lion or optax.contrib.prodigy.
A bare sgd has the paper's momentum of 0.85; optax.sgd has none. robust is
robust_ct_agd around that sgd. ct-agd has the library's clamp of the curvature,
[0.1, 10]; ct-agd-appendix that of the paper's appendix, [0.01, 100]. gamma-min is the
control: CT-AGD's schedule with γ = λ_min, without any curvature or correction."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
      arguments: the command line; None is that of the process.

    Returns:
      The exit code: 0, or 2 for bad input, with one line on stderr.
    """
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except (ValueError, OSError, ImportError) as error:
        message = " ".join(str(error).split())
        print(f"testbed {options.name}: error: {message}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ctagd_optax.testbed",
        description="""\
The CT-AGD paper's testbed: a quadratic bowl with Gaussian lumps that drift while an
optimizer walks on it. Each step sees the next of 20 train snapshots, over and over;
the test loss is the mean over 10 later snapshots, which no optimizer sees.""",
        epilog=_NAMES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="command")

    table = _command(
        commands,
        "table",
        _table,
        "the table, ours and the paper's numbers side by side",
        """\
Runs the robust method, every optimizer of the paper's table, Newton, and the γ = λ_min
control on the same landscapes, drifting and stationary, and prints means with 95 %
intervals over the runs that converged, failures, seconds, the paper's numbers, and
where the two agree. A run has converged when its train loss makes no progress for 50
steps.""",
    )
    table.add_argument(
        "--runs", type=int, default=15, help="landscapes per setting (default: 15)"
    )
    table.add_argument(
        "--json", type=Path, metavar="FILE", help="also write everything, run by run"
    )

    figure = _command(
        commands,
        "figure",
        _figure,
        "paths over the test surface, and test loss against steps",
        """\
Draws one run of each optimizer: its path over the test surface on the left, its test
loss against steps on the right. A dot ends a run that converged, a cross one that
did not. The format is that of the file name: .png, .svg or .pdf.""",
    )
    film = _command(
        commands,
        "animate",
        _animate,
        "a film: the surface drifts while the optimizers walk",
        """\
Films the train surface as the optimizers see it, one step a frame. Writes .gif, or
.mp4 where ffmpeg is installed.""",
    )
    film.add_argument(
        "--steps", type=int, default=120, help="steps to show (default: 120)"
    )
    explore = _command(
        commands,
        "explore",
        _explore,
        "one web page to play with, which works offline",
        """\
Writes one self-contained page: play or drag through the steps, switch optimizers on
and off, choose the train or the test surface, and see the robust method's multiplier
of the learning rate, and CT-AGD's γ, curvature and corrections where they act.""",
    )
    for command in (figure, film):
        command.add_argument("--dark", action="store_true", help="for a dark page")
    for command, suffix in ((figure, "png"), (film, "gif"), (explore, "html")):
        command.add_argument(
            "--out",
            type=Path,
            required=True,
            metavar=f"FILE.{suffix}",
            help="file to write",
        )
        command.add_argument(
            "--run",
            type=int,
            default=0,
            help="which landscape of the seed (default: 0)",
        )
        command.add_argument("--stationary", action="store_true", help="without drift")
    return parser


def _command(commands, name, function, summary, description):
    parser = commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=_NAMES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=function, name=name)
    parser.add_argument(
        "--seed", type=int, default=0, help="which landscapes (default: 0)"
    )
    parser.add_argument(
        "--mode",
        choices=("tuned", "paper"),
        default="tuned",
        help="tuned: each learning rate from the same small search on other landscapes "
        "(default); paper: the paper's fixed learning rates",
    )
    parser.add_argument(
        "--optimizers",
        nargs="+",
        default=[],
        metavar="NAME",
        help="further optimizers, added to the table's"
        if name == "table"
        else f"the optimizers to show (default: {' '.join(PICTURE_OPTIMIZERS)})",
    )
    return parser


def _table(options: argparse.Namespace) -> None:
    from ctagd_optax.testbed._table import make_table

    names = _names(options)
    if options.json is not None:
        check_writable(options.json)  # before the work rather than after

    def progress(name: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{name} …", end="", file=sys.stderr, flush=True)

    table = make_table(
        runs=options.runs,
        seed=options.seed,
        mode=options.mode,
        optimizers=list(dict.fromkeys([*TABLE_OPTIMIZERS, *names])),
        progress=progress,
    )
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print(table)
    if options.json is not None:
        with replacing(options.json) as temporary:
            temporary.write_text(
                json.dumps(table.to_json(), indent=1, ensure_ascii=False) + "\n"
            )
        print(f"\nWritten to {options.json}")


def _figure(options: argparse.Namespace) -> None:
    from ctagd_optax.testbed._plots import check_installed, plot

    if options.out.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(
            f"a figure must be a .png, .svg or .pdf file, got {options.out.name}"
        )
    check_installed("matplotlib", "a picture")
    results = _results(options)
    with replacing(options.out) as temporary:
        made = plot(results, run=options.run, dark=options.dark)
        made.savefig(temporary, dpi=110)
    _report(options, results)


def _animate(options: argparse.Namespace) -> None:
    from ctagd_optax.testbed._plots import animate, check_movie

    check_movie(options.out)
    if options.steps < 1:
        raise ValueError(f"--steps must be at least 1, got {options.steps}")
    results = _results(options)
    with replacing(options.out) as temporary:
        animate(
            results,
            temporary,
            run=options.run,
            steps=options.steps,
            dark=options.dark,
        )
    _report(options, results)


def _explore(options: argparse.Namespace) -> None:
    from ctagd_optax.testbed._explore import explore_page
    from ctagd_optax.testbed._plots import check_installed

    if options.out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a page must be an .html file, got {options.out.name}")
    check_installed("plotly", "the page")
    results = _results(options)
    page = explore_page(results, run=options.run)
    with replacing(options.out) as temporary:
        temporary.write_text(page, encoding="utf-8")
    _report(options, results)


def _names(options: argparse.Namespace) -> list[str]:
    """The chosen names, with or without commas; every one is known."""
    names = [n for text in options.optimizers for n in text.split(",") if n]
    for name in names:
        get_optimizer(name)
    return names


def _results(options: argparse.Namespace):
    from ctagd_optax.testbed._table import compare

    names = _names(options)
    if options.run < 0:
        raise ValueError(f"--run must be at least 0, got {options.run}")
    check_writable(options.out)  # before the work rather than after
    return compare(
        names or PICTURE_OPTIMIZERS,
        runs=options.run + 1,
        seed=options.seed,
        mode=options.mode,
        stationary=options.stationary,
    )


def _report(options: argparse.Namespace, results) -> None:
    for result in results:
        run = options.run
        print(
            f"{result.name}: learning rate {result.learning_rate:g}, "
            f"{result.status[run]} after {result.steps[run]} steps, test loss "
            f"{result.final[run]:.2f}"
        )
    print(f"Written to {options.out}")


if __name__ == "__main__":
    sys.exit(main())
