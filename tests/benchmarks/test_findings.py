"""RESULTS.md, from hand-made comparisons."""

import json
import re
import shutil

import pytest

from benchmarks import contests, experiments, findings, motion, recipes, report, sweeps
from tests.benchmarks.handmade import comparison, run, write


@pytest.fixture
def folder(tmp_path):
    """A folder of results without comparisons."""
    memory = [{"options": "defaults", "state bytes per parameter": 20.0}]
    (tmp_path / "overhead.json").write_text(json.dumps({"memory": memory}))
    seconds = {"compile": 19.0, "runs": 2.0}
    (tmp_path / "testbed").mkdir()
    (tmp_path / "testbed" / "table.json").write_text(json.dumps({"seconds": seconds}))
    shutil.copy(report.RESULTS / "recipes.json", tmp_path)
    found = {"workload": "digits_mlp", "seeds": 1, "epochs": 2}
    found["changes"] = {"64": {"ct_sgd": [[0.5, -0.1]]}}
    (tmp_path / "corrections").mkdir()
    (tmp_path / "corrections" / "digits_mlp.json").write_text(json.dumps(found))
    seen = {"runs": [[dict.fromkeys(motion.FIGURES, 0.5)]], "learning_rate": 0.1}
    found = {"seeds": 1, "epochs": 1, "workloads": {"digits_mlp": [seen]}}
    (tmp_path / "motion.json").write_text(json.dumps(found))
    return tmp_path


@pytest.fixture
def text(folder):
    """The page on one comparison, in which one arm was tuned."""
    figures = {"gamma_at_min": [1.0] * 3, "observed": [0.25] * 3}
    results = comparison(
        sgd=("backbone", run(0.5, 0.8, 0.9)),
        sgd__0=("tuned", run(0.1, 0.9, 0.9)),
        ct_sgd=("paper", run(0.5, 0.8, 0.8, **figures)),
        ct_sgd__0=("tuned", run(0.9, 0.9, 0.9, **figures)),
        schedule_control=("control", run(0.5, 0.9, 0.9)),
        **{"sgd@1+average": ("tuned", run(0.5, 0.9, 0.9))},
    )
    path = folder / "compare" / "digits_mlp"
    write(path, results, dict.fromkeys(results["arms"], 1.0) | {"ct_sgd": 1.1})
    (path / "tuned").mkdir()
    search = {"epochs": 12, "trials": {"sgd@0": 0.9, "sgd@1": 0.8}}
    (path / "tuned" / "sgd.json").write_text(json.dumps(search))
    return findings.page(folder)


def section(text, title):
    [found] = re.findall(rf"^##+ {re.escape(title)}\n\n(.*?)(?=^##|\Z)", text, MULTI)
    return found


MULTI = re.MULTILINE | re.DOTALL


def test_savings(text):
    literal = section(text, "Does literal CT-AGD save epochs against its backbone?")
    assert literal.startswith(
        "Faster in 0 of 1 case, level in 0, slower in 1; in 1 of these a seed never "
        "arrives"
    )
    assert "| `digits_mlp` | never | – |" in literal
    title = "Does tuned CT-AGD save epochs against a tuned backbone?"
    tuned = section(text, title)
    assert tuned.startswith("Faster in 1 of 1 case, level in 0, slower in 0.\n")
    assert "| `ct_sgd`, tuned | `ct_adam`, tuned | `sgd+average`, tuned |" in tuned
    assert "| `digits_mlp` | 50.0 % | – | 0.0 % |" in tuned


def test_what_was_run(text):
    assert "| `digits_mlp` | Digits | 1 | 3 | 6 | 1 | 2 | 12 |" in section(
        text, "What was run"
    )


def test_the_profile(text):
    profile = section(text, "Which arm is fast on how many workloads?")
    assert profile.startswith("Over 1 workload: ")
    assert "| `ct_sgd`, tuned | 100 % | 100 % | 100 % | 100 % | 0 % |" in profile
    assert "| `sgd`, tuned | 0 % | 0 % | 100 % | 100 % | 0 % |" in profile
    assert "| `ct_sgd` | 0 % | 0 % | 0 % | 0 % | 100 % |" in profile


def test_the_profile_is_of_comparisons_with_ct_agd(folder):
    few = {"sgd": ("backbone", run(0.5)), "robust_sgd": ("ours", run(0.9))}
    for name, arms in (("a", {**few, "ct_sgd": ("paper", run(0.1))}), ("b", few)):
        results = comparison(**arms)
        write(folder / "compare" / name, results, dict.fromkeys(arms, 1.0))
    profile = section(findings.page(folder), "Which arm is fast on how many workloads?")
    assert profile.startswith("Over 1 workload: ")
    assert "| `ct_sgd` | 0 % |" in profile


