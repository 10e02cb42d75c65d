"""Studies from manifests: what was run, in a file, so that one command runs it again.

A manifest is a TOML file; those of the committed results are in ``manifests``. Its
``kind`` says what it is:

- ``compare``: workload, epochs, seeds and arms; a table ``tuned`` has the arms to tune
  first, with trials and epochs.
- ``sweep``: workload, method, factors, seeds and epochs.
- ``command``: commands that write into the folder ``{out}``.
"""

import difflib
import pathlib
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from typing import Any, NamedTuple

from rich.console import Console

from benchmarks import locks
from benchmarks.files import made_by, misfit, read_json, write_json
from benchmarks.locks import holding
from benchmarks.study.compare import Entry, compare, entry
from benchmarks.study.sweep import sweep
from benchmarks.study.tune import tune
from benchmarks.workloads import workload

FOLDER = pathlib.Path(__file__).parent / "manifests"
ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"

# By kind: the keys that a manifest must have, and those that it may have.
_KEYS = {
    "compare": ({"workload", "seeds", "arms"}, {"epochs", "batch_size", "tuned"}),
    "sweep": (
        {"workload", "seeds", "method", "factors"},
        {"epochs", "batch_sizes"},
    ),
    "command": ({"commands"}, set()),
}
_COMMON = {"kind", "title", "results"}


class Manifest(NamedTuple):
    """A study.

    Attributes:
      name: its name, the file's.
      kind: "compare", "sweep" or "command".
      title: one line.
      results: the folder of its committed files, below ``benchmarks/results``; empty
        if there is none.
      options: what else it says.
    """

    name: str
    kind: str
    title: str
    results: str
    options: dict[str, Any]


