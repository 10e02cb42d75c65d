"""Makes arms by their names.

A name is ``NAME[@LEARNING_RATE][+average][:KEY=VALUE,...]``, for example ``sgd``,
``sgd@0.1+average`` or ``ct_sgd:quantile=0.5,unobserved=skip``. Any optimizer can be
wrapped: ``robust(muon@0.02)``, ``ct(nadamw)``,
``ct(sgd):estimator=hutchinson,every=5``. The arms are in :mod:`benchmarks.arms`.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import optax

from benchmarks import grammar, transforms
from benchmarks.arms import ROWS, WRAPPERS, Row, find
from benchmarks.grammar import Spec, Value
from benchmarks.transforms import EvalParams, parameters

_RATE = "learning_rate"
_TITLES = {"robust": "robust_ct_agd", "ct": "ct_agd"}


class Arm(NamedTuple):
    """An optimizer under comparison.

    Attributes:
      name: the canonical name: ``arm(name)`` gives this arm again, and all spellings of
        the same options have the same one.
      kind: the name without options.
      make: makes the optimizer from the steps in an epoch and in all. Call its update
        as ``update(grads, state, params, value=loss, grad=grads, value_fn=f, obj_fn=f,
        grad_fn=jax.grad(f))``, where ``f`` is the loss on the batch as a function of
        the parameters; what an optimizer has no use for it ignores.
      eval_params: the weights to evaluate, from the optimizer's state and the
        parameters.
      options: every option in effect, as plain JSON values.
      calls_loss: whether it calls ``value_fn``, ``obj_fn`` or ``grad_fn``.
      uses_budget: whether it needs to know the steps in all.
      role: why it is compared, see :class:`Row`; "control" for the paper's method with
        other options.
      search: the options to tune, with the ends of their ranges.
    """

    name: str
    kind: str
    make: Callable[..., optax.GradientTransformationExtraArgs]
    eval_params: EvalParams
    options: dict[str, Value]
    calls_loss: bool
    uses_budget: bool
    role: str
    search: dict[str, tuple[float, float]]


def arm(spec: str) -> Arm:
    """Makes the arm that a name stands for.

    Args:
      spec: ``NAME[@LEARNING_RATE][+average][:KEY=VALUE,...]``, or such a name within
        the brackets of a wrapper. ``@0.1`` is short for ``learning_rate=0.1``;
        ``+average`` evaluates the mean of the epoch's weights, see
        :func:`benchmarks.transforms.averaged`.

    Returns:
      The :class:`Arm`.

    Raises:
      ValueError: the spec is not of this form, or has a name, a key or a value that
        is not known; the message says what would be right.

    Examples:
      >>> from benchmarks.specs import arm
      >>> arm("ct_sgd:unobserved=skip,quantile=5e-1,eps=0.001").name
      'ct_sgd:quantile=0.5,unobserved=skip'
      >>> arm("robust(muon@0.02)").name
      'robust(muon)'
      >>> arm("robust(sgd@.1):target=3").name
      'robust_sgd@0.1:target=3'
    """
    parts = _short(grammar.parse(spec))
    made = _wrap(parts) if parts.inner else _build(parts)
    plain, weights = made.make, made.eval_params

    def make(
        steps_per_epoch: int, total_steps: int | None = None
    ) -> optax.GradientTransformationExtraArgs:
        if made.uses_budget and total_steps is None:
            raise ValueError(f"total_steps must be given: {made.name} needs them")
        opt = plain(steps_per_epoch, total_steps)
        if parts.average:
            return transforms.averaged(opt, steps_per_epoch, weights)
        return optax.with_extra_args_support(opt)

    try:
        make(1, 100)
    except (ValueError, TypeError) as error:
        raise ValueError(f"optimizer {spec!r}: {error}") from error
    if parts.average:
        made = made._replace(
            eval_params=lambda state, params: state.average,
            role="control" if made.role == "backbone" else made.role,
        )
    options = {**made.options, "average": parts.average}
    return made._replace(make=make, options=options)


def with_options(spec: str, **options: float) -> str:
    """The name of an arm with other options.

    Args:
      spec: the arm, which must not have them in its name.
      **options: the options; of a wrapper in brackets, those of its own, and of the
        optimizer in them.

    Returns:
      The name of the arm.

    Examples:
      >>> from benchmarks.specs import with_options
      >>> with_options("ct_sgd:quantile=0.5", learning_rate=0.1)
      'ct_sgd@0.1:quantile=0.5'
      >>> with_options("robust(muon)", learning_rate=0.1)
      'robust(muon@0.1)'
    """
    parts = _short(grammar.parse(spec))
    text = {
        key: f"{value:g}" if float(f"{value:g}") == value else repr(value)
        for key, value in options.items()
    }

    def given(part: Spec, new: dict[str, str]) -> str:
        twice = ", ".join(sorted(part.options.keys() & new))
        if twice:
            raise ValueError(f"optimizer {spec!r} must not set {twice} itself")
        pairs = ",".join(f"{k}={v}" for k, v in (part.options | new).items())
        average = "+average" if part.average else ""
        return average + (f":{pairs}" if pairs else "")

    if parts.inner is None:
        return arm(parts.name + given(parts, text)).name
    own = find(parts.name).defaults()
    outer = {key: value for key, value in text.items() if key in own}
    inner = {key: value for key, value in text.items() if key not in own}
    brackets = f"({parts.inner.name}{given(parts.inner, inner)})"
    return arm(parts.name + brackets + given(parts, outer)).name


def names() -> tuple[str, ...]:
    """The arms, by name."""
    return tuple(ROWS)


def descriptions() -> dict[str, str]:
    """One line on each arm and wrapper."""
    return {name: row.description for name, row in ROWS.items()} | {
        f"{name}(NAME)": row.description for name, row in WRAPPERS.items()
    }


def kind(name: str) -> str:
    """An arm's name without options.

    Examples:
      >>> from benchmarks.specs import kind
      >>> kind("ct_sgd@0.1+average:quantile=0.5"), kind("robust(muon@0.02)")
      ('ct_sgd', 'robust(muon)')
    """
    outer, inner = re.match(r"(\w*)(?:\((\w+))?", name).groups()
    return f"{outer}({inner})" if inner else outer


class Parts(NamedTuple):
    """What an arm is made of.

    Attributes:
      optimizer: the optimizer, without its learning rate.
      wrapper: what it is wrapped by, with options that are not the defaults; empty of
        a bare optimizer.
    """

    optimizer: str
    wrapper: str


def parts(name: str) -> Parts:
    """The optimizer and the wrapper of an arm.

    Examples:
      >>> from benchmarks.specs import parts
      >>> parts("robust_sgd@0.1:target=3")
      Parts(optimizer='sgd', wrapper='robust_ct_agd, target=3')
      >>> parts("sgd@0.1+average")
      Parts(optimizer='sgd+average', wrapper='')
      >>> parts("robust(muon@0.1)")
      Parts(optimizer='muon', wrapper='robust_ct_agd')
    """
    spec = grammar.parse(name)

    def shown(options: dict[str, str]) -> str:
        return ",".join(f"{k}={v}" for k, v in options.items() if k != _RATE)

    options = shown(spec.options)
    average = "+average" * spec.average
    if spec.inner:
        inner = shown(spec.inner.options)
        bare = spec.inner.name + (f":{inner}" if inner else "")
        words = [_TITLES.get(spec.name, spec.name), options]
        return Parts(bare + average, ", ".join(filter(None, words)))
    row = ROWS.get(spec.name)
    if row is None or row.wrapped is None:
        return Parts(spec.name + average + (f":{options}" if options else ""), "")
    wrapper, optimizer = row.wrapped
    variant = spec.name.removeprefix(f"{wrapper}_{optimizer}").replace("_", " ").strip()
    words = [_TITLES[wrapper], variant, options]
    return Parts(optimizer + average, ", ".join(filter(None, words)))


def backbone(name: str) -> str | None:
    """The arm that another is built on; a backbone's is itself, a peer has none."""
    spec = grammar.parse(name)
    if spec.inner:
        return spec.inner.name
    row = ROWS.get(spec.name)
    if row is None:
        return None
    if row.role == "backbone":
        return spec.name
    return row.wrapped[1] if row.wrapped else row.backbone


