"""What can be recorded: names, values and steps as the caller gave them -> plain ones that no one changes."""

MOST_NAME_BYTES = 10 * 1024
SURELY_SHORT = MOST_NAME_BYTES // 4  # so many characters are no more bytes than that in UTF-8
MOST_DEPTH = 64

# Python refuses to print and to read longer numbers (since 3.11, and patched into older ones).
_MOST_BITS = 14000
_STEP_END = 1 << 63


def plain_name(name):
    if not isinstance(name, str):
        raise TypeError("a metric's name is a str, not %s" % _type_name(name))
    if len(name) > SURELY_SHORT and len(name.encode("utf-8", "surrogatepass")) > MOST_NAME_BYTES:
        raise ValueError("a metric's name is at most %d bytes long: %.40r..." % (MOST_NAME_BYTES, name))
    return str.__str__(name)


def plain_step(step):
    """A whole number or None; numpy's integers and floats such as 3.0 are whole numbers too."""
    if step is None:
        return None
    number = plain_value(step)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if not isinstance(number, int):
        raise TypeError("a step is a whole number or None, not %s %r" % (_type_name(step), step))
    if not -_STEP_END <= number < _STEP_END:
        raise ValueError("a step has at most 64 bits")
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
        raise ValueError("a metric's value is nested more than %d deep" % MOST_DEPTH)
    if isinstance(value, (list, tuple)):
        return [_leaf(plain_value(element, depth + 1)) for element in value]
    return _from_numpy_like(value, depth)


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
    if value.bit_length() > _MOST_BITS:
        raise ValueError("an integer of more than %d bits cannot be recorded" % _MOST_BITS)
    return int.__int__(value)


def _from_numpy_like(value, depth):
    """Numpy's arrays and scalars, and whatever behaves like them: tensors, series, array.array."""
    for method in ("tolist", "item"):
        convert = getattr(value, method, None)
        if callable(convert) and not isinstance(value, type):
            simple = convert()
            # numpy.longdouble gives itself back: there is no exact Python number for it.
            return float(simple) if type(simple) is type(value) else plain_value(simple, depth + 1)
    raise TypeError(
        "%s cannot be recorded as a metric; numbers, strings, bools, None, numpy scalars and arrays, "
        "and lists of these can" % _type_name(value)
    )


def _type_name(value):
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else "%s.%s" % (kind.__module__, kind.__name__)
