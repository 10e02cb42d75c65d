"""Studies from manifests: the committed ones, and a small one from start to end."""

import json
import pathlib

import pytest
from rich.console import Console

from benchmarks.specs import arm
from benchmarks.study import manifests
from benchmarks.study.compare import entry

pytestmark = pytest.mark.usefixtures("default_jax")

QUIET = Console(quiet=True)
COMPARE = "kind = 'compare'\nworkload = 'x'\narms = ['sgd']\n"
SWEEP = "kind = 'sweep'\nworkload = 'x'\nmethod = 'y'\nseeds = 1\n"
SMALL = {
    "kind": "compare",
    "workload": "digits_mlp",
    "epochs": 1,
    "seeds": 1,
    "batch_size": 512,
    "arms": ["sgd", "robust(adamw)"],
    "tuned": {"trials": 1, "arms": ["sgd"]},
}


def test_every_result_has_a_manifest():
    studies = [manifests.read(name) for name in manifests.names()]
    folders = {study.results for study in studies} - {"."}
    single = {f"{study.name}.json" for study in studies if study.results == "."}
    for path in manifests.RESULTS.rglob("*.json"):
        place = path.relative_to(manifests.RESULTS)
        inside = [folder for folder in folders if place.is_relative_to(folder)]
        assert inside or str(place) in single, place


@pytest.mark.parametrize("name", manifests.names())
def test_results_are_those_of_the_manifest(name):
    study = manifests.read(name)
    folder, options = manifests.RESULTS / study.results, study.options
    if study.kind == "compare":
        found = json.loads((folder / "results.json").read_text())
        tuned = [json.loads(p.read_text()) for p in folder.glob("tuned/*.json")]
        searched = options.get("tuned", {"arms": []})
        assert {search["arm"] for search in tuned} == set(searched["arms"])
        for search in tuned:
            assert len(search["trials"]) == searched["trials"]
            assert search["epochs"] == searched["epochs"]
        named = [entry(spec).spec for spec in options["arms"]]
        assert set(found["arms"]) == {*named, *(search["chosen"] for search in tuned)}
        assert found["epochs"] == options["epochs"]
        assert found["seeds"] == list(range(options["seeds"]))
        assert found["workload"] == options["workload"]
    elif study.kind == "sweep":
        found = json.loads((folder / "sweep.json").read_text())
        assert found["method"] == options["method"]
        assert len(found["cells"]) == len(options["factors"])
        assert found["seeds"] == list(range(options["seeds"]))
    else:
        for line in options["commands"]:
            [target] = [word for word in line.split() if word.startswith("{out}/")]
            assert (folder / target.removeprefix("{out}/")).is_file()


def test_a_study_from_start_to_end(tmp_path):
    study = manifests.from_mapping("mine", SMALL)
    made = manifests.run(study, tmp_path, console=QUIET)
    names = [str(path.relative_to(tmp_path)) for path in made]
    assert names == ["results.json", "timings.json", "tuned/sgd.json"]
    found = json.loads((tmp_path / "results.json").read_text())
    assert list(found["arms"]) == ["sgd", "robust(adamw)", "sgd@0.032"]
    assert found["arms"]["sgd@0.032"]["role"] == "tuned"
    for content in (found, *(json.loads(path.read_text()) for path in made)):
        assert content["made_by"]["manifest"] == "mine"
        assert content["made_by"]["version"]
        assert "commit" in content["made_by"]
    assert found["arms"]["sgd"]["made_by"].keys() == {"version", "commit"}
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("summary.json")}
    assert len(before) == 4
    manifests.run(study, tmp_path, console=QUIET)  # finished runs are not repeated
    assert before == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("summary.json")}
    assert json.loads((tmp_path / "results.json").read_text()) == found
    # What an earlier manifest has tuned is none of this one's business.
    fewer = {key: value for key, value in SMALL.items() if key != "tuned"}
    made = manifests.run(manifests.from_mapping("mine", fewer), tmp_path, console=QUIET)
    assert [path.name for path in made] == ["results.json", "timings.json"]
    found = json.loads((tmp_path / "results.json").read_text())
    assert list(found["arms"]) == ["sgd", "robust(adamw)"]


def test_results_are_published_where_pages_find_them(tmp_path, monkeypatch):
    monkeypatch.setattr(manifests, "RESULTS", tmp_path / "results")
    commands = ["json.tool {out}/../given.json {out}/copy.json"]
    study = manifests.from_mapping(
        "copy", {"kind": "command", "commands": commands, "results": "here"}
    )
    (tmp_path / "given.json").write_text('{"a": [1, 2]}')
    out = tmp_path / "out"
    made = manifests.run(study, out, console=QUIET)
    manifests.publish(study, made, out)
    found = json.loads((tmp_path / "results" / "here" / "copy.json").read_text())
    assert found["a"] == [1, 2]
    assert found["made_by"]["manifest"] == "copy"
    (tmp_path / "given.json").write_text("{")
    with pytest.raises(ChildProcessError, match=r"json\.tool .* failed"):
        manifests.run(study, out, console=QUIET)
    with pytest.raises(ValueError, match="study copy has no results"):
        manifests.publish(study._replace(results=""), made, out)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind = 3", "study bad: kind must be one of compare, sweep, command; got 3"),
        ("kind = 'command'", "study bad lacks commands; a command has commands, and"),
        (
            "kind = 'command'\ncommands = []\nseed = 1",
            "study bad has no use for seed; a command has commands",
        ),
        ("kind = ", "bad.toml is not TOML: "),
        (
            f"{COMPARE}seeds = [0, 1]",
            r"seeds must be a whole number, got \[0",
        ),
        (f"{COMPARE}seeds = 2\nepochs = '3'", "epochs must be a whole number, got '3'"),
        (
            f"{COMPARE}seeds = 2\n[tuned]\narms = ['sgd']",
            "study bad: tuned must be a table with arms and trials",
        ),
        (
            f"{SWEEP}factors = 3",
            "study bad: factors must be a list of numbers, got 3",
        ),
        ("kind = ['a']", r"study bad: kind must be one of compare.* got \['a'\]"),
        ("kind = {}", r"study bad: kind must be one of compare.* got {}"),
        (f"{COMPARE}seeds = true", "study bad: seeds must be a whole number, got True"),
        (
            f"{SWEEP}factors = [1]\nbatch_sizes = [16.5]",
            r"batch_sizes must be a list of whole numbers, got \[16.5\]",
        ),
        (f"{SWEEP}factors = [1]\nbatch_sizes = [0]", "must be a list of whole numbers"),
        (f"{SWEEP}factors = [true]", r"factors must be a list of numbers, got \[True"),
        ("a = \udcff", "bad.toml is not TOML: 'utf-8' codec can't decode byte 0xff"),
        (f"a = {'[' * 9999}", "bad.toml is not TOML: "),
    ],
)
def test_bad_manifests(text, message, tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(text, "utf-8", "surrogateescape")
    with pytest.raises(ValueError, match=message):
        manifests.read(str(path))


def test_unknown_studies():
    with pytest.raises(ValueError, match="unknown study 'digit_mlp'; did you mean dig"):
        manifests.read("digit_mlp")
    with pytest.raises(FileNotFoundError, match=r"^no file none\.toml$"):
        manifests.read(str(pathlib.Path("none.toml")))


def test_arms_of_manifests_are_named_in_one_way():
    for name in manifests.names():
        for spec in manifests.read(name).options.get("arms", ()):
            assert arm(spec).name == spec