def control(name: str) -> str | None:
    """The arm with the schedule of another, but without curvature; None without one."""
    row = ROWS.get(grammar.parse(name).name)
    return row.control if row else None


def _short(spec: Spec) -> Spec:
    """A wrapper in brackets by the name of its own, if there is one."""
    if spec.inner is None:
        if spec.name in WRAPPERS:
            raise ValueError(
                f"optimizer {spec.name!r} is a wrapper: name what is in it, such as "
                f"{spec.name}(adamw)"
            )
        return spec
    if spec.name not in WRAPPERS:
        find(spec.name)
        known = ", ".join(WRAPPERS)
        raise ValueError(f"{spec.name} wraps nothing; what wraps is {known}")
    inner, outer = spec.inner, spec.options
    bare = inner.inner is None and find(inner.name).wrapped is None
    if inner.name in WRAPPERS or not bare or inner.average:
        raise ValueError(
            f"{spec.name}(...) must have a bare optimizer in its brackets, such as "
            f"{spec.name}(adamw@3e-4), and +average behind them"
        )
    if _RATE in outer:
        raise ValueError(
            f"the learning rate must be in the brackets: {spec.name}({inner.name}@"
            f"{outer[_RATE]})"
        )
    for each in (inner, spec):
        grammar.values(each.name, each.options, find(each.name).defaults())
    if spec.name == "mechanize" and find(inner.name).eval_params is not parameters:
        raise ValueError(
            f"mechanize cannot wrap {inner.name}, which is evaluated at other weights "
            "than those it trains"
        )
    for name, row in ROWS.items():
        if row.wrapped == (spec.name, inner.name) and not (row.options or row.fixed):
            return Spec(name, None, inner.options | outer, spec.average)
    return spec


