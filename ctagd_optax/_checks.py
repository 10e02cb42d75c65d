"""Checks of arguments, with messages that say what would be right."""

import difflib
import inspect
import math
import numbers
from collections.abc import Container, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jax.typing import DTypeLike


def check_backbone(backbone: Any) -> None:
    """Checks that a backbone is an optimizer."""
    if not isinstance(backbone, optax.GradientTransformation):
        raise TypeError(
            "backbone must be an optax.GradientTransformation such as optax.sgd(1e-2), "
            f"got {type(backbone).__name__}"
        )


def check_choice(name: str, value: Any, known: tuple[str, ...]) -> None:
    """Checks that an argument is one of the known words."""
    if value not in known:
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}"
        )


def check_dtype(name: str, dtype: DTypeLike | None) -> None:
    """Checks that a dtype can hold sums: one with the range of float32, or None."""
    known = "bfloat16", "float32", "float64"
    try:
        given = None if dtype is None else jnp.dtype(dtype).name
    except TypeError:
        given = repr(dtype)
    if given is not None and given not in known:
        raise TypeError(
            f"{name} must be one of {', '.join(known)}, which have the range that sums "
            f"need; got {given}"
        )


def concrete(name: str, value: Any) -> float | None:
    """The number, or None where it is traced and cannot be checked."""
    if isinstance(value, Tracer):
        return None
    if isinstance(value, str) or np.ndim(value):
        raise TypeError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except TypeError as error:
        raise TypeError(f"{name} must be a number, got {value!r}") from error


def check_whole(name: str, value: Any) -> None:
    """Checks that a number of steps is a whole number of at least 1."""
    steps = concrete(name, value)
    flag = isinstance(value, bool) or getattr(value, "dtype", None) == jnp.bool_
    if flag or (steps is not None and not (steps >= 1 and steps.is_integer())):
        raise ValueError(f"{name} must be a whole number of at least 1, got {value}")
    dtype = getattr(value, "dtype", jnp.dtype(int))
    if jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 32:
        raise TypeError(f"{name} must be an integer, got one rounded to {dtype}")


def check_number(
    name: str,
    value: Any,
    low: float,
    high: float = math.inf,
    *,
    above: bool = False,
    infinite: bool = False,
) -> None:
    """Checks that a number is in range; a traced one is taken as it comes.

    Args:
      name: the argument.
      value: what it was given.
      low: the smallest value.
      high: the largest one.
      above: whether that itself is too small.
      infinite: whether infinity will do.
    """
    number = concrete(name, value)
    if number is None:
        return
    large = number > low if above else number >= low
    if not large or number > high or not (infinite or number < math.inf):
        finite = "" if infinite or high < math.inf else "finite and "
        bound = "above" if above else "at least"
        most = f" and at most {high:g}" if high < math.inf else ""
        raise ValueError(f"{name} must be {finite}{bound} {low:g}{most}, got {value}")


def check_rate(name: str, value: Any) -> None:
    """Checks that a learning rate is a schedule, or a number of at least 0."""
    if isinstance(value, optax.GradientTransformation):
        raise TypeError(
            f"{name} must be a number or a schedule, got an optimizer; to wrap one, "
            "use ct_agd(optimizer, steps_per_epoch)"
        )
    if not callable(value):
        check_number(name, value, 0)
    elif next(iter(parameters(value)), None) == "learning_rate":
        raise TypeError(
            f"{name} must be a number or a schedule, got the function {value!r:.60}, "
            "which makes an optimizer; to wrap one, use "
            "ct_agd(optimizer(learning_rate), steps_per_epoch)"
        )


