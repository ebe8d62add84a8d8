r"""Encode points as lines of a metrics file. Every line is one strict JSON object in ASCII, ended by "\n".

{"n": "loss", "v": 0.5, "t": 1763190000.123456, "s": 3, "i": 1}     without "s" if no step was given
{"n": "loss", "v": "NaN", "f": 1, "t": 1763190000.2, "i": 2}        a float that JSON cannot represent ("f": 1)
{"n": "row", "v": [0.5, {"f": "-Infinity"}], "t": 1763190000.3, "i": 3}
{"n": "long", "v": [7, 8], "of": [[], 250000, 500000], "t": 1763190000.4, "i": 4}
                 a piece of a long value. "of" contains the path of the list ([] is the value itself, [3] its fourth
                 element), the index of the first element in this piece, and the length of the list. Pieces of one
                 point are in order and have the same "i". Pieces of a long str are strings; indices count characters.
{"k": "param", "d": {"name": "lr", "value": 0.1}, "t": 1763190000.5, "i": 5}      a record that is not a metric
{"lost": 7}                                                         at least 7 points were dropped here
"""

import json

from ._values import non_finite_text

_dumps = json.JSONEncoder(allow_nan=False).encode
_MAX_NAMES = 10000
MAX_VALUE = 256 * 1024  # maximum characters; longer values are split
MAX_BATCH = 4 * 1024 * 1024  # maximum characters of lines to encode before a write
_GROUP = 100


class Encoder(object):
    """An encoder for metric lines. It caches the JSON of names, because scripts repeat a few names."""

    def __init__(self):
        self._names = {}

    def lines(self, points, number):
        """Return lines and the number of points encoded. ``number`` is the number of the previous point."""
        lines, size, done = [], 0, 0
        get_quoted = self._names.get
        while done < len(points) and size < MAX_BATCH:
            before = len(lines)
            for point in points[done : done + _GROUP]:
                number += 1
                name, value, when, step = point
                quoted_name = get_quoted(name)
                # Fast path: almost all points have this form, and the script waits while they are encoded.
                if quoted_name is not None and type(value) is float and value - value == 0.0:
                    if step is None:
                        lines.append('{"n": %s, "v": %r, "t": %.6f, "i": %d}\n' % (quoted_name, value, when, number))
                    else:
                        lines.append(
                            '{"n": %s, "v": %r, "t": %.6f, "s": %d, "i": %d}\n'
                            % (quoted_name, value, when, step, number)
                        )
                else:
                    lines.append(self.line(point, number))
            done += _GROUP
            if done < len(points):
                size += sum(map(len, lines[before:]))
        return lines, min(done, len(points))

    def line(self, point, number):
        name, value, when, step = point
        if name is None:
            return '{"k": %s, "d": %s, "t": %.6f, "i": %d}\n' % (_dumps(value[0]), _dumps(value[1]), when, number)
        name = self._names.get(name) or self._quote(name)
        if type(value) is float:
            text = non_finite_text(value)
            value = repr(value) if text is None else '"%s", "f": 1' % text
        else:
            text = _dumps(value)
            if len(text) > MAX_VALUE and isinstance(value, (list, str)):
                return "".join(_piece_line(name, piece, when, step, number) for piece in _split_value(value))
            value = text
        step = "" if step is None else ', "s": %d' % step
        return '{"n": %s, "v": %s, "t": %.6f%s, "i": %d}\n' % (name, value, when, step, number)

    def _quote(self, name):
        if len(self._names) >= _MAX_NAMES:
            self._names.clear()
        quoted = self._names[name] = _dumps(name)
        return quoted


def _piece_line(name, piece, when, step, number):
    text, path, start, total = piece
    step = "" if step is None else ', "s": %d' % step
    of = _dumps([path, start, total])
    return '{"n": %s, "v": %s, "of": %s, "t": %.6f%s, "i": %d}\n' % (name, text, of, when, step, number)


def _split_value(value, path=()):
    """Yield the JSON, list path, index of the first element, and number of elements of each piece."""
    path, total = list(path), len(value)
    start, size = 0, MAX_VALUE // 32
    while start < total:
        part = value[start : start + size]
        text = _dumps(part)
        if len(text) <= MAX_VALUE or isinstance(value, str):
            yield text, path, start, total
            start += len(part)
        elif len(part) > 1:
            size = len(part) // 2
        else:
            # A single element is too long: write an empty element first, then its pieces.
            element = part[0]
            yield _dumps([type(element)()]), path, start, total
            for piece in _split_value(element, path + [start]):
                yield piece
            start += 1


def lost_line(count):
    return '{"lost": %d}\n' % count
