"""RESULTS.md, from hand-made comparisons."""

import json
import re

from benchmarks import findings, report
from tests.benchmarks.handmade import comparison, run


def write(folder, results, seconds):
    folder.mkdir(parents=True)
    timings = {
        name: [
            {
                "seed": r["seed"],
                "seconds": [seconds[name] * (n + 1) for n in range(len(r["accuracy"]))],
                "compile_seconds": 4.0,
            }
            for r in arm["runs"]
        ]
        for name, arm in results["arms"].items()
    }
    (folder / "results.json").write_text(json.dumps(results))
    (folder / "timings.json").write_text(json.dumps({"arms": timings}))


def test_answers_come_from_the_files(tmp_path):
    figures = {"gamma_at_min": [1.0] * 3, "observed": [0.25] * 3}
    results = comparison(
        sgd=("backbone", run(0.5, 0.8, 0.9)),
        sgd__0=("tuned", run(0.9, 0.9, 0.9)),
        ct_sgd=("paper", run(0.5, 0.9, 0.9, **figures)),
        schedule_control=("control", run(0.5, 0.9, 0.9)),
    )
    write(
        tmp_path / "compare" / "digits_mlp",
        results,
        {"sgd": 1.0, "sgd@0": 1.0, "ct_sgd": 1.1, "schedule_control": 1.0},
    )
    memory = [{"options": "defaults", "state bytes per parameter": 20.0}]
    (tmp_path / "overhead.json").write_text(json.dumps({"memory": memory}))
    text = findings.page(tmp_path)
    saved = re.findall(
        r"## (.*\?)\n\n(In .*)\n\n.*\n.*\n\| `digits_mlp` \| (.*?) \|", text
    )
    assert saved == [
        (
            "Does literal CT-AGD save epochs against its backbone?",
            "In 1 of 1 comparisons; in 0 the reference arrives at the cutoff and "
            "CT-AGD never does.",
            "33.3 %",
        ),
        (
            "Against a tuned backbone?",
            "In 0 of 1 comparisons; in 0 the reference arrives at the cutoff and "
            "CT-AGD never does.",
            "−100.0 %",
        ),
        (
            "Against the schedule without curvature?",
            "In 0 of 1 comparisons; in 0 the reference arrives at the cutoff and "
            "CT-AGD never does.",
            "0.0 %",
        ),
    ]
    assert "| `digits_mlp` | 25 % | 100 % |" in text
    assert "| `digits_mlp` | +10 % | 4 s |" in text
    assert "adds 20 bytes of state per float32 parameter" in text
    assert "Not measured yet." in text
    assert "![Accuracy by epoch of every arm on digits_mlp]" in text


def test_the_page_is_that_of_the_results():
    page = findings.page(report.RESULTS)
    assert report.FINDINGS.read_text() == page, "run python -m benchmarks report"


def test_pictures_are_there():
    for path in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", report.FINDINGS.read_text()):
        assert (report.FINDINGS.parent / path).is_file()