def names() -> list[str]:
    """The manifests of the committed results."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read(name: str) -> Manifest:
    """Reads a manifest.

    Args:
      name: one of :func:`names`, or the path of a TOML file.

    Returns:
      The manifest.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: there is no such name, or it lacks a key, or has one too many.
    """
    path = pathlib.Path(name)
    if path.suffix != ".toml":
        path = FOLDER / f"{name}.toml"
        if not path.exists():
            close = difflib.get_close_matches(name, names())
            advice = f"did you mean {' or '.join(close)}? " if close else ""
            raise ValueError(
                f"unknown study {name!r}; {advice}there are {', '.join(names())}, or "
                "the path of a .toml file"
            )
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"no file {path}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    return from_mapping(path.stem, found)


def from_mapping(name: str, found: Mapping[str, Any]) -> Manifest:
    """A manifest from what a file would hold.

    Args:
      name: its name.
      found: the keys and values.

    Returns:
      The manifest.

    Raises:
      ValueError: it lacks a key, or has one too many.

    Examples:
      >>> from benchmarks.study import manifests
      >>> study = {"kind": "compare", "workload": "digits_mlp", "seeds": 2}
      >>> manifests.from_mapping("mine", study | {"arms": ["sgd"]}).kind
      'compare'
    """
    kind = found.get("kind")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise ValueError(
            f"study {name}: kind must be one of {', '.join(_KEYS)}; got {kind!r}"
        )
    needed, further = _KEYS[kind]
    missing = needed - found.keys()
    unknown = found.keys() - needed - further - _COMMON
    if missing or unknown:
        what = "lacks" if missing else "has no use for"
        raise ValueError(
            f"study {name} {what} {', '.join(sorted(missing or unknown))}; a "
            f"{kind} has {', '.join(sorted(needed))}, and may have "
            f"{', '.join(sorted(further | _COMMON - {'kind'}))}"
        )
    _check_values(f"study {name}", found)
    options = {key: value for key, value in found.items() if key not in _COMMON}
    title, results = (str(found.get(key, "")) for key in ("title", "results"))
    return Manifest(name, kind, title, results, options)


# What the values of a manifest are, and of its table "tuned".
_VALUES = {
    "a whole number": ("seeds", "epochs", "batch_size", "trials"),
    "a text": ("workload", "method", "title", "results"),
    "a list of texts": ("arms", "commands"),
    "a list of numbers": ("factors",),
    "a list of whole numbers": ("batch_sizes",),
}


def _check_values(where: str, found: Mapping[str, Any]) -> None:
    """Raises ValueError if a value is of another type than it must be."""
    fits = {
        "a whole number": lambda x: misfit(x, int) is None and x > 0,
        "a text": lambda x: misfit(x, str) is None,
        "a list of texts": lambda x: misfit(x, [str]) is None,
        "a list of numbers": lambda x: misfit(x, [float]) is None,
        "a list of whole numbers": lambda x: (
            misfit(x, [int]) is None and all(y > 0 for y in x)
        ),
    }
    for what, keys in _VALUES.items():
        for key in keys:
            if key in found and not fits[what](found[key]):
                raise ValueError(f"{where}: {key} must be {what}, got {found[key]!r}")
    search = found.get("tuned")
    if search is not None:
        if not isinstance(search, dict) or not {"arms", "trials"} <= search.keys():
            raise ValueError(f"{where}: tuned must be a table with arms and trials")
        _check_values(f"{where}, tuned", search)


def run(
    study: Manifest,
    out: pathlib.Path,
    *,
    jobs: int = 1,
    console: Console,
    **options: Any,
) -> list[pathlib.Path]:
    """Makes what a manifest says; interrupted, the same call goes on.

    Args:
      study: the manifest.
      out: folder for the runs and the files.
      jobs: runs at once.
      console: shows how far it is.
      **options: further options of :class:`benchmarks.train.config.Config`, such as
        ``data_dir``.

    Returns:
      The result files. Each JSON file says by which version, commit and manifest it
      was made.

    Raises:
      BlockingIOError: another process writes to the folder.
    """
    kinds = {"compare": _compare, "sweep": _sweep, "command": _command}
    with holding(out):
        made = kinds[study.kind](study, out, jobs=jobs, console=console, **options)
        for path in made:
            if path.suffix == ".json":
                content = read_json(path, {}, "a result")
                content["made_by"] = {
                    **content.get("made_by", made_by()),
                    "manifest": study.name,
                }
                write_json(path, content)
    return made


def publish(study: Manifest, files: list[pathlib.Path], out: pathlib.Path) -> None:
    """Copies result files to where the pages find them."""
    if not study.results:
        raise ValueError(f"study {study.name} has no results, so none to publish")
    for path in files:
        target = RESULTS / study.results / path.relative_to(out)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())


def _compare(study: Manifest, out: pathlib.Path, **how: Any) -> list[pathlib.Path]:
    options = dict(study.options)
    name, seeds = options.pop("workload"), options.pop("seeds")
    arms = [entry(spec) for spec in options.pop("arms")]
    search, tuned = options.pop("tuned", None), []
    if search:
        for spec in search["arms"]:
            limits = {"epochs": search["epochs"]} if "epochs" in search else options
            found = tune(name, spec, search["trials"], out, **how | limits)
            arms.append(Entry(found["chosen"], "tuned"))
            tuned.append(out / "tuned" / f"{found['arm']}.json")
    compare(name, arms, range(seeds), out, **how | options)
    return [out / "results.json", out / "timings.json", *tuned]


def _sweep(study: Manifest, out: pathlib.Path, **how: Any) -> list[pathlib.Path]:
    options = dict(study.options)
    name, method = options.pop("workload"), options.pop("method")
    seeds, factors = options.pop("seeds"), options.pop("factors")
    sizes = options.pop("batch_sizes", [workload(name).batch_size])
    sweep(name, method, factors, sizes, range(seeds), out, **how | options)
    return [out / "sweep.json"]


def _command(study: Manifest, out: pathlib.Path, **how: Any) -> list[pathlib.Path]:
    del how
    out.mkdir(parents=True, exist_ok=True)
    for line in study.options["commands"]:
        words = [word.replace("{out}", str(out.absolute())) for word in line.split()]
        done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, check=False)
        if done.returncode:
            raise ChildProcessError(f"python -m {' '.join(words)} failed")
    files = (path for path in out.rglob("*") if path.is_file())
    return sorted(path for path in files if path.name != locks.NAME)
