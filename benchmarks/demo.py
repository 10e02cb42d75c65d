"""Trains a small Flax network on scikit-learn's digits with CT-AGD and its controls.

Usage: python -m benchmarks.demo [--epochs 15] [--seeds 3] [--out runs/demo]

Prints a table, and writes ``results.json`` and ``curves.png``. The network and the data
are small enough for a laptop; the question is the real one: is it the curvature that
helps, or only the learning rate?
"""

import argparse
import functools
import pathlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_digits

import ctagd_optax
from benchmarks.files import write_json
from ctagd_optax.testbed.files import replacing

BATCH = 64
LEARNING_RATE = 1e-2  # the paper's
SEARCH = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
TARGET = 0.95


class Split(NamedTuple):
    """Images in [0, 1], flattened, and their labels."""

    images: jax.Array
    labels: jax.Array


class Arm(NamedTuple):
    """An optimizer under comparison: made from a learning rate and T."""

    label: str
    make: Callable[[float, int], optax.GradientTransformation]
    tuned: bool = False
    curvature_min: float = 1e-2


def sgd(learning_rate: float, steps_per_epoch: int):
    """The paper's SGD."""
    del steps_per_epoch
    return optax.chain(
        optax.add_decayed_weights(5e-4), optax.sgd(learning_rate, momentum=0.85)
    )


def ct_sgd(learning_rate: float, steps_per_epoch: int, **options: Any):
    """The paper's CT-AGD around SGD."""
    return ctagd_optax.ct_sgd(learning_rate, steps_per_epoch=steps_per_epoch, **options)


ARMS = (
    Arm("SGD", sgd),
    Arm("SGD, tuned", sgd, tuned=True),
    Arm("CT-AGD", ct_sgd),
    Arm("CT-AGD, tuned", ct_sgd, tuned=True),
    Arm("CT-AGD, no correction", functools.partial(ct_sgd, correction_rate=0.0)),
    # The narrowest bounds of the paper's ablation, and no guess without evidence.
    Arm(
        "CT-AGD, cautious",
        functools.partial(
            ct_sgd, curvature_min=0.1, curvature_max=10.0, unobserved="skip"
        ),
        curvature_min=0.1,
    ),
    # Both bounds at λ_min: the same schedule, whatever the curvature.
    Arm(
        "γ = λ_min, no curvature",
        functools.partial(
            ct_sgd, curvature_min=1e-2, curvature_max=1e-2, correction_rate=0.0
        ),
    ),
)


def load_data() -> dict[str, Split]:
    """Digits in three parts: to train, to choose a learning rate, and to report."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = jnp.asarray(digits.data[order] / 16.0, jnp.float32)
    labels = jnp.asarray(digits.target[order], jnp.int32)
    bounds = {"train": (0, 1197), "validation": (1197, 1497), "test": (1497, 1797)}
    return {k: Split(images[a:b], labels[a:b]) for k, (a, b) in bounds.items()}


class MLP(nnx.Module):
    """Two hidden layers of 64."""

    def __init__(self, rngs: nnx.Rngs):
        self.hidden1 = nnx.Linear(64, 64, rngs=rngs)
        self.hidden2 = nnx.Linear(64, 64, rngs=rngs)
        self.out = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Class scores of a batch of images."""
        x = nnx.relu(self.hidden1(x))
        return self.out(nnx.relu(self.hidden2(x)))


