"""``--query``: JMESPath, as the original had it. A module of its own, because few commands are given one."""

from __future__ import annotations

import jmespath
from jmespath.exceptions import ArityError, JMESPathError, ParseError

from ..errors import UsageError

_HINT = 'use a JMESPath expression, such as "[?loss].run_id" or "sort_by([?loss], &loss)[0]"; see https://jmespath.org'


def search(expression: str, data: object) -> object:
    """The part of ``data`` that the expression asks for; ``UsageError`` names the position of a mistake."""
    try:
        found: object = jmespath.search(expression, data)
    except JMESPathError as error:
        raise UsageError(f"--query {expression!r}: {_reason(error, expression)}", _HINT) from error
    except TypeError as error:
        raise UsageError(f"--query {expression!r} compares values of different types: {error}", _HINT) from error
    except RecursionError as error:
        raise UsageError("--query is nested too deeply", _HINT) from error
    return found


def _reason(error: JMESPathError, expression: str) -> str:
    # A wrong number of arguments is a ParseError without a position.
    if isinstance(error, ArityError) or not isinstance(error, ParseError):
        return str(error)
    at = error.lex_position
    if at >= len(expression):
        return f"incomplete expression after position {len(expression)}"
    return f"syntax error at position {at + 1}, near {expression[at : at + 20]!r}"
