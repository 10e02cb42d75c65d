"""The names of arms: ``NAME[@LEARNING_RATE][+average][:KEY=VALUE,...]``.

``WRAPPER(NAME...)`` stands for an optimizer with a method around it. This module knows
the grammar alone; what a name means is in :mod:`benchmarks.arms`.
"""

import math
import re
from typing import NamedTuple

Value = bool | int | float | str

FORM = "NAME[@LEARNING_RATE][+average][:KEY=VALUE,...]"
_SPEC = re.compile(
    r"(?P<name>\w+)(?:\((?P<inner>.*)\))?(?:@(?P<rate>[^:()]*?))?"
    r"(?P<average>\+average)?(?::(?P<options>[^()]*))?"
)


class Spec(NamedTuple):
    """A name in its parts.

    Attributes:
      name: the optimizer, or the wrapper.
      inner: what is in the brackets of a wrapper; None without brackets.
      options: keys and values as they are written; the learning rate is one of them.
      average: whether the mean of an epoch's weights is evaluated.
    """

    name: str
    inner: "Spec | None"
    options: dict[str, str]
    average: bool


def parse(text: str) -> Spec:
    """Takes a name apart.

    Args:
      text: the name.

    Returns:
      Its parts.

    Raises:
      ValueError: it is not of the form, or gives an option twice.

    Examples:
      >>> from benchmarks import grammar
      >>> grammar.parse("robust(muon@0.02):target=3").inner.options
      {'learning_rate': '0.02'}
    """
    found = _SPEC.fullmatch(text)
    if found is None:
        raise ValueError(
            f"optimizer {text!r} must be {FORM}, such as sgd@0.1+average or "
            "ct_sgd:quantile=0.5, or have a wrapper around it: robust(muon@0.02)"
        )
    name, rate = found["name"], found["rate"]
    pairs = [] if rate is None else [f"learning_rate={rate}"]
    pairs += [] if found["options"] is None else found["options"].split(",")
    options: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not (key and equals and value):
            raise ValueError(f"option {pair!r} of {name} must be KEY=VALUE")
        if key in options:
            raise ValueError(f"option {key} of {name} must be given once, got it twice")
        options[key] = value
    inner = None if found["inner"] is None else parse(found["inner"])
    return Spec(name, inner, options, found["average"] is not None)


def text(
    name: str,
    options: dict[str, Value],
    defaults: dict[str, Value],
    average: bool = False,
) -> str:
    """The shortest name: defaults left out, keys in alphabetical order.

    Args:
      name: the optimizer, or a wrapper with its brackets.
      options: all options.
      defaults: their defaults.
      average: whether the mean of an epoch's weights is evaluated.

    Returns:
      The name.

    Examples:
      >>> from benchmarks import grammar
      >>> grammar.text("sgd", {"learning_rate": 0.1}, {"learning_rate": 0.01})
      'sgd@0.1'
    """

    def shown(value: Value) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return (
            repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
        )

    changed = {k: shown(v) for k, v in sorted(options.items()) if v != defaults[k]}
    rate = changed.pop("learning_rate", None)
    pairs = ",".join(f"{key}={value}" for key, value in changed.items())
    return (
        name
        + (f"@{rate}" if rate is not None else "")
        + ("+average" if average else "")
        + (f":{pairs}" if pairs else "")
    )


def values(
    name: str, options: dict[str, str], defaults: dict[str, Value]
) -> dict[str, Value]:
    """The options that a name gives, each of its default's type.

    Args:
      name: the optimizer, for messages.
      options: keys and values as they are written.
      defaults: what may be given.

    Returns:
      The values.

    Raises:
      ValueError: a key is unknown, or a value is not of the type.
    """
    for key in options:
        if key not in defaults:
            raise ValueError(
                f"{name} has no option {key!r}; it has {', '.join(defaults)}"
            )
    return {
        key: _value(f"{key} of {name}", value, defaults[key])
        for key, value in options.items()
    }


def _value(what: str, text: str, default: Value) -> Value:
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
