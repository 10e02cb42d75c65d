"""Pages from templates: Markdown in which tables and values come from the results.

``{{table:NAME ARGUMENTS}}`` and ``{{value:NAME ARGUMENTS}}`` call a function of that
name; arguments are separated by blanks. Nothing else in a template is special. Two
braces that are left over are an error, except in code.
"""

import inspect
import re
from collections.abc import Callable, Mapping

Functions = Mapping[str, Mapping[str, Callable[..., str]]]

_CALL = re.compile(r"\{\{(table|value):([^{}]*)\}\}")
_FENCE = re.compile(r"\s*```")


def render(text: str, functions: Functions, where: str) -> str:
    """A template with all its calls replaced by what they return.

    Args:
      text: the template.
      functions: by kind, ``table`` or ``value``, and by name.
      where: the template's name, for errors.

    Returns:
      The page.

    Raises:
      ValueError: a name is unknown, arguments are not right, results are missing, or
        two braces are left over; it says in which template and line.

    Examples:
      >>> from benchmarks.pages import render
      >>> double = {"value": {"double": lambda number: str(2 * int(number))}}
      >>> render.render("Twice 21 is {{value:double 21}}.", double, "example")
      'Twice 21 is 42.'
    """
    lines, in_code = [], False
    for number, line in enumerate(text.split("\n"), 1):
        try:
            lines.append(_CALL.sub(lambda call: _made(call, functions), line))
            if _FENCE.match(line):
                in_code = not in_code
            _check(line, in_code)
        except ValueError as error:
            raise ValueError(f"{where}, line {number}: {error}") from error
    return "\n".join(lines)


def _made(call: re.Match, functions: Functions) -> str:
    kind, (name, *arguments) = call[1], call[2].split() or [""]
    known = functions[kind]
    if name not in known:
        raise ValueError(
            f"unknown {kind} {name!r}; there are {', '.join(sorted(known))}"
        )
    try:
        inspect.signature(known[name]).bind(*arguments)
    except TypeError as error:
        raise ValueError(f"{call[0]}: {error}") from error
    try:
        return known[name](*arguments)
    except KeyError as error:
        raise ValueError(f"{call[0]}: the results have no {error}") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"{call[0]}: {error}") from error


def _check(line: str, in_code: bool) -> None:
    rest = _CALL.sub("", line)
    if not in_code:
        rest = re.sub(r"`[^`]*`", "", rest)
    if re.search(r"\{\{(table|value):" if in_code else r"\{\{", rest):
        raise ValueError("{{ must be {{table:NAME ...}} or {{value:NAME ...}}")
