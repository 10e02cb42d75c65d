"""The optimizers under comparison, by name.

A name is ``NAME[@LEARNING_RATE][+average][:KEY=VALUE,...]``, for example ``sgd``,
``sgd@0.1+average`` or ``ct_sgd:quantile=0.5,unobserved=skip``. :func:`arm` makes an
:class:`Arm` of it, :func:`names` and :func:`descriptions` list what there is.

The paper's optimizers, CT-AGD and its controls have coupled weight decay: it is added
to the gradient. The peers from Optax have theirs as Optax defines it, decoupled.
"""

import difflib
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
import optax.contrib

import ctagd_optax

Value = bool | int | float | str
EvalParams = Callable[[optax.OptState, optax.Params], optax.Params]


class Arm(NamedTuple):
    """An optimizer under comparison.

    Attributes:
      name: the canonical name: ``arm(name)`` gives this arm again, and all spellings of
        the same options have the same one.
      make: makes the optimizer from the steps in an epoch. Call its update as
        ``update(grads, state, params, value=loss, grad=grads, value_fn=f, obj_fn=f)``,
        where ``f`` is the loss on the batch as a function of the parameters; what an
        optimizer has no use for it ignores.
      eval_params: the weights to evaluate, from the optimizer's state and the
        parameters.
      options: every option in effect, as plain JSON values.
      calls_loss: whether it calls ``value_fn`` or ``obj_fn``.
    """

    name: str
    make: Callable[[int], optax.GradientTransformationExtraArgs]
    eval_params: EvalParams
    options: dict[str, Value]
    calls_loss: bool


def arm(spec: str) -> Arm:
    """Makes the arm that a name stands for.

    Args:
      spec: ``NAME[@LEARNING_RATE][+average][:KEY=VALUE,...]``. ``@0.1`` is short for
        ``learning_rate=0.1``; ``+average`` evaluates the mean of the epoch's weights,
        see :func:`averaged`.

    Returns:
      The :class:`Arm`.

    Raises:
      ValueError: the spec is not of this form, or has a name, a key or a value that
        is not known; the message says what would be right.

    Examples:
      >>> from benchmarks import optimizers
      >>> optimizers.arm("ct_sgd:unobserved=skip,quantile=5e-1,eps=0.001").name
      'ct_sgd:quantile=0.5,unobserved=skip'
      >>> optimizers.arm("sgd:learning_rate=.1").name
      'sgd@0.1'
    """
    parts = _SPEC.fullmatch(spec)
    if parts is None:
        raise ValueError(
            f"optimizer {spec!r} must be NAME[@LEARNING_RATE][+average]"
            "[:KEY=VALUE,...], such as sgd@0.1+average or ct_sgd:quantile=0.5"
        )
    name = parts["name"]
    if name not in _KINDS:
        close = difflib.get_close_matches(name, _KINDS)
        advice = f"did you mean {' or '.join(close)}? " if close else ""
        raise ValueError(
            f"unknown optimizer {name!r}; {advice}there are {', '.join(_KINDS)}"
        )
    kind = _KINDS[name]
    given = _parse_options(name, parts["rate"], parts["options"])
    options = kind.defaults | given
    average = parts["average"] is not None

    def make(steps_per_epoch: int) -> optax.GradientTransformationExtraArgs:
        opt = kind.make(steps_per_epoch, **options)
        if average:
            return averaged(opt, steps_per_epoch, kind.eval_params)
        return optax.with_extra_args_support(opt)

    try:
        make(1)
    except ValueError as error:
        raise ValueError(f"optimizer {spec!r}: {error}") from error
    return Arm(
        name=_canonical(name, options, average),
        make=make,
        eval_params=_average if average else kind.eval_params,
        options={**options, "average": average},
        calls_loss=name in ("lbfgs", "sophia"),
    )


def at_rate(spec: str, learning_rate: float) -> str:
    """The name of an arm with another learning rate.

    Args:
      spec: the arm, without a learning rate in its name.
      learning_rate: the learning rate.

    Returns:
      The name of the arm.

    Examples:
      >>> from benchmarks import optimizers
      >>> optimizers.at_rate("ct_sgd:quantile=0.5", 0.1)
      'ct_sgd@0.1:quantile=0.5'
    """
    name, colon, options = spec.partition(":")
    return arm(f"{name}@{learning_rate:g}{colon}{options}").name


def names() -> tuple[str, ...]:
    """The names that :func:`arm` knows."""
    return tuple(_KINDS)


