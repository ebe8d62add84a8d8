"""What can be recorded: names, values and steps as the caller gave them -> plain ones that no one changes."""

import sys
from math import isfinite

MOST_NAME_BYTES = 10 * 1024
SURELY_SHORT = MOST_NAME_BYTES // 4  # 2560, also a literal in _log: so many characters are no more bytes in UTF-8
MOST_DEPTH = 64

_SURELY_FLOAT = 1023  # bits of a whole number
_STEP_END = 1 << 63


def plain_name(name, what="a metric's name"):
    if isinstance(name, str) and not name.strip():
        raise ValueError("%s must not be empty: %r" % (what, name[:40]))
    return plain_key(name, what)


def plain_key(name, what):
    """A name that somebody else may have made, such as that of a table's column: it may be empty."""
    if not isinstance(name, str):
        raise TypeError("%s must be a str, not %s" % (what, type_name(name)))
    if len(name) > SURELY_SHORT and len(name.encode("utf-8", "surrogatepass")) > MOST_NAME_BYTES:
        raise ValueError("%s must be at most %d bytes long: %.40r..." % (what, MOST_NAME_BYTES, name))
    return str.__str__(name)


def plain_step(step):
    """A whole number or None; numpy's integers and floats such as 3.0 are whole numbers too."""
    if step is None:
        return None
    number = step if isinstance(step, int) else plain_value(step)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if not isinstance(number, int):
        raise TypeError("a step must be an integer or None, not %s %r" % (type_name(step), step))
    if not -_STEP_END <= number < _STEP_END:
        raise ValueError("a step must fit in 64 bits")
    return int(number)


def plain_value(value, depth=0):
    """The value as None, bool, int, float, str or a new list of these."""
    if isinstance(value, float):
        return float.__float__(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _plain_int(value)
    if isinstance(value, str):
        return str.__str__(value)
    if depth > MOST_DEPTH:
        raise ValueError("a metric's value is nested more than %d levels deep" % MOST_DEPTH)
    if isinstance(value, (list, tuple)):
        if _surely_plain(value):
            return list(value)
        return [_leaf(plain_value(element, depth + 1)) for element in value]
    return _from_numpy_like(value, depth)


def plain_data(value, depth=0):
    """As plain_value, and dicts of such values with str keys: the content of a record."""
    if isinstance(value, dict):
        if depth > MOST_DEPTH:
            raise ValueError("a record is nested more than %d levels deep" % MOST_DEPTH)
        return {plain_key(name, "a record's key"): plain_data(one, depth + 1) for name, one in value.items()}
    if isinstance(value, (list, tuple)) and any(isinstance(one, dict) for one in value):
        return [plain_data(one, depth + 1) for one in value]
    return _leaf(plain_value(value, depth))


def _surely_plain(values):
    """Long lists of plain numbers or texts are common, and looked at in C."""
    kinds = set(map(type, values))
    if kinds == {float}:
        return all(map(isfinite, values))
    return kinds == {str} or (kinds == {int} and min(values) >= -_STEP_END and max(values) < _STEP_END)


def text_of(number):
    """A float that JSON has no number for, as text; None for all others."""
    if number - number == 0.0:
        return None
    if number != number:
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def _leaf(element):
    # Inside a list an object marks such a float: the string "NaN" in the same list stays a string.
    text = text_of(element) if isinstance(element, float) else None
    return element if text is None else {"f": text}


def _plain_int(value):
    """One that no float can hold is infinite: who reads it has floats."""
    if value.bit_length() > _SURELY_FLOAT and not isfinite(_as_float(value)):
        return _as_float(value)
    return int.__int__(value)


def _from_numpy_like(value, depth):
    """Numpy's arrays and scalars, and whatever behaves like them: tensors, series, array.array."""
    for method in ("tolist", "item"):
        convert = getattr(value, method, None)
        if callable(convert) and not isinstance(value, type):
            simple = convert()
            # numpy.longdouble gives itself back: there is no exact Python number for it.
            return float(simple) if type(simple) is type(value) else plain_value(simple, depth + 1)
    if _is_number(value):
        return _as_float(value)
    hint = "; to log a dict of metrics, omit the name: log({...})" if isinstance(value, dict) and not depth else ""
    raise TypeError(
        "%s cannot be recorded as a metric; numbers, strings, bools, None, numpy scalars and arrays, "
        "and lists of these can%s" % (type_name(value), hint)
    )


def _is_number(value):
    """Decimal and Fraction. Who has one has loaded this module, and nobody else needs it."""
    numbers = sys.modules.get("numbers")
    return numbers is not None and isinstance(value, numbers.Number) and not isinstance(value, complex)


def _as_float(value):
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def type_name(value):
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else "%s.%s" % (kind.__module__, kind.__name__)