def make_trainer(opt: optax.GradientTransformation, steps_per_epoch: int):
    """Functions that start a run, train one epoch, and measure accuracy."""
    graph, _ = nnx.split(MLP(nnx.Rngs(0)), nnx.Param)

    def loss(params, batch: Split):
        scores = nnx.merge(graph, params)(batch.images)
        return optax.softmax_cross_entropy_with_integer_labels(
            scores, batch.labels
        ).mean()

    def step(carry, batch: Split):
        params, state = carry
        value, grads = jax.value_and_grad(loss)(params, batch)
        updates, state = opt.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), value

    @jax.jit
    def epoch(params, state, key, data: Split):
        order = jax.random.permutation(key, data.labels.size)
        order = order[: steps_per_epoch * BATCH].reshape(steps_per_epoch, BATCH)
        batches = Split(data.images[order], data.labels[order])
        (params, state), losses = jax.lax.scan(step, (params, state), batches)
        return params, state, losses.mean()

    @jax.jit
    def accuracy(params, data: Split):
        scores = nnx.merge(graph, params)(data.images)
        return jnp.mean(scores.argmax(-1) == data.labels)

    return opt.init, epoch, accuracy


def train(
    arm: Arm, trainer, seed: int, epochs: int, data: dict[str, Split], part: str
) -> dict:
    """One run: accuracy and loss after each epoch, and CT-AGD's trust figures."""
    init, epoch, accuracy = trainer
    _, params = nnx.split(MLP(nnx.Rngs(seed)), nnx.Param)
    state = init(params)
    history: dict[str, list] = {
        name: [] for name in ("accuracy", "loss", "evidence", "at_minimum")
    }
    for n in range(epochs):
        key = jax.random.fold_in(jax.random.key(seed), n)
        params, state, loss = epoch(params, state, key, data["train"])
        history["accuracy"].append(float(accuracy(params, data[part])))
        history["loss"].append(float(loss))
        if optax.tree.get(state, "gamma") is not None:
            rows = ctagd_optax.curvature_report(state, params)
            history["evidence"].append(float(np.mean([r.observed for r in rows])))
            history["at_minimum"].append(
                float(np.mean([r.gamma <= 1.001 * arm.curvature_min for r in rows]))
            )
    return history


def epochs_to(target: float, accuracies: list[float]) -> float:
    """The first epoch that reaches the target; infinity if none does."""
    return next((n for n, a in enumerate(accuracies, 1) if a >= target), float("inf"))


def compare(seeds: int, epochs: int, progress: Progress) -> dict:
    """Every arm on every seed; tuned arms first choose from the same rates."""
    data = load_data()
    steps_per_epoch = data["train"].labels.size // BATCH
    searches = sum(arm.tuned for arm in ARMS) * len(SEARCH)
    task = progress.add_task("runs", total=searches + len(ARMS) * seeds)

    def run(arm: Arm, rate: float, run_seeds: Iterable[int], part: str) -> list[dict]:
        progress.update(task, description=f"{arm.label}, learning rate {rate:g}")
        trainer = make_trainer(arm.make(rate, steps_per_epoch), steps_per_epoch)
        runs = []
        for seed in run_seeds:
            runs.append(train(arm, trainer, seed, epochs, data, part))
            progress.advance(task)
        return runs

    results = {}
    for arm in ARMS:
        rate = LEARNING_RATE
        if arm.tuned:
            scores = {}
            for candidate in SEARCH:
                [trial] = run(arm, candidate, [10_000], "validation")
                scores[candidate] = trial["accuracy"][-1]
            rate = max(scores, key=lambda r: scores[r])
        results[arm.label] = {
            "learning_rate": rate,
            "runs": run(arm, rate, range(seeds), "test"),
        }
    return {
        "epochs": epochs,
        "seeds": seeds,
        "steps_per_epoch": steps_per_epoch,
        "search": SEARCH,
        "target": TARGET,
        "arms": results,
    }


def summary(results: dict) -> list[dict]:
    """One row an arm: means over the seeds; a miss counts as infinity."""
    rows = []
    for label, arm in results["arms"].items():
        curves = [run["accuracy"] for run in arm["runs"]]
        evidence = [e for run in arm["runs"] for e in run["evidence"]]
        at_minimum = [share for run in arm["runs"] for share in run["at_minimum"]]
        rows.append(
            {
                "arm": label,
                "rate": f"{arm['learning_rate']:g}",
                "best": f"{100 * np.mean([max(c) for c in curves]):.1f} %",
                "last": f"{100 * np.mean([c[-1] for c in curves]):.1f} %",
                f"to {results['target']:.0%}": _number(
                    np.mean([epochs_to(results["target"], c) for c in curves])
                ),
                "evidence": f"{np.mean(evidence):.0%}" if evidence else "–",
                "γ at λ_min": f"{np.mean(at_minimum):.0%}" if at_minimum else "–",
            }
        )
    return rows


