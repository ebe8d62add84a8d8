"""Convert names, values, and steps to plain immutable types that can be recorded."""

import sys
from math import isfinite

MAX_NAME_BYTES = 10 * 1024
MAX_UNCHECKED_LENGTH = (
    MAX_NAME_BYTES // 4
)  # 2560, also a literal in _log: names of this length cannot exceed the limit in UTF-8
MAX_DEPTH = 64

_FLOAT_BITS = 1023  # integers with fewer bits fit in a float
_STEP_LIMIT = 1 << 63


def plain_name(name, what="a metric's name"):
    if isinstance(name, str) and not name.strip():
        raise ValueError("%s must not be empty: %r" % (what, name[:40]))
    return plain_key(name, what)


def plain_key(name, what):
    """Check a name that may be empty, such as a parameter's name, and return it as a plain str."""
    if not isinstance(name, str):
        raise TypeError("%s must be a str, not %s" % (what, type_name(name)))
    if len(name) > MAX_UNCHECKED_LENGTH and len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        raise ValueError("%s must be at most %d bytes long: %.40r..." % (what, MAX_NAME_BYTES, name))
    return str.__str__(name)


def plain_step(step):
    """Return an int or None; numpy integers and floats such as 3.0 are accepted."""
    if step is None:
        return None
    number = step if isinstance(step, int) else plain_value(step)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if not isinstance(number, int):
        raise TypeError("a step must be an integer or None, not %s %r" % (type_name(step), step))
    if not -_STEP_LIMIT <= number < _STEP_LIMIT:
        raise ValueError("a step must fit in 64 bits")
    return int(number)


def plain_value(value, depth=0):
    """Return the value as None, bool, int, float, str, or a new list of these."""
    if isinstance(value, float):
        return float.__float__(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _plain_int(value)
    if isinstance(value, str):
        return str.__str__(value)
    if depth > MAX_DEPTH:
        raise ValueError("a metric's value is nested more than %d levels deep" % MAX_DEPTH)
    if isinstance(value, (list, tuple)):
        if _is_plain_list(value):
            return list(value)
        return [_list_element(plain_value(element, depth + 1)) for element in value]
    return _from_numpy_like(value, depth)


def plain_data(value, depth=0):
    """Convert a value like ``plain_value``, but also accept dicts with str keys, which records contain."""
    if isinstance(value, dict):
        if depth > MAX_DEPTH:
            raise ValueError("a record is nested more than %d levels deep" % MAX_DEPTH)
        return {plain_key(name, "a record's key"): plain_data(element, depth + 1) for name, element in value.items()}
    if isinstance(value, (list, tuple)) and any(isinstance(element, dict) for element in value):
        return [plain_data(element, depth + 1) for element in value]
    return _list_element(plain_value(value, depth))


def _is_plain_list(values):
    """Return whether a list contains only plain numbers or only strings. C functions make this check fast."""
    kinds = set(map(type, values))
    if kinds == {float}:
        return all(map(isfinite, values))
    return kinds == {str} or (kinds == {int} and min(values) >= -_STEP_LIMIT and max(values) < _STEP_LIMIT)


def non_finite_text(number):
    """Return the string for a float that JSON cannot represent; None for all other floats."""
    if number - number == 0.0:
        return None
    if number != number:
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def _list_element(element):
    # In a list, a non-finite float becomes a dict, so that it differs from the string "NaN".
    text = non_finite_text(element) if isinstance(element, float) else None
    return element if text is None else {"f": text}


def _plain_int(value):
    """Return a plain int. Readers use floats, so an int beyond their range becomes infinity."""
    if value.bit_length() > _FLOAT_BITS and not isfinite(_as_float(value)):
        return _as_float(value)
    return int.__int__(value)


def _from_numpy_like(value, depth):
    """Convert numpy arrays and scalars, and similar objects: tensors, series, array.array."""
    for method in ("tolist", "item"):
        convert = getattr(value, method, None)
        if callable(convert) and not isinstance(value, type):
            simple = convert()
            # For numpy.longdouble, this returns the value itself, because there is no exact Python equivalent.
            return float(simple) if type(simple) is type(value) else plain_value(simple, depth + 1)
    if _is_number(value):
        return _as_float(value)
    hint = "; to log a dict of metrics, omit the name: log({...})" if isinstance(value, dict) and not depth else ""
    raise TypeError(
        "%s cannot be recorded as a metric; numbers, strings, bools, None, numpy scalars and arrays, "
        "and lists of these can%s" % (type_name(value), hint)
    )


def _is_number(value):
    """Return whether the value is a number of another type, such as Decimal or Fraction.

    Their modules load ``numbers``, so it does not need to be imported here.
    """
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