def test_trust_and_cost(text):
    assert "| `digits_mlp` | 25 % | 100 % |" in text
    assert "| `digits_mlp` | +10 % | 4 s |" in text
    assert "adds 20 bytes of state per float32 parameter" in text
    assert "![Accuracy by epoch of every arm on digits_mlp]" in text


def test_corrections(text):
    found = section(text, "Does the correction do harm?")
    assert "On `digits_mlp`, 1 seeds of 2 epochs" in found
    assert "| `ct_sgd` | 64 | 2 | 100 % | 50 % | 50 % | +50.0 % | +20.0 % |" in found
    assert found.rstrip().endswith("Not measured.")


def test_motion(text):
    found = section(text, "Can its evidence tell a better learning rate?")
    assert "| `digits_mlp` | 0.1 | 0.5 | 0.5 | 0.5 | 0.5 | 0.5 |" in found


def test_recipes(text):
    found = section(text, "Accuracy, epochs and time on images")
    [row] = re.findall(r"^\| ResNet-20 on CIFAR-10: L-BFGS .*", found, re.MULTILINE)
    assert row.startswith(
        "| ResNet-20 on CIFAR-10: L-BFGS | `python -m benchmarks compare --workload "
        "cifar10_resnet20 --optimizers lbfgs --seeds 5` | one V100S, 32 GB | 57.0* | "
    )
    assert row.endswith(" | 82.79 ± 6.42 | 90.60 ± 29.50 | – | 16295.83 ± 3140.84 |")
    assert "all rows in 21 s" in section(text, "The testbed")


def test_a_recipe_s_status():
    recipe = recipes.distinct()[0]
    data = {
        "hardware": "a GPU",
        "workloads": {recipe.workload: {"batch_size": 128}},
        "estimates": {recipe.key: {"hours": 2.95, "basis": "paper"}},
        "dry_runs": {},
    }

    def status():
        return list(findings._recipe(recipe, data).values())[2:5]

    assert status() == ["a GPU", "3.0", "not yet"]
    data["dry_runs"] = {recipe.key: {"batch_size": 128, "seconds": 30.6}}
    assert status()[-1] == "pass, 31 s"
    data["dry_runs"] = {recipe.key: {"batch_size": 2, "seconds": 30.6}}
    assert status()[-1] == "pass, 31 s, batch of 2"


def test_ablations_are_read_by_ingredient(folder):
    results = comparison(
        sgd=("backbone", run(0.5, 0.9)),
        ct_sgd=("paper", run(0.1, 0.1)),
        **{
            "ct_sgd:quantile=0.5": ("control", run(0.9, 0.9)),
            "ct_sgd:quantile=0.2": ("control", run(0.1, 0.1)),
            "ct_sgd:eps=1e-08": ("control", run(0.2, 0.1)),
        },
    )
    for kind in ("compare", "ablate/ct_sgd"):
        path = folder / kind / "digits_mlp"
        write(path, results, dict.fromkeys(results["arms"], 1.0))
    found = section(findings.page(folder), "Ablations on digits_mlp")
    assert (
        "SGD: 90.0 % at best, and the cutoff after 2.0 epochs. CT-AGD as it is: 10.0 % "
        "at best, and the cutoff missed by 1 of 1 seeds. Of 3 changes 1 makes it "
        "arrive sooner: `ct_sgd:quantile=0.5`."
    ) in found
    parts = found.split("**Quantile**")[1].split("**")[0]
    quantile = [line for line in parts.splitlines() if line.startswith("| `")]
    # The baseline comes first, with the paper's number of this group.
    assert quantile == [
        "| `ct_sgd` | 10.0 | ∞ | 1.0 | 90.23 ± 0.22 | 25.80 ± 1.25 |",
        "| `ct_sgd:quantile=0.2` | 10.0 | ∞ | 1.0 | 90.16 ± 0.26 | 23.80 ± 3.21 |",
        "| `ct_sgd:quantile=0.5` | 90.0 | 1.0 | 1.0 | 90.18 ± 0.11 | 35.80 ± 3.87 |",
    ]
    assert "paper" not in found.split("**Eps**")[1]
    assert findings.INGREDIENTS.keys() == experiments.ABLATIONS.keys()