def parameters(function: Any) -> Mapping[str, Any]:
    """The parameters of a function; none where Python does not know them."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # some have none
        return {}


def check_schedule(name: str, schedule: Any) -> None:
    """Checks that a relative learning rate is a function of the step, or a number."""
    if schedule is None or callable(schedule):
        return
    if isinstance(schedule, optax.GradientTransformation | str):
        raise TypeError(
            f"{name} must be a function of the step count with values up to 1, such "
            f"as optax.cosine_decay_schedule(1.0, 1000), got {schedule!r:.60}"
        )
    rate = concrete(name, schedule)
    if isinstance(schedule, bool) or (rate is not None and not 0 <= rate <= 1):
        raise ValueError(
            f"{name} is relative to the backbone's learning rate: at least 0, and 1 "
            f"at its peak; got {schedule}"
        )


_LOSS = {"loss", "losses", "loss_value", "loss_val", "train_loss", "batch_loss"}


def check_extra_args(
    extra_args: Mapping[str, Any], known: Container[str], *, hears_value: bool
) -> None:
    """Checks that no extra argument of update is a misspelt one of ours.

    Args:
      extra_args: the arguments.
      known: those that the backbone has by name.
      hears_value: whether the method makes something of the loss.
    """
    ends = "end", "finish", "last", "close", "done", "boundary", "new"
    for name, argument in extra_args.items():
        if name in known or callable(argument):  # value_fn, say, for a line search
            continue
        lower = name.lower()
        flag = isinstance(argument, bool)
        flag |= getattr(argument, "dtype", None) in (bool, np.bool_)
        close = difflib.get_close_matches("epoch_end", [lower], cutoff=0.75)
        if flag and (close or ("epoch" in lower and any(end in lower for end in ends))):
            raise TypeError(f"update has no argument {name!r}; did you mean epoch_end?")
        close = difflib.get_close_matches("value", [lower], cutoff=0.75)
        if hears_value and (close or lower in _LOSS) and "value" not in extra_args:
            raise TypeError(f"update has no argument {name!r}; pass it as value=loss")


def check_value(value: Any) -> None:
    """Checks that a loss is one number."""
    array = hasattr(value, "dtype")
    if array and np.size(value) != 1:
        raise ValueError(
            "value must be one number, the loss of the batch; got shape "
            f"{np.shape(value)}"
        )
    if not (array or isinstance(value, numbers.Real)):
        raise TypeError(
            f"value must be one number, the loss of the batch; got "
            f"{type(value).__name__}. With has_aux=True, jax.value_and_grad returns "
            "((loss, aux), gradients): pass the loss alone"
        )


def check_not_wrapped(backbone_state: Any, state_type: type) -> None:
    """Checks that what is wrapped is not wrapped already."""
    if optax.tree.get_all_with_path(backbone_state, state_type.__name__):
        raise ValueError(
            "backbone is wrapped already, or has a part that is: wrap it once, by "
            "ct_agd or by robust_ct_agd"
        )


def check_flag(name: str, value: Any) -> None:
    """Checks that an argument is one boolean, or None."""
    dtype = getattr(value, "dtype", None)
    if value is None or isinstance(value, bool):
        return
    if dtype != jnp.bool_ or np.shape(value):
        raise TypeError(f"{name} must be one boolean, got {value!r:.60}")


def check_params(params: optax.Params) -> None:
    """Checks that all parameters are real floating-point arrays."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        dtype = getattr(leaf, "dtype", None)
        if dtype is None:
            found, advice = type(leaf).__name__, "make arrays of them with jnp.asarray"
        elif dtype == jnp.float8_e8m0fnu:
            found, advice = dtype, "it has no sign and no 0"
        elif jnp.issubdtype(dtype, jnp.floating):
            continue
        elif jnp.issubdtype(dtype, jnp.complexfloating):
            found = dtype
            advice = "split them with optax.contrib.split_real_and_imaginary"
        else:
            found = dtype
            advice = "leave them to optax.set_to_zero with optax.partition"
        raise TypeError(
            "params must be real floating-point arrays, got "
            f"{found} at params{jax.tree_util.keystr(path)}; {advice}"
        )


def check_update(
    method: Any, state_type: type, gradients: Any, state: Any, params: Any
) -> None:
    """Checks the arguments of an update against each other.

    Args:
      method: the method that is to use them.
      state_type: what the state must be.
      gradients: the gradients.
      state: the state.
      params: the parameters.
    """
    if not isinstance(state, state_type):
        swapped = isinstance(params, state_type) or isinstance(gradients, state_type)
        advice = (
            "the arguments are swapped: call update(gradients, state, params)"
            if swapped
            else "make it by this optimizer's init, or restore a checkpoint into that; "
            "of a chain, call the chain's own update"
        )
        raise TypeError(
            f"state must be the {state_type.__name__} that init returns, got "
            f"{type(state).__name__}; {advice}"
        )
    check_params(params)
    structures = jax.tree.structure(gradients), jax.tree.structure(params)
    if structures[0] != structures[1]:
        raise ValueError(
            "gradients and params must be trees of the same structure, got "
            f"{structures[0]} and {structures[1]}"
        )
    for (path, p), g in zip(
        jax.tree_util.tree_leaves_with_path(params),
        jax.tree.leaves(gradients),
        strict=True,
    ):
        if jnp.shape(g) != jnp.shape(p):
            raise ValueError(
                "gradients and params must have the same shapes, got "
                f"{jnp.shape(g)} and {jnp.shape(p)} at {jax.tree_util.keystr(path)}"
            )
        dtype = getattr(g, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(
                "gradients must be real floating-point arrays, got "
                f"{dtype or type(g).__name__} at {jax.tree_util.keystr(path)}"
            )
    if structures[1].num_leaves != state.gamma.shape[0]:
        raise ValueError(
            "state must come from init with these params: it was made for "
            f"{state.gamma.shape[0]} tensors, params has {structures[1].num_leaves}"
        )
    evidence, memory, _ = jax.eval_shape(method.init, params)
    shapes = (
        jax.tree.map(lambda leaf: leaf.shape, (x, y))
        for x, y in ((evidence, memory), (state.evidence, state.memory))
    )
    if len({str(tree) for tree in shapes}) > 1:
        raise TypeError(
            f"state must come from this optimizer's init: {method.name} got a state "
            "of another method, or one made with other options"
        )
    kept, given = (
        [x.dtype for x in jax.tree.leaves(getattr(m, "previous_params", None))]
        for m in (state.memory, memory)
    )
    if kept != given:
        raise ValueError(
            "params must have the dtypes that the state was made for, got "
            f"{_names(given)} for {_names(kept)}; "
            + (
                "cast them, or gradients and params are swapped: call "
                "update(gradients, state, params)"
                if kept == [g.dtype for g in jax.tree.leaves(gradients)]
                else "cast them, or make a new state with init"
            )
        )


def _names(dtypes: list[Any]) -> str:
    return ", ".join(sorted({jnp.dtype(dtype).name for dtype in dtypes}))
