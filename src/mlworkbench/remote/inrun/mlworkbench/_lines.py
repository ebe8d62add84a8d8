r"""Points -> lines of a metrics file. Every line is one strict JSON object in ASCII, ended by "\n".

{"n": "loss", "v": 0.5, "t": 1763190000.123456, "s": 3, "i": 1}     "s" is absent where no step was given
{"n": "loss", "v": "NaN", "f": 1, "t": 1763190000.2, "i": 2}        a float without a JSON number ("f": 1)
{"n": "row", "v": [0.5, {"f": "-Infinity"}], "t": 1763190000.3, "i": 3}
{"lost": 7}                                                         7 points had to be dropped here
"""

import json

from ._values import text_of

_dumps = json.JSONEncoder(allow_nan=False).encode
_NAMES_KEPT = 10000


class Encoder(object):
    """Turns points into lines; keeps the JSON form of names, a script logs the same few again and again."""

    def __init__(self):
        self._names = {}

    def lines(self, points, number):
        """The lines of these points; ``number`` is the number of the last point before them."""
        return [self._line(point, number + nth) for nth, point in enumerate(points, 1)]

    def _line(self, point, number):
        name, value, when, step = point
        name = self._names.get(name) or self._quote(name)
        value = _value(value)
        if step is None:
            return '{"n": %s, "v": %s, "t": %.6f, "i": %d}\n' % (name, value, when, number)
        return '{"n": %s, "v": %s, "t": %.6f, "s": %d, "i": %d}\n' % (name, value, when, step, number)

    def _quote(self, name):
        if len(self._names) >= _NAMES_KEPT:
            self._names.clear()
        quoted = self._names[name] = _dumps(name)
        return quoted


def _value(value):
    if type(value) is not float:
        return _dumps(value)
    text = text_of(value)
    return repr(value) if text is None else '"%s", "f": 1' % text


def lost_line(count):
    return '{"lost": %d}\n' % count