def test_the_robust_method(folder):
    results = comparison(
        sgd=("backbone", run(0.5, 0.9)),
        sawtooth_control=("control", run(0.8, 0.9)),
        robust_sgd=("ours", run(0.9, 0.8, gamma_min=[0.25, 0.5])),
        lion=("peer", run(0.5, 0.5)),
        **{
            "robust_sgd:guard=1000000000": ("control", run(0.1, 0.1)),
            "robust_sgd:threshold=1": ("control", run(0.9, 0.8)),
            "robust_sgd:correction=none": ("ours", run(0.8, 0.8)),
            "sawtooth_control:peak=20": ("control", run(0.1, 0.1)),
        },
    )
    results["arms"]["sgd"]["options"] = {"learning_rate": 0.01}
    for kind in ("compare", "ablate/robust_sgd"):
        path = folder / kind / "digits_mlp"
        write(path, results, dict.fromkeys(results["arms"], 1.0))
    names = {**sweeps.arms("robust_sgd", [1.0])[0], "chance": "lion"}
    cell = sweeps.cell({**results, "steps_per_epoch": 5, "epochs": 2}, names)
    path = folder / "sweep" / "robust_sgd" / "digits_mlp" / "sweep.json"
    path.parent.mkdir(parents=True)
    found = {"workload": "digits_mlp", "method": "robust_sgd", "seeds": [0]}
    path.write_text(json.dumps({**found, "cells": [cell]}))

    text = findings.page(folder)
    assert "`sawtooth_control` | `sawtooth_control:peak=20` | `robust_sgd` |" in text
    helps = section(text, "Does the robust method help?")
    assert helps.count("| `digits_mlp` | 2.0 | 2.0 | ∞ | 1.0 |") == 3
    assert helps.count("| `robust_sgd` | `sgd` | 0.50 | 0.50 | 1 of 1 | 0 of 1 |") == 3
    assert helps.count("| 1 of 1 | 0 of 1 | 0 sooner, 0 later |") == 6
    assert "| `robust_sgd` | `sgd`, tuned | – | – | 0 of 0 | 0 of 0 |" in text
    assert (
        "| 5 | `sgd` | 90.0 | 80.0 | 4.0 | 2.0 | 2.0 | ∞ (1 of 1 missed) | 1.0 | ∞ (1 "
        "of 1 missed)" in text
    )
    assert "in 1 of 1 cells: `robust_sgd` with 5 steps an epoch." in text
    assert "backbone in 1 of 1 cells and later in 0 (in 0 and 0 beyond what" in text
    assert "sooner than the high control in 1 of 1 cells and later in 0" in text
    assert "sooner than the control in 1 of 1 cells and later in 0" in text
    assert "At worst it takes 0.50 times its backbone's epochs. In 0 of 1 cells" in text
    assert "In the others it takes 0.50 times its backbone's epochs at worst." in text
    assert "than itself in 0 of 1 cells and later in 1, with ∞ times its own" in text
    corrections = section(text, "Does the correction do harm?")
    assert "| `digits_mlp` | +5.00 | −29.29 % |" in corrections
    changed = section(
        text, "What does each ingredient of the robust method contribute?"
    )
    assert "| arm | accuracy at 0.01, T = 24 | loss at 0.01, T = 24 |" in changed
    assert "|  | `robust_sgd` | 1.0 | 1.0 |" in changed
    assert "| dead zone | `robust_sgd:threshold=1` | the same | the same |" in changed
    assert "| guard | `robust_sgd:guard=1000000000` | ∞ | ∞ |" in changed
    goals = section(text, "Which of its goals does the robust method reach?")
    assert goals.startswith("Of 16 goals of speed and safety: 16 yes. Of 0 goals of co")
    assert "| `robust_sgd` | 0.50 | yes | 0.50 to 0.50 | 1.00 |" in goals
    assert "by training loss | `robust_sgd` | 0.50 | yes | 0.50 to 0.50 | – |" in goals
    assert "1 cells of its sweep | 0.50 | yes | 0.50 to 0.50 | ∞ |" in goals
    assert "| no run broken where bare is not | `robust_sgd`, 1 cells" in goals
    assert findings.ROBUST_INGREDIENTS.keys() == experiments.ROBUST_ABLATIONS.keys()


