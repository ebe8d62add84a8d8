"""Conditions on runs: ``accuracy > 0.9 and not status = "Failed"``. Text in, a tree out; nothing is evaluated."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import UsageError

_EXAMPLE, _NOTE = 'accuracy > 0.9 and lr < 0.01 and status = "Completed"', "put special names in `backticks`"
_HINT, _TIP = f"for example: --where '{_EXAMPLE}'; {_NOTE}", f"for example: {_EXAMPLE}; {_NOTE}"
_DEEPEST = 50
_MOST = 200
_LARGEST = 2**63 - 1  # a whole number that SQLite can hold
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))
    |(?P<name>[^\W\d][\w.\-/\#:%@]*)
    |`(?P<quoted>(?:[^`]|``)+)`
    |"(?P<double>(?:[^"\\]|\\.)*)"
    |'(?P<single>(?:[^'\\]|\\.)*)'
    |(?P<sign><=|>=|!=|<>|==|=|<|>|~)
    |(?P<bracket>[()])
    |(?P<end>$))""",
    re.VERBOSE | re.DOTALL,
)
_SIGNS = {"==": "=", "<>": "!="}
_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_WORDS = ("and", "or", "not")
_VALUES = {"true": 1, "false": 0}

Value = float | int | str


class FilterError(UsageError):
    """A filter of runs is invalid. ``text`` and ``tip`` are message and hint for a form, which has no options."""

    def __init__(self, message: str, hint: str | None, *, text: str, tip: str | None = None) -> None:
        super().__init__(message, hint)
        self.text = text
        self.tip = tip or hint


@dataclass(frozen=True)
class Compare:
    """One name against one value."""

    name: str
    sign: str
    value: Value


@dataclass(frozen=True)
class Not:
    """The opposite; of what is not known it is not known either."""

    inner: Condition


@dataclass(frozen=True)
class Join:
    """All of them, or any of them."""

    word: str  # "and" or "or"
    parts: tuple[Condition, ...]


Condition = Compare | Not | Join


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int


def parse(text: str) -> Condition:
    """The condition; ``UsageError`` names the place of a mistake."""
    parser = _Parser(text)
    found = parser.either(0)
    parser.finish()
    return found


def parse_sort(text: str) -> tuple[str, bool]:
    """Name, and whether the largest comes first: ``-accuracy``, ``-`odd name```."""
    descending = text.startswith("-")
    name = text[descending:].strip()
    if len(name) > 1 and name[0] == name[-1] and name[0] in '`"':
        name = name[1:-1]
    if not name:
        raise UsageError("--sort needs a name", "for example: --sort -accuracy")
    return name, descending


class _Parser:
    """Recursive descent: or, and, not, a comparison."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _split(text)
        self._at = 0

    def either(self, depth: int) -> Condition:
        return self._joined("or", depth)

    def finish(self) -> None:
        token = self._peek()
        if token.kind != "end":
            raise self._wrong(token, "'and' or 'or'")

    def _joined(self, word: str, depth: int) -> Condition:
        if depth > _DEEPEST:
            raise _beyond("nested too deeply", _HINT, _TIP)
        parts = [self._part(word, depth)]
        while self._take_word(word):
            parts.append(self._part(word, depth))
        return parts[0] if len(parts) == 1 else Join(word, tuple(parts))

    def _part(self, word: str, depth: int) -> Condition:
        return self._joined("and", depth) if word == "or" else self._single(depth)

    def _single(self, depth: int) -> Condition:
        if self._take_word("not"):
            if depth >= _DEEPEST:
                raise _beyond("nested too deeply", _HINT, _TIP)
            return Not(self._single(depth + 1))
        if self._peek().text == "(" and self._peek().kind == "bracket":
            self._next()
            inner = self.either(depth + 1)
            token = self._next()
            if (token.kind, token.text) != ("bracket", ")"):
                raise self._wrong(token, "')'")
            return inner
        return self._comparison()

    def _comparison(self) -> Compare:
        left, sign, right = self._next(), self._next(), self._next()
        turned = left.kind in ("number", "single")
        name, value = (right, left) if turned else (left, right)
        if name.kind not in ("name", "quoted", "double") or _is_word(name):
            raise self._wrong(name, "a name")
        if sign.kind != "sign":
            raise self._wrong(sign, "one of = != < <= > >= ~")
        mark = _SIGNS.get(sign.text, sign.text)
        if mark == "~" and (turned or value.kind not in ("double", "single")):
            raise self._wrong(value, "a name before ~ and a quoted string after it")
        return Compare(_name(name), _TURNED.get(mark, mark) if turned else mark, self._value(value))

    def _value(self, token: _Token) -> Value:
        if token.kind == "number":
            return _number(token.text)
        if token.kind in ("double", "single"):
            return re.sub(r"\\(.)", r"\1", token.text, flags=re.DOTALL)
        if token.kind == "name" and token.text.lower() in _VALUES:
            return _VALUES[token.text.lower()]
        if token.kind == "name" and not _is_word(token):
            raise self._wrong(token, f'a number or a quoted string ("{token.text}")')
        raise self._wrong(token, "a number or a quoted string")

    def _take_word(self, word: str) -> bool:
        token = self._peek()
        if token.kind == "name" and token.text.lower() == word:
            self._at += 1
            return True
        return False

    def _peek(self) -> _Token:
        return self._tokens[min(self._at, len(self._tokens) - 1)]

    def _next(self) -> _Token:
        token = self._peek()
        self._at += 1
        return token

    def _wrong(self, token: _Token, wanted: str) -> UsageError:
        return _mistake(self._text, token.at, f"expected {wanted}")


def _split(text: str) -> list[_Token]:
    tokens = []
    at = 0
    while True:
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            start = len(text) - len(text[at:].lstrip())
            raise _mistake(text, start, "invalid syntax")
        kind = found.lastgroup
        # A quoted text begins at its quote.
        start = found.start(kind) - (kind in ("quoted", "double", "single"))
        tokens.append(_Token(kind, found[kind], start))
        if kind == "end":
            return tokens
        if len(tokens) > _MOST * 4:
            raise _beyond("too long", f"at most {_MOST} comparisons")
        at = found.end()


def _mistake(text: str, at: int, what: str) -> UsageError:
    near = f", near {text[at : at + 20]!r}" if text[at:].strip() else ", at the end"
    what += f" at position {at + 1}{near}"
    return FilterError(f"--where {text!r}: {what}", _HINT, text=what, tip=_TIP)


def _beyond(what: str, hint: str, tip: str | None = None) -> UsageError:
    return FilterError(f"--where is {what}", hint, text=f"the condition is {what}", tip=tip)


def _number(text: str) -> float | int:
    told = float(text)
    if re.search(r"[.eE]", text) or abs(told) > 2.0**63:
        return told
    return int(text) if abs(int(text)) <= _LARGEST else told


def _is_word(token: _Token) -> bool:
    return token.kind == "name" and token.text.lower() in _WORDS


def _name(token: _Token) -> str:
    if token.kind == "quoted":
        return token.text.replace("``", "`")
    return re.sub(r"\\(.)", r"\1", token.text, flags=re.DOTALL) if token.kind == "double" else token.text
