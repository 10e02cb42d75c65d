"""The optimizers under comparison: a row is all there is to know of one.

How it is made, what it is compared with, how it is searched and drawn. Options and
their defaults are those of the function that makes it. To add an optimizer, add a row
to :data:`ROWS`; :mod:`benchmarks.specs` makes it by its name, bare or wrapped.

The paper's optimizers, CT-AGD and its controls have coupled weight decay: it is added
to the gradient. The peers from Optax have theirs as Optax defines it, decoupled.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import optax
from optax import contrib

import ctagd_optax
from benchmarks import transforms
from benchmarks.grammar import Value
from benchmarks.transforms import EvalParams, parameters
from ctagd_optax.testbed import style

_NOTHING: Mapping[str, Any] = {}


class Row(NamedTuple):
    """An arm, or a wrapper.

    Attributes:
      description: one line.
      make: makes the optimizer from its options; if it has parameters of that name, it
        gets ``steps_per_epoch`` and ``total_steps`` too, and a wrapper ``backbone``.
      options: defaults that are not those of the signature.
      role: why it is there: "backbone", "ours", "paper", "control" or "peer".
      wrapped: of an arm with a name of its own, wrapper and backbone.
      like: a function to which ``make`` passes options on; they are its options, too.
      fixed: options that cannot be given; a wrapped arm is made with these.
      backbone: the arm that it is built on.
      control: the arm with its schedule, but without curvature.
      search: options to tune, with the ends of their ranges, which are logarithmic;
        by default the learning rate.
      colour: of its lines, on a light and on a dark page.
      eval_params: the weights to evaluate.
      calls_loss: whether it calls ``value_fn``, ``obj_fn`` or ``grad_fn``.
    """

    description: str
    make: Callable[..., optax.GradientTransformation]
    options: Mapping[str, Value] = _NOTHING
    role: str = "peer"
    wrapped: tuple[str, str] | None = None
    like: Callable[..., Any] | None = None
    fixed: Mapping[str, Value] = _NOTHING
    backbone: str | None = None
    control: str | None = None
    search: Mapping[str, tuple[float, float]] | None = None
    colour: tuple[str, str] | None = None
    eval_params: EvalParams = parameters
    calls_loss: bool = False

    def defaults(self) -> dict[str, Value]:
        """The options and their defaults."""
        if self.wrapped is None:
            passed = _signature(self.like) if self.like else {}
            every = passed | _signature(self.make) | self.options
        else:
            outer, inner = (find(name).defaults() for name in self.wrapped)
            every = inner | outer | self.options
        return {key: value for key, value in every.items() if key not in self.fixed}

    def space(self) -> dict[str, tuple[float, float]]:
        """The options to tune, with the ends of their ranges."""
        if self.search is not None:
            return dict(self.search)
        if self.wrapped is not None:
            outer, inner = (find(name).space() for name in self.wrapped)
            every = inner | outer
            return {key: ends for key, ends in every.items() if key not in self.fixed}
        rate = self.defaults().get("learning_rate")
        return {"learning_rate": (rate / 10, rate * 100)} if rate else {}


def find(name: str) -> Row:
    """The row of an arm or a wrapper; an unknown name is answered with close ones."""
    found = ROWS.get(name) or WRAPPERS.get(name)
    if found is None:
        known = [*ROWS, *WRAPPERS]
        close = difflib.get_close_matches(name, known)
        advice = f"did you mean {' or '.join(close)}? " if close else ""
        raise ValueError(
            f"unknown optimizer {name!r}; {advice}there are {', '.join(known)}"
        )
    return found


def colour(kind: str) -> tuple[str, str] | None:
    """The colours of an arm by its kind, or of its wrapper; None if it has none."""
    row = ROWS.get(kind) or WRAPPERS.get(kind.partition("(")[0])
    if row and row.wrapped and not (row.options or row.fixed):
        row = WRAPPERS[row.wrapped[0]]
    return row.colour if row else None


def _signature(function: Callable[..., Any]) -> dict[str, Value]:
    """The parameters of a function that have plain defaults, and a pair of betas."""
    found: dict[str, Value] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "betas":
            found["b1"], found["b2"] = parameter.default
        elif isinstance(parameter.default, Value):
            found[name] = parameter.default
    return found


def _sgd(learning_rate=1e-2, momentum=0.85, weight_decay=5e-4):
    return optax.chain(
        optax.add_decayed_weights(weight_decay),
        optax.sgd(learning_rate, momentum=momentum),
    )


def _adam(learning_rate=1e-3, b1=0.9, b2=0.999, weight_decay=5e-4):
    return optax.chain(
        optax.add_decayed_weights(weight_decay), optax.adam(learning_rate, b1=b1, b2=b2)
    )


def _lbfgs(learning_rate=1.0, memory_size=10, iterations=20, weight_decay=5e-4):
    # With Optax's line search, as in the testbed: the loss of one batch is a fixed
    # function, and full steps without a search can diverge where it is not convex.
    lbfgs = optax.lbfgs(learning_rate, memory_size=memory_size)
    repeated = transforms.repeated(lbfgs, iterations)
    return transforms.decayed_loss(repeated, weight_decay)


def _ct(
    backbone,
    steps_per_epoch,
    estimator="secant",
    every=1,
    pairing="equation",
    weighting="linear",
    noise_std=0.0,
    noise_seed=0,
    **options,
):
    known = ("secant", "same_batch", "hutchinson")
    if estimator not in known:
        raise ValueError(
            f"estimator must be one of {', '.join(known)}; got {estimator!r}"
        )
    secant = pairing, weighting, noise_std
    if (every != 1) if estimator == "secant" else (secant != ("equation", "linear", 0)):
        raise ValueError(
            "every is an option of same_batch and hutchinson; pairing, weighting and "
            f"noise_std are of secant; got estimator={estimator!r}"
        )
    if estimator == "secant":
        made = ctagd_optax.secant(pairing, weighting, noise_std, noise_seed)
    else:
        made = getattr(ctagd_optax, estimator)(every, noise_seed)
    return ctagd_optax.ct_agd(backbone, steps_per_epoch, estimator=made, **options)


def _schedule_control(
    steps_per_epoch,
    learning_rate=1e-2,
    momentum=0.85,
    weight_decay=5e-4,
    curvature_min=0.1,
    annealing="linear",
):
    return ctagd_optax.ct_agd(
        _sgd(learning_rate, momentum, weight_decay),
        steps_per_epoch,
        curvature_min=curvature_min,
        curvature_max=curvature_min,
        annealing=annealing,
        correction_rate=0.0,
        correction_gradient="last",
    )


def _sawtooth(backbone: Callable[..., optax.GradientTransformation]) -> Callable:
    def make(steps_per_epoch, learning_rate, peak, **options):
        def schedule(count):  # in t / T, as the paper anneals γ
            fraction = (count % steps_per_epoch) / steps_per_epoch
            return learning_rate * (peak - (peak - 1) * fraction)

        return backbone(learning_rate=schedule, **options)

    return make


def _nadamw(total_steps, learning_rate=1e-3, warmup=0.02, **options):
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, learning_rate, max(round(warmup * total_steps), 1), total_steps
    )
    return optax.nadamw(schedule, **options)


def _muon(learning_rate, weight_decay=5e-4, **options):
    def axes(param):
        # A convolution's kernel is the matrix from its window to its outputs.
        if param.ndim == 4:
            return contrib.MuonDimensionNumbers((0, 1, 2), 3)
        return contrib.MuonDimensionNumbers() if param.ndim == 2 else None

    return contrib.muon(
        learning_rate,
        weight_decay=weight_decay,
        adam_weight_decay=weight_decay,
        muon_weight_dimension_numbers=lambda params: jax.tree.map(axes, params),
        **options,
    )


def _wrapped(description: str, wrapper: str, backbone: str, **fields: Any) -> Row:
    """A wrapper around a backbone, with a name of its own."""
    make = WRAPPERS[wrapper].make
    return Row(description, make, wrapped=(wrapper, backbone), **fields)


_FLOAT32: Mapping[str, Value] = {"accumulator_dtype": "float32"}
_DECAY: Mapping[str, Value] = {"weight_decay": 5e-4}  # the paper's, for all
_APPENDIX: Mapping[str, Value] = {"curvature_min": 1e-2, "curvature_max": 1e2}

# What can be around any optimizer, by name and brackets.
WRAPPERS: dict[str, Row] = {
    "robust": Row(
        "Our robust method around any optimizer",
        ctagd_optax.robust_ct_agd,
        _FLOAT32,
        role="ours",
        colour=style.ROBUST,
    ),
    "robust_no_loss": Row(
        "Control: our robust method around any optimizer, without the loss",
        lambda backbone, steps_per_epoch, **options: transforms.without_value(
            ctagd_optax.robust_ct_agd(backbone, steps_per_epoch, **options)
        ),
        _FLOAT32,
        role="control",
        like=ctagd_optax.robust_ct_agd,
        colour=style.ROBUST,
    ),
    "ct": Row(
        "CT-AGD around any optimizer",
        _ct,
        _FLOAT32,
        role="paper",
        like=ctagd_optax.ct_agd,
        colour=style.CT_AGD,
        search={"correction_rate": (1e-3, 0.5), "curvature_min": (1e-2, 1.0)},
    ),
    "mechanize": Row(
        "Mechanic, which scales the steps of any optimizer",
        lambda backbone, **options: contrib.mechanize(backbone, **options),
        {"weight_decay": 0.0},  # the backbone has its own
        like=contrib.mechanize,
    ),
}

ROWS: dict[str, Row] = {
    "sgd": Row(
        "SGD with momentum, as the paper sets it",
        _sgd,
        role="backbone",
        colour=style.SGD,
    ),
    "adam": Row(
        "Adam, as the paper sets it",
        _adam,
        role="backbone",
        colour=style.ADAM,
    ),
    "lbfgs": Row(
        "L-BFGS, up to 20 iterations a batch; slow on a CPU with convolutions",
        _lbfgs,
        role="paper",
        search={"learning_rate": (1e-2, 1.0)},
        calls_loss=True,
    ),
    "ct_sgd": _wrapped(
        "CT-AGD around SGD, with the clamp [0.1, 10] of the paper's ablation",
        *("ct", "sgd"),
        role="paper",
        control="schedule_control",
    ),
    "ct_adam": _wrapped(
        "CT-AGD around Adam, with the clamp [0.1, 10] of the paper's ablation",
        *("ct", "adam"),
        role="paper",
    ),
    "ct_sgd_appendix": _wrapped(
        "CT-AGD around SGD, with the clamp [0.01, 100] of the paper's appendix",
        *("ct", "sgd"),
        options=_APPENDIX,
        role="paper",
        control="schedule_control",
    ),
    "ct_adam_appendix": _wrapped(
        "CT-AGD around Adam, with the clamp [0.01, 100] of the paper's appendix",
        *("ct", "adam"),
        options=_APPENDIX,
        role="paper",
    ),
    "ct_sgd_no_correction": _wrapped(
        "Control: CT-AGD that tunes γ and never corrects",
        *("ct", "sgd"),
        # The correction's gradient is of no use then, and "last" stores nothing.
        fixed={"correction_rate": 0.0, "correction_gradient": "last"},
        role="control",
        control="schedule_control",
    ),
    "schedule_control": Row(
        "Control: CT-AGD's schedule with γ at λ_min, whatever the curvature",
        _schedule_control,
        role="control",
        backbone="sgd",
        search={"learning_rate": (1e-3, 1.0), "curvature_min": (1e-2, 1.0)},
    ),
    "sawtooth_control": Row(
        "Control: SGD whose learning rate falls from ×10 to ×1 in each epoch",
        _sawtooth(_sgd),
        {"peak": 10.0},
        colour=style.CONTROL,
        like=_sgd,
        role="control",
        backbone="sgd",
        search={"learning_rate": (1e-3, 1.0), "peak": (2.0, 50.0)},
    ),
    "sawtooth_adam_control": Row(
        "Control: Adam whose learning rate falls from ×10 to ×1 in each epoch",
        _sawtooth(_adam),
        {"peak": 10.0},
        colour=style.CONTROL,
        like=_adam,
        role="control",
        backbone="adam",
        search={"learning_rate": (1e-4, 0.1), "peak": (2.0, 50.0)},
    ),
    "robust_sgd": _wrapped(
        "Our robust method around SGD, as the paper sets it",
        *("robust", "sgd"),
        role="ours",
        control="sawtooth_control",
    ),
    "robust_adam": _wrapped(
        "Our robust method around Adam, as the paper sets it",
        *("robust", "adam"),
        role="ours",
        control="sawtooth_adam_control",
    ),
    "adamw": Row("AdamW", optax.adamw, {"learning_rate": 1e-3, **_DECAY}),
    "nadamw": Row(
        "NadamW with 2 % warm-up and a cosine over the whole run",
        _nadamw,
        _DECAY,
        like=optax.nadamw,
    ),
    "schedule_free": Row(
        "Schedule-free AdamW, evaluated at its averaged weights",
        contrib.schedule_free_adamw,
        _DECAY,
        search={"learning_rate": (1e-4, 0.1)},
        eval_params=contrib.schedule_free_eval_params,
    ),
    "schedule_free_sgd": Row(
        "Schedule-free SGD, evaluated at its averaged weights",
        contrib.schedule_free_sgd,
        _DECAY,
        search={"learning_rate": (1e-2, 10.0)},
        eval_params=contrib.schedule_free_eval_params,
    ),
    "prodigy": Row(
        "Prodigy, which finds its own learning rate",
        contrib.prodigy,
        _DECAY,
        search={"learning_rate": (0.1, 10.0)},
    ),
    "dadapt_adamw": Row(
        "D-adaptation around AdamW, which finds its own learning rate",
        contrib.dadapt_adamw,
        _DECAY,
        search={"learning_rate": (0.1, 10.0)},
    ),
    "dog": Row(
        "DoG: the learning rate from distance over gradients",
        contrib.dog,
        _DECAY,
        search={"learning_rate": (0.1, 10.0)},
    ),
    "cocob": Row(
        "COCOB, which bets coins in place of a learning rate",
        contrib.cocob,
        _DECAY,
        search={"alpha": (10.0, 1000.0)},
    ),
    "momo": Row("MoMo: steps by the loss", contrib.momo, _DECAY),
    "momo_adam": Row("MoMo-Adam: steps by the loss", contrib.momo_adam, _DECAY),
    "muon": Row(
        "Muon for matrices and convolutions, AdamW for the rest",
        _muon,
        {"learning_rate": 2e-2, "adam_learning_rate": 1e-3, **_DECAY},
        like=contrib.muon,
        fixed={"adam_weight_decay": 5e-4},
        search={"learning_rate": (1e-3, 0.1), "adam_learning_rate": (1e-4, 1e-2)},
    ),
    "sophia": Row(
        "Sophia with Hutchinson's estimate of the Hessian's diagonal",
        contrib.sophia,
        {"learning_rate": 5e-4, **_DECAY},
        search={"learning_rate": (1e-5, 1e-2)},
        calls_loss=True,
    ),
    "adan": Row(
        "Adan",
        optax.adan,
        {"learning_rate": 1e-3, **_DECAY},
        colour=style.PEER,
    ),
    "lion": Row(
        "Lion",
        optax.lion,
        {"learning_rate": 3e-4, **_DECAY},
        search={"learning_rate": (1e-5, 1e-2)},
    ),
}

# What a comparison has if nothing is asked for.
STANDARD = (
    *("sgd", "adam", "robust_sgd", "robust_adam", "ct_sgd", "ct_adam"),
    *("ct_sgd_appendix", "ct_adam_appendix", "lbfgs"),
    *("ct_sgd_no_correction", "schedule_control", "sawtooth_control"),
    *("adamw", "schedule_free", "prodigy", "muon"),
)
