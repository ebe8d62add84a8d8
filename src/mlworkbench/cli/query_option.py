"""``--query``: JMESPath expressions, in a separate module because few commands need the import."""

from __future__ import annotations

import jmespath
from jmespath.exceptions import ArityError, JMESPathError, ParseError

from ..errors import UsageError

_HINT = 'use a JMESPath expression, such as "[?loss].run_id" or "sort_by([?loss], &loss)[0]"; see https://jmespath.org'


def search(expression: str, data: object) -> object:
    """Return the data that the expression selects. ``UsageError`` includes the error position."""
    try:
        result: object = jmespath.search(expression, data)
    except JMESPathError as error:
        raise UsageError(f"--query {expression!r}: {_reason(error, expression)}", _HINT) from error
    except TypeError as error:
        raise UsageError(f"--query {expression!r} compares values of different types: {error}", _HINT) from error
    except RecursionError as error:
        raise UsageError("--query is nested too deeply", _HINT) from error
    return result


def _reason(error: JMESPathError, expression: str) -> str:
    # ArityError is a ParseError without a position.
    if isinstance(error, ArityError) or not isinstance(error, ParseError):
        return str(error)
    position = error.lex_position
    if position >= len(expression):
        return f"incomplete expression after position {len(expression)}"
    return f"syntax error at position {position + 1}, near {expression[position : position + 20]!r}"
