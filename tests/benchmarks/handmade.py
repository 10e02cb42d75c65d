"""Comparisons made by hand, in the form of a finished one."""

import json


def run(*accuracy, seed=0, failed_step=None, **lists):
    """A run with these accuracies after its epochs, and losses to match."""
    gammas = "gamma_min", "gamma_max", "gamma_at_min"
    empty = dict.fromkeys(("observed", *gammas))
    return {
        "seed": seed,
        "accuracy": list(accuracy),
        "train_loss": [1 - value for value in accuracy],
        "failed_step": failed_step,
        **empty,
        **lists,
    }


def comparison(workload="digits_mlp", **arms):
    """A comparison of arms given as (role, run, ...); ``__`` in a name is an @."""
    entries = {
        name.replace("__", "@"): {"role": role, "options": {}, "runs": list(runs)}
        for name, (role, *runs) in arms.items()
    }
    runs = [entry for arm in entries.values() for entry in arm["runs"]]
    return {
        "workload": workload,
        "description": "Digits",
        "part": "test",
        "epochs": max((len(entry["accuracy"]) for entry in runs), default=0),
        "steps_per_epoch": 24,
        "batch_size": 64,
        "seeds": sorted({entry["seed"] for entry in runs}),
        "arms": entries,
    }


def write(folder, results, seconds):
    """Writes a comparison and its times, by the seconds of an arm's epoch."""
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
