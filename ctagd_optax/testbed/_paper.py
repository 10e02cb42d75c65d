"""The paper's testbed numbers and claims, and what it takes to agree with them."""

import math

from ctagd_optax.testbed._result import Interval, Result

PAPER_NUMBERS: dict[str, dict[str, dict[str, Interval]]] = {
    name: {
        "drifting": {
            "final": Interval(*final),
            "steps": Interval(*steps),
            "gap": Interval(*gap),
        },
        "stationary": {
            "final": Interval(*final_stationary),
            "steps": Interval(*steps_stationary),
            "seconds": Interval(*seconds),
        },
    }
    for name, final, steps, gap, final_stationary, steps_stationary, seconds in (
        (
            "CT-AGD",
            (-4.10, 1.29),
            (117.47, 19.70),
            (2.31, 0.91),
            (-6.33, 1.61),
            (144.93, 25.16),
            (0.49, 0.08),
        ),
        (
            "CT-AGD (Adam)",
            (-4.61, 1.13),
            (137.47, 27.96),
            (1.66, 0.90),
            (-5.75, 2.15),
            (128.07, 49.40),
            (0.43, 0.16),
        ),
        (
            "SGD",
            (-3.93, 1.10),
            (138.73, 24.54),
            (2.81, 0.55),
            (-6.52, 1.56),
            (150.73, 15.43),
            (0.52, 0.06),
        ),
        (
            "Adam",
            (-4.31, 1.30),
            (156.53, 24.35),
            (2.08, 0.76),
            (-5.49, 2.33),
            (152.07, 33.91),
            (0.54, 0.12),
        ),
        (
            "L-BFGS",
            (-3.87, 1.41),
            (278.93, 189.92),
            (2.15, 0.97),
            (-5.19, 2.48),
            (51.07, 0.13),
            (0.33, 0.14),
        ),
    )
}
PAPER_FAILURES = {("L-BFGS", "drifting"): 3}
PAPER_RUNS = 15

# What the paper says of its table, as "the first takes fewer steps than the second".
PAPER_CLAIMS = (
    ("CT-AGD", "SGD", "drifting"),
    ("CT-AGD", "SGD", "stationary"),
    ("CT-AGD (Adam)", "Adam", "drifting"),
    ("CT-AGD (Adam)", "Adam", "stationary"),
    ("SGD", "L-BFGS", "drifting"),
    ("L-BFGS", "SGD", "stationary"),
)


def agree(ours: Interval, paper: Interval) -> bool:
    """Whether two means differ by no more than the 95 % interval of a difference.

    That interval has the half-width √(a² + b²) for half-widths a and b. The paper does
    not say what its ± is; it is taken for a 95 % interval.

    Examples:
      >>> from ctagd_optax.testbed import Interval
      >>> from ctagd_optax.testbed._paper import agree
      >>> agree(Interval(1.0, 3.0), Interval(5.0, 4.0))
      True
      >>> agree(Interval(1.0, 3.0), Interval(6.1, 4.0))
      False
    """
    half = math.hypot(ours.half, paper.half)
    return bool(abs(ours.mean - paper.mean) <= half)  # False where ours is undefined


def verdict(first: Result, second: Result) -> str:
    """Tests "first takes fewer steps" on the landscapes where both converged."""
    both = first.converged & second.converged
    failed = (
        f"{int((~first.converged).sum())} and {int((~second.converged).sum())} failed"
    )
    n = int(both.sum())
    if n < 2:
        return f"cannot be tested, both converged on {n} landscapes ({failed})"
    difference = Interval.of(first.steps[both] - second.steps[both])
    if difference.mean + difference.half < 0:
        word = "holds"
    elif difference.mean - difference.half > 0:
        word = "the opposite holds"
    else:
        word = "not shown"
    return (
        f"{word}, ours {difference.mean:+.0f} ± {difference.half:.0f} on {n} "
        f"landscapes ({failed})"
    )
