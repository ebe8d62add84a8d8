r"""Points -> lines of a metrics file. Every line is one strict JSON object in ASCII, ended by "\n".

{"n": "loss", "v": 0.5, "t": 1763190000.123456, "s": 3, "i": 1}     "s" is absent where no step was given
{"n": "loss", "v": "NaN", "f": 1, "t": 1763190000.2, "i": 2}        a float without a JSON number ("f": 1)
{"n": "row", "v": [0.5, {"f": "-Infinity"}], "t": 1763190000.3, "i": 3}
{"n": "long", "v": [7, 8], "of": [[], 250000, 500000], "t": 1763190000.4, "i": 4}
                 a piece of a long value: these elements begin at index 250000 of 500000; pieces come in order, each
                 with the number of the same point. [] leads to the list: [3] would be the fourth list in the value.
                 Of a long str the pieces are strings and the indices are characters.
{"k": "param", "d": {"name": "lr", "value": 0.1}, "t": 1763190000.5, "i": 5}      a record of another kind than a metric
{"lost": 7}                                                         7 points, at least, had to be dropped here
"""

import json

from ._values import text_of

_dumps = json.JSONEncoder(allow_nan=False).encode
_NAMES_KEPT = 10000
LONG = 256 * 1024  # characters of a value, from which on it is written in pieces
AT_ONCE = 4 * 1024 * 1024  # characters of lines that are made before they are written
_FEW = 100


class Encoder(object):
    """Turns points into lines; keeps the JSON form of names, a script logs the same few again and again."""

    def __init__(self):
        self._names = {}

    def lines(self, points, number):
        """The lines of the first of these points, and of how many; ``number`` is that of the last point before."""
        lines, size, done = [], 0, 0
        quoted = self._names.get
        while done < len(points) and size < AT_ONCE:
            before = len(lines)
            for point in points[done : done + _FEW]:
                number += 1
                name, value, when, step = point
                known = quoted(name)
                # Nearly all points are like this, and the script waits for the time that they take here.
                if known is not None and type(value) is float and value - value == 0.0:
                    if step is None:
                        lines.append('{"n": %s, "v": %r, "t": %.6f, "i": %d}\n' % (known, value, when, number))
                    else:
                        lines.append(
                            '{"n": %s, "v": %r, "t": %.6f, "s": %d, "i": %d}\n' % (known, value, when, step, number)
                        )
                else:
                    lines.append(self._line(point, number))
            size += sum(map(len, lines[before:]))
            done += _FEW
        return lines, min(done, len(points))

    def _line(self, point, number):
        name, value, when, step = point
        if name is None:
            return '{"k": %s, "d": %s, "t": %.6f, "i": %d}\n' % (_dumps(value[0]), _dumps(value[1]), when, number)
        name = self._names.get(name) or self._quote(name)
        if type(value) is float:
            text = text_of(value)
            value = repr(value) if text is None else '"%s", "f": 1' % text
        else:
            text = _dumps(value)
            if len(text) > LONG and isinstance(value, (list, str)):
                return "".join(_piece_line(name, piece, when, step, number) for piece in _pieces(value))
            value = text
        step = "" if step is None else ', "s": %d' % step
        return '{"n": %s, "v": %s, "t": %.6f%s, "i": %d}\n' % (name, value, when, step, number)

    def _quote(self, name):
        if len(self._names) >= _NAMES_KEPT:
            self._names.clear()
        quoted = self._names[name] = _dumps(name)
        return quoted


def _piece_line(name, piece, when, step, number):
    text, way, start, total = piece
    step = "" if step is None else ', "s": %d' % step
    of = _dumps([way, start, total])
    return '{"n": %s, "v": %s, "of": %s, "t": %.6f%s, "i": %d}\n' % (name, text, of, when, step, number)


def _pieces(value, way=()):
    """(JSON, way to the list, index of the first element, number of all elements) of each piece."""
    way, total = list(way), len(value)
    start, size = 0, LONG // 32
    while start < total:
        part = value[start : start + size]
        text = _dumps(part)
        if len(text) <= LONG or isinstance(value, str):
            yield text, way, start, total
            start += len(part)
        elif len(part) > 1:
            size = len(part) // 2
        else:
            # One element is long by itself: an empty one marks its place, its own pieces fill it.
            element = part[0]
            yield _dumps([type(element)()]), way, start, total
            for piece in _pieces(element, way + [start]):
                yield piece
            start += 1


def lost_line(count):
    return '{"lost": %d}\n' % count