def descriptions() -> dict[str, str]:
    """One line on each name."""
    return {name: kind.description for name, kind in _KINDS.items()}


class AveragedState(NamedTuple):
    """State of :func:`averaged`.

    Attributes:
      steps: steps of the epoch that are in the average.
      average: their mean; the initial weights before the first step.
      inner_state: state of the wrapped optimizer.
    """

    steps: jax.Array
    average: optax.Params
    inner_state: optax.OptState


def averaged(
    inner: optax.GradientTransformation,
    steps_per_epoch: int,
    eval_params: EvalParams | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""Keeps the mean of the weights since the epoch began; steps are not changed.

    .. math::

        \bar\theta_1 = \theta_1, \qquad
        \bar\theta_n = \bar\theta_{n-1} + (\theta_n - \bar\theta_{n-1}) / n,
        \qquad n = 1..T,

    where :math:`\theta_n` are the weights after the epoch's n-th step.

    Args:
      inner: the optimizer that takes the steps.
      steps_per_epoch: :math:`T`; the step after it starts a new mean.
      eval_params: the weights to average, from the inner state and the parameters; None
        is the parameters themselves.

    Returns:
      The wrapped optimizer; the mean is ``state.average``.
    """
    inner = optax.with_extra_args_support(inner)
    weights = eval_params or _parameters

    def init(params: optax.Params) -> AveragedState:
        # A copy, so that parameters and state can be donated together.
        return AveragedState(
            steps=jnp.zeros((), jnp.int32),
            average=jax.tree.map(jnp.copy, params),
            inner_state=inner.init(params),
        )

    def update(updates, state, params=None, **extra_args):
        if params is None:
            raise ValueError("params must be given: call update(grads, state, params)")
        updates, inner_state = inner.update(
            updates, state.inner_state, params, **extra_args
        )
        current = weights(inner_state, optax.apply_updates(params, updates))
        steps = jnp.where(state.steps >= steps_per_epoch, 0, state.steps) + 1
        average = jax.tree.map(
            lambda mean, x: jnp.where(
                steps == 1, x, mean + (x - mean) / steps.astype(x.dtype)
            ),
            state.average,
            current,
        )
        return updates, AveragedState(steps, average, inner_state)

    return optax.GradientTransformationExtraArgs(init, update)


def repeated(
    inner: optax.GradientTransformation,
    iterations: int,
    gradient_tolerance: float = 1e-7,
    change_tolerance: float = 1e-9,
) -> optax.GradientTransformationExtraArgs:
    """Makes one step of several iterations on the same batch.

    ``update`` needs ``value`` and ``value_fn``, and returns the whole displacement. The
    inner state goes on from batch to batch. The tolerances are PyTorch's.

    XLA compiles convolutions inside of loops to slow code on a CPU, so this is for
    small networks there.

    Args:
      inner: the optimizer to iterate.
      iterations: the most iterations in a step.
      gradient_tolerance: a step ends when no entry of the gradient is larger.
      change_tolerance: a step ends when an iteration changes no weight by more.

    Returns:
      The wrapped optimizer.
    """
    if iterations < 1:
        raise ValueError(f"iterations must be at least 1, got {iterations}")
    inner = optax.with_extra_args_support(inner)

    def update(
        updates,
        state,
        params=None,
        *,
        value: Any = None,
        value_fn: Any = None,
        **extra_args,
    ):
        del extra_args
        if value is None or value_fn is None:
            raise ValueError(
                "value and value_fn must be given: call update(grads, state, params, "
                "value=loss, value_fn=f)"
            )
        evaluate = _evaluation(value_fn, state)

        def unfinished(carry):
            i, _, _, _, grad, change = carry
            return (
                (i < iterations)
                & (_largest(grad) > gradient_tolerance)
                & (change > change_tolerance)
            )

        def iterate(carry):
            i, point, state, value, grad, _ = carry
            step, state = inner.update(
                grad, state, point, value=value, grad=grad, value_fn=value_fn
            )
            point = optax.apply_updates(point, step)
            return i + 1, point, state, *evaluate(point, state), _largest(step)

        far = jnp.full_like(_largest(updates), jnp.inf)
        first = jnp.zeros((), jnp.int32), params, state, value, updates, far
        _, end, state, *_ = jax.lax.while_loop(unfinished, iterate, first)
        return optax.tree.sub(end, params), state

    return optax.GradientTransformationExtraArgs(inner.init, update)


def _largest(tree: Any) -> jax.Array:
    return optax.tree.norm(tree, ord=jnp.inf)


def _evaluation(value_fn: Callable, state: optax.OptState) -> Callable:
    """Value and gradient at a point, from a line search's state where it has them."""
    if optax.tree.get(state, "grad") is None:
        return lambda point, _: jax.value_and_grad(value_fn)(point)
    from_state = optax.value_and_grad_from_state(value_fn)
    return lambda point, state: from_state(point, state=state)


def _decayed_loss(
    inner: optax.GradientTransformationExtraArgs, weight_decay: float
) -> optax.GradientTransformationExtraArgs:
    """Adds weight decay to gradient and value alike, as line searches compare them."""

    def penalty(params):
        return 0.5 * weight_decay * optax.tree.norm(params, squared=True)

    def update(
        updates,
        state,
        params=None,
        *,
        value: Any = None,
        value_fn: Any = None,
        **extra_args,
    ):
        if value is not None:
            value = value + penalty(params)
        extra_args["grad"] = grads = optax.tree.add_scale(updates, weight_decay, params)
        if value_fn is not None:
            extra_args["value_fn"] = lambda x: value_fn(x) + penalty(x)
        return inner.update(grads, state, params, value=value, **extra_args)

    return optax.GradientTransformationExtraArgs(inner.init, update)


class _Kind(NamedTuple):
    """How to make one kind of optimizer: ``make(steps_per_epoch, **options)``."""

    description: str
    make: Callable[..., optax.GradientTransformation]
    defaults: dict[str, Value]
    eval_params: EvalParams


def _parameters(state: optax.OptState, params: optax.Params) -> optax.Params:
    del state
    return params


def _average(state: Any, params: optax.Params) -> optax.Params:
    del params
    return state.average


def _sgd(steps_per_epoch, *, learning_rate, momentum, weight_decay):
    del steps_per_epoch
    return optax.chain(
        optax.add_decayed_weights(weight_decay),
        optax.sgd(learning_rate, momentum=momentum),
    )


def _adam(steps_per_epoch, *, learning_rate, b1, b2, weight_decay):
    del steps_per_epoch
    return optax.chain(
        optax.add_decayed_weights(weight_decay), optax.adam(learning_rate, b1=b1, b2=b2)
    )


def _lbfgs(steps_per_epoch, *, learning_rate, memory_size, iterations, weight_decay):
    del steps_per_epoch
    # With Optax's line search, as in the testbed: the loss of one batch is a fixed
    # function, and full steps without a search can diverge where it is not convex.
    lbfgs = optax.lbfgs(learning_rate, memory_size=memory_size)
    return _decayed_loss(repeated(lbfgs, iterations), weight_decay)


def _curvature_tuned(preset: Callable[..., optax.GradientTransformation]) -> Callable:
    def make(
        steps_per_epoch, *, pairing, weighting, noise_std, noise_seed, **preset_options
    ):
        return preset(
            steps_per_epoch=steps_per_epoch,
            estimator=ctagd_optax.secant(pairing, weighting, noise_std, noise_seed),
            **preset_options,
        )

    return make


def _without_correction(steps_per_epoch, **options):
    make = _curvature_tuned(ctagd_optax.ct_sgd)
    # The correction's gradient is of no use then, and "last" stores nothing.
    return make(
        steps_per_epoch, correction_rate=0.0, correction_gradient="last", **options
    )


def _schedule_control(steps_per_epoch, *, curvature_min, **options):
    return ctagd_optax.ct_sgd(
        steps_per_epoch=steps_per_epoch,
        curvature_min=curvature_min,
        curvature_max=curvature_min,
        correction_rate=0.0,
        correction_gradient="last",
        **options,
    )


def _sawtooth(backbone: Callable[..., optax.GradientTransformation]) -> Callable:
    def make(steps_per_epoch, *, learning_rate, peak, **options):
        def schedule(count):  # in t / T, as the paper anneals γ
            fraction = (count % steps_per_epoch) / steps_per_epoch
            return learning_rate * (peak - (peak - 1) * fraction)

        return backbone(steps_per_epoch, learning_rate=schedule, **options)

    return make


def _robust(
    backbone: Callable[..., optax.GradientTransformation], names: Sequence[str]
) -> Callable:
    def make(steps_per_epoch, **options):
        settings = {name: options.pop(name) for name in names}
        return ctagd_optax.robust_ct_agd(
            backbone(steps_per_epoch, **settings), steps_per_epoch, **options
        )

    return make


def _peer(function: Callable[..., optax.GradientTransformation]) -> Callable:
    def make(steps_per_epoch, **options):
        del steps_per_epoch
        return function(**options)

    return make


def _prodigy(steps_per_epoch, *, b1, b2, **options):
    del steps_per_epoch
    return optax.contrib.prodigy(betas=(b1, b2), **options)


def _muon(steps_per_epoch, *, weight_decay, **options):
    del steps_per_epoch

    def axes(param):
        # A convolution's kernel is the matrix from its window to its outputs.
        if param.ndim == 4:
            return optax.contrib.MuonDimensionNumbers((0, 1, 2), 3)
        return optax.contrib.MuonDimensionNumbers() if param.ndim == 2 else None

    return optax.contrib.muon(
        weight_decay=weight_decay,
        adam_weight_decay=weight_decay,
        muon_weight_dimension_numbers=lambda params: jax.tree.map(axes, params),
        **options,
    )


_SGD: dict[str, Value] = {"learning_rate": 1e-2, "momentum": 0.85, "weight_decay": 5e-4}
_ADAM: dict[str, Value] = {
    "learning_rate": 1e-3,
    "b1": 0.9,
    "b2": 0.999,
    "weight_decay": 5e-4,
}
_CURVATURE: dict[str, Value] = {
    "curvature_min": 0.1,
    "curvature_max": 10.0,
    "quantile": 0.1,
    "eps": 1e-3,
    "annealing": "linear",
    "unobserved": "clamp",
    "pairing": "equation",
    "weighting": "linear",
    "noise_std": 0.0,
    "noise_seed": 0,
    "accumulator_dtype": "float32",
}
_CORRECTION: dict[str, Value] = {
    "correction_rate": 0.5,
    "correction_gradient": "average",
}

_SAWTOOTH: dict[str, Value] = {"peak": 10.0}
_ROBUST: dict[str, Value] = {
    "target": 2.0,
    "confidence": 1.0,
    "multiplier_min": 0.1,
    "multiplier_max": 20.0,
    "pooling": "all",
    "accumulator_dtype": "float32",
}
_APPENDIX: dict[str, Value] = {"curvature_min": 1e-2, "curvature_max": 1e2}

_KINDS: dict[str, _Kind] = {
    "sgd": _Kind("SGD with momentum, as the paper sets it", _sgd, _SGD, _parameters),
    "adam": _Kind("Adam, as the paper sets it", _adam, _ADAM, _parameters),
    "lbfgs": _Kind(
        "L-BFGS, up to 20 iterations a batch; slow on a CPU with convolutions",
        _lbfgs,
        {
            "learning_rate": 1.0,
            "memory_size": 10,
            "iterations": 20,
            "weight_decay": 5e-4,
        },
        _parameters,
    ),
    "ct_sgd": _Kind(
        "CT-AGD around SGD, with the clamp [0.1, 10] of the paper's ablation",
        _curvature_tuned(ctagd_optax.ct_sgd),
        _SGD | _CORRECTION | _CURVATURE,
        _parameters,
    ),
    "ct_adam": _Kind(
        "CT-AGD around Adam, with the clamp [0.1, 10] of the paper's ablation",
        _curvature_tuned(ctagd_optax.ct_adam),
        _ADAM | _CORRECTION | _CURVATURE,
        _parameters,
    ),
    "ct_sgd_appendix": _Kind(
        "CT-AGD around SGD, with the clamp [0.01, 100] of the paper's appendix",
        _curvature_tuned(ctagd_optax.ct_sgd),
        _SGD | _CORRECTION | _CURVATURE | _APPENDIX,
        _parameters,
    ),
    "ct_adam_appendix": _Kind(
        "CT-AGD around Adam, with the clamp [0.01, 100] of the paper's appendix",
        _curvature_tuned(ctagd_optax.ct_adam),
        _ADAM | _CORRECTION | _CURVATURE | _APPENDIX,
        _parameters,
    ),
    "ct_sgd_no_correction": _Kind(
        "Control: CT-AGD that tunes γ and never corrects",
        _without_correction,
        _SGD | _CURVATURE,
        _parameters,
    ),
    "schedule_control": _Kind(
        "Control: CT-AGD's schedule with γ at λ_min, whatever the curvature",
        _schedule_control,
        _SGD | {"curvature_min": 0.1, "annealing": "linear"},
        _parameters,
    ),
    "sawtooth_control": _Kind(
        "Control: SGD whose learning rate falls from ×10 to ×1 in each epoch",
        _sawtooth(_sgd),
        _SGD | _SAWTOOTH,
        _parameters,
    ),
    "sawtooth_adam_control": _Kind(
        "Control: Adam whose learning rate falls from ×10 to ×1 in each epoch",
        _sawtooth(_adam),
        _ADAM | _SAWTOOTH,
        _parameters,
    ),
    "robust_sgd": _Kind(
        "Our robust method around SGD, as the paper sets it",
        _robust(_sgd, tuple(_SGD)),
        _SGD | _ROBUST,
        _parameters,
    ),
    "robust_adam": _Kind(
        "Our robust method around Adam, as the paper sets it",
        _robust(_adam, tuple(_ADAM)),
        _ADAM | _ROBUST,
        _parameters,
    ),
    "adamw": _Kind("AdamW", _peer(optax.adamw), _ADAM, _parameters),
    "schedule_free": _Kind(
        "Schedule-free AdamW, evaluated at its averaged weights",
        _peer(optax.contrib.schedule_free_adamw),
        _ADAM | {"learning_rate": 2.5e-3},
        optax.contrib.schedule_free_eval_params,
    ),
    "prodigy": _Kind(
        "Prodigy, which finds its own learning rate",
        _prodigy,
        _ADAM | {"learning_rate": 1.0, "safeguard_warmup": False},
        _parameters,
    ),
    "muon": _Kind(
        "Muon for matrices and convolutions, AdamW for the rest",
        _muon,
        {
            "learning_rate": 2e-2,
            "beta": 0.95,
            "nesterov": True,
            "adam_learning_rate": 1e-3,
            "adam_b1": 0.9,
            "adam_b2": 0.999,
            "weight_decay": 5e-4,
        },
        _parameters,
    ),
    "sophia": _Kind(
        "Sophia with Hutchinson's estimate of the Hessian's diagonal",
        _peer(optax.contrib.sophia),
        {
            "learning_rate": 5e-4,
            "b1": 0.965,
            "b2": 0.99,
            "gamma": 0.01,
            "clip_threshold": 1.0,
            "update_interval": 10,
            "weight_decay": 5e-4,
        },
        _parameters,
    ),
    "adan": _Kind(
        "Adan",
        _peer(optax.adan),
        {
            "learning_rate": 1e-3,
            "b1": 0.98,
            "b2": 0.92,
            "b3": 0.99,
            "weight_decay": 5e-4,
        },
        _parameters,
    ),
    "lion": _Kind(
        "Lion",
        _peer(optax.lion),
        {"learning_rate": 3e-4, "b1": 0.9, "b2": 0.99, "weight_decay": 5e-4},
        _parameters,
    ),
}

_SPEC = re.compile(
    r"(?P<name>\w+)(?:@(?P<rate>[^:]*?))?(?P<average>\+average)?(?::(?P<options>.*))?"
)


def _parse_options(name: str, rate: str | None, text: str | None) -> dict[str, Value]:
    """The options that a spec gives; each must be one of the kind's."""
    pairs = [] if rate is None else [f"learning_rate={rate}"]
    pairs += [] if text is None else text.split(",")
    defaults, options = _KINDS[name].defaults, {}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not (key and equals and value):
            raise ValueError(f"option {pair!r} of {name} must be KEY=VALUE")
        if key not in defaults:
            raise ValueError(
                f"{name} has no option {key!r}; it has {', '.join(defaults)}"
            )
        if key in options:
            raise ValueError(f"option {key} of {name} must be given once, got it twice")
        options[key] = _parse_value(f"{key} of {name}", value, defaults[key])
    return options


def _parse_value(what: str, text: str, default: Value) -> Value:
    """A value of the default's type."""
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise ValueError(f"{what} must be true or false, got {text!r}")
        return text == "true"
    if isinstance(default, str):
        return text
    kind = "a whole number" if isinstance(default, int) else "a finite number"
    try:
        number = type(default)(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError(f"{what} must be {kind} of at least 0, got {text!r}")
    return number


def _canonical(name: str, options: dict[str, Value], average: bool) -> str:
    """The shortest spec: defaults left out, keys in alphabetical order."""

    def text(value):
        if isinstance(value, bool):
            return str(value).lower()
        return repr(value).removesuffix(".0") if isinstance(value, float) else value

    defaults = _KINDS[name].defaults
    changed = {k: text(v) for k, v in sorted(options.items()) if v != defaults[k]}
    rate = changed.pop("learning_rate", None)
    pairs = ",".join(f"{key}={value}" for key, value in changed.items())
    return (
        name
        + (f"@{rate}" if rate is not None else "")
        + ("+average" if average else "")
        + (f":{pairs}" if pairs else "")
    )