def _number(x: float) -> str:
    return f"{x:.1f}" if np.isfinite(x) else "∞"


def plot(results: dict, path: pathlib.Path) -> None:
    """Test accuracy by epoch, and what CT-AGD knew of the curvature."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 4.2), width_ratios=(3, 2), layout="constrained"
    )
    epochs = np.arange(1, results["epochs"] + 1)
    colors = ("#222", "#999", "#d62728", "#ff9896", "#1f77b4", "#9467bd", "#2ca02c")
    for color, (label, arm) in zip(colors, results["arms"].items(), strict=False):
        curves = 100 * np.asarray([run["accuracy"] for run in arm["runs"]])
        name = f"{label} ({arm['learning_rate']:g})"
        left.plot(epochs, curves.mean(0), color=color, label=name, lw=1.8)
        left.fill_between(
            epochs, curves.min(0), curves.max(0), color=color, alpha=0.15, lw=0
        )
    left.set(xlabel="epoch", ylabel="test accuracy in %", ylim=(0, 101))
    left.set_title("Digits, two hidden layers: mean and range over seeds")
    left.legend(fontsize=8, loc=(0.62, 0.17))
    left.grid(alpha=0.3)

    for label, color in (("CT-AGD", "#d62728"), ("CT-AGD, cautious", "#9467bd")):
        runs = results["arms"][label]["runs"]
        for name, style, meaning in (
            ("evidence", "-", "coordinates with evidence"),
            ("at_minimum", ":", "tensors with γ = λ_min"),
        ):
            share = 100 * np.mean([run[name] for run in runs], axis=0)
            right.plot(epochs, share, style, color=color, label=f"{label}: {meaning}")
    right.set(xlabel="epoch", ylabel="share in %", ylim=(-2, 103))
    right.set_title("How much of it is curvature?")
    right.legend(fontsize=8, loc="upper right", bbox_to_anchor=(1, 0.94))
    right.grid(alpha=0.3)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)
    plt.close(figure)


def main() -> None:
    """Runs the demo from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.demo",
        description="Train a small Flax network on scikit-learn's digits with SGD, "
        "CT-AGD and the controls that tell curvature from a schedule.",
    )
    parser.add_argument(
        "--epochs", type=int, default=15, help="epochs a run (%(default)s)"
    )
    parser.add_argument(
        "--seeds", type=int, default=3, help="runs an arm (%(default)s)"
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("runs/demo"),
        help="folder for results.json and curves.png (%(default)s)",
    )
    args = parser.parse_args()
    for name in ("epochs", "seeds"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(args, name)}")
    console = Console()
    with Progress(console=console) as progress:
        results = compare(args.seeds, args.epochs, progress)

    rows = summary(results)
    table = Table(title=f"Test accuracy on digits, {args.seeds} seeds")
    for i, name in enumerate(rows[0]):
        table.add_column(name, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*row.values())
    console.print(table)
    console.print(
        f"rate: the learning rate; tuned arms chose among {len(SEARCH)} on a "
        "validation split.\nto 95%: epochs until the target, ∞ if a seed missed it.\n"
        "evidence: share of coordinates whose curvature was seen at all.\n"
        "γ at λ_min: share of tensors where the clamp, not curvature, set the rate.",
        highlight=False,
    )
    write_json(args.out / "results.json", {**results, "summary": rows})
    plot(results, args.out / "curves.png")
    console.print(f"Wrote {args.out / 'results.json'} and {args.out / 'curves.png'}")


if __name__ == "__main__":
    main()