def _call(
    row: Row, options: Mapping[str, Value], **given: Any
) -> optax.GradientTransformation:
    """Makes an optimizer, with what its function asks for."""
    asked = inspect.signature(row.make).parameters
    options = dict(options)
    if "betas" in asked:
        given["betas"] = options.pop("b1"), options.pop("b2")
    return row.make(**options, **{k: v for k, v in given.items() if k in asked})


def _build(spec: Spec) -> Arm:
    """The arm of a row, without the average."""
    row = find(spec.name)
    defaults = row.defaults()
    given = grammar.values(spec.name, spec.options, defaults)
    options = defaults | given

    def make(steps_per_epoch: int, total_steps: int | None):
        lengths = {"steps_per_epoch": steps_per_epoch, "total_steps": total_steps}
        if row.wrapped is None:
            return _call(row, options, **lengths)
        outer, inner = map(find, row.wrapped)
        every = options | row.fixed
        bare = _call(inner, {key: every[key] for key in inner.defaults()}, **lengths)
        own = {key: every[key] for key in outer.defaults()}
        return _call(outer, own, backbone=bare, **lengths)

    changed = any(given[key] != defaults[key] for key in given)
    return Arm(
        name=grammar.text(spec.name, options, defaults, spec.average),
        kind=spec.name,
        make=make,
        eval_params=row.eval_params,
        options=options,
        calls_loss=row.calls_loss or _estimates_with_loss(options),
        uses_budget="total_steps" in inspect.signature(row.make).parameters,
        role="control" if row.role == "paper" and changed else row.role,
        search=row.space(),
    )


def _wrap(spec: Spec) -> Arm:
    """The arm of a wrapper around an optimizer, without the average."""
    row, inner = find(spec.name), _build(spec.inner)
    defaults = row.defaults()
    options = defaults | grammar.values(spec.name, spec.options, defaults)

    def make(steps_per_epoch: int, total_steps: int | None):
        bare = inner.make(steps_per_epoch, total_steps)
        return _call(row, options, backbone=bare, steps_per_epoch=steps_per_epoch)

    def eval_params(state: Any, params: optax.Params) -> optax.Params:
        if inner.eval_params is parameters:
            return params
        return inner.eval_params(state.backbone_state, params)

    rate = inner.options.get(_RATE)
    return Arm(
        name=grammar.text(
            f"{spec.name}({inner.name})", options, defaults, spec.average
        ),
        kind=f"{spec.name}({inner.kind})",
        make=make,
        eval_params=eval_params,
        options={
            **options,
            "backbone": inner.name,
            **({} if rate is None else {_RATE: rate}),
        },
        calls_loss=inner.calls_loss or _estimates_with_loss(options),
        uses_budget=inner.uses_budget,
        role="control" if row.role == "paper" and options != defaults else row.role,
        search=inner.search | row.space(),
    )


def _estimates_with_loss(options: Mapping[str, Value]) -> bool:
    return options.get("estimator", "secant") != "secant"