@pytest.mark.parametrize(
    ("option", "name", "title"),
    [
        (experiments.BOLD, "bolder", "Is a bolder variant better?"),
        (experiments.SETTLING, "settling", "Does it pay to settle within epochs?"),
    ],
)
def test_a_variant(folder, option, name, title):
    spec = f"robust_sgd:{option}"
    results = comparison(
        sgd=("backbone", run(0.5, 0.9)),
        sawtooth_control=("control", run(0.8, 0.9)),
        robust_sgd=("ours", run(0.5, 0.9, gamma_min=[0.25, 0.5])),
        lion=("peer", run(0.5, 0.5)),
        **{
            spec: ("ours", run(0.9, 0.8, gamma_min=[1.0, 1.0])),
            "sawtooth_control:peak=20": ("control", run(0.1, 0.1)),
            "sawtooth_control:floor=0.1,peak=1": ("control", run(0.5, 0.9)),
        },
    )
    path = folder / "compare" / "digits_mlp"
    write(path, results, dict.fromkeys(results["arms"], 1.0))
    names = {**sweeps.arms(spec, [1.0])[0], "chance": "lion"}
    cell = sweeps.cell({**results, "steps_per_epoch": 5, "epochs": 2}, names)
    path = folder / "sweep" / f"robust_sgd_{name}" / "digits_mlp" / "sweep.json"
    path.parent.mkdir(parents=True)
    found = {"workload": "digits_mlp", "method": spec, "seeds": [0]}
    path.write_text(json.dumps({**found, "cells": [cell]}))

    text = findings.page(folder)
    variant = section(text, title)
    assert variant.count("| `digits_mlp` | 2.0 | 2.0 | 1.0 |") == 2
    if option == experiments.BOLD:
        assert f"`{spec}` is later than its backbone by over 5 % in 0 of 1" in variant
        assert "| `sgd` | `sgd` | 1.00 | 0.50 | 1.00 | 0.50 |" in variant
        assert "| `sgd` | `robust_sgd` | 1.00 | 0.50 | 1.00 | 0.50 |" in variant
    else:
        for rival in ("backbone", "low control"):
            row = f"| `{spec}` | the {rival} | 0.50 | 0.50 | 1 of 1 | 0 of 1 |"
            assert row in variant
        assert "sooner than the low control in 1 of 1 cells and later in 0" in text
    assert f"### `{spec}` on digits_mlp" in text
    goals = section(text, "Which of its goals does the robust method reach?")
    assert "robust_sgd" in goals
    assert "of its sweep" not in goals
    assert option not in goals


def test_sub_epochs(folder):
    spec = f"robust_sgd:{experiments.SUB_EPOCHS}"
    for method, curve in (("robust_sgd", (0.9, 0.8)), (spec, (0.5, 0.9))):
        names = sweeps.arms(method, [1.0])[0]
        arms = {arm: ("control", run(0.5, 0.9)) for arm in names.values()}
        arms[method] = ("ours", run(*curve, gamma_min=[0.25, 0.5]))
        results = comparison(**arms)
        # A cell in which only the method as it is was run is left out.
        lengths = (5, 9) if method == "robust_sgd" else (5,)
        cells = [
            sweeps.cell({**results, "steps_per_epoch": n, "epochs": 2}, names)
            for n in lengths
        ]
        path = folder / "sweep" / names["method"] / "digits_mlp" / "sweep.json"
        path.parent.mkdir(parents=True)
        found = {"workload": "digits_mlp", "method": method, "seeds": [0]}
        path.write_text(json.dumps({**found, "cells": cells}))
    text = findings._sub_epochs(folder)
    assert f"| `{spec}` | `robust_sgd` | 2.00 | 2.00 | 0 of 1 | 1 of 1 |" in text
    assert f"| `{spec}` | the backbone | 1.00 | 1.00 | 0 of 1 | 0 of 1 |" in text


def test_ratios_of_runs_that_never_arrive(folder):
    for name, curve in (("a", (0.9, 0.9)), ("b", (0.1, 0.1))):
        results = comparison(
            sgd=("backbone", run(0.5, 0.8)),
            sgd__1=("tuned", run(0.8, 0.8) if name == "b" else run(0.5, 0.5)),
            sawtooth_control=("control", run(0.1, 0.1)),
            robust_sgd=("ours", run(*curve)),
        )
        path = folder / "compare" / name
        write(path, results, dict.fromkeys(results["arms"], 1.0))
    table = findings._ratios(contests.read(folder / "compare"), "epochs_to_backbone")
    # Once only the method gets there, once only the tuned backbone.
    assert "| `robust_sgd` | `sgd`, tuned | ∞ | ∞ | 1 of 2 | 1 of 2 |" in table
    assert "| `robust_sgd` | `sawtooth_control` | 0.00 | 0.00 | 1 of 1 |" in table


def test_without_ablations(text):
    found = section(text, "What does each ingredient contribute?")
    assert found == "Not measured yet.\n\n"


def test_the_page_is_that_of_the_results():
    page = findings.page(report.RESULTS)
    assert report.FINDINGS.read_text() == page, "run python -m benchmarks report"


def test_pictures_are_there():
    for path in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", report.FINDINGS.read_text()):
        assert (report.FINDINGS.parent / path).is_file()
