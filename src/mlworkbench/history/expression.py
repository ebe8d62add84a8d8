"""A parser for conditions on runs, such as ``accuracy > 0.9 and not status = "Failed"``.

This module does not evaluate conditions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import UsageError

_EXAMPLE, _NOTE = 'accuracy > 0.9 and lr < 0.01 and status = "Completed"', "put special names in `backticks`"
_HINT, _TIP = f"for example: --where '{_EXAMPLE}'; {_NOTE}", f"for example: {_EXAMPLE}; {_NOTE}"
_MAX_DEPTH = 50
_MAX_COMPARISONS = 200
_MAX_INTEGER = 2**63 - 1  # maximum integer in SQLite
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
_OPERATOR_ALIASES = {"==": "=", "<>": "!="}
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_KEYWORDS = ("and", "or", "not")
_BOOLEANS = {"true": 1, "false": 0}

Value = float | int | str


class FilterError(UsageError):
    """An invalid run filter.

    ``text`` and ``tip`` are the message and hint for the browser UI, which has no command-line options.
    """

    def __init__(self, message: str, hint: str | None, *, text: str, tip: str | None = None) -> None:
        super().__init__(message, hint)
        self.text = text
        self.tip = tip or hint


@dataclass(frozen=True)
class Compare:
    """A comparison of a name with a value."""

    name: str
    sign: str
    value: Value


@dataclass(frozen=True)
class Not:
    """A negation. The negation of an unknown value is unknown."""

    inner: Condition


@dataclass(frozen=True)
class Join:
    """A conjunction or disjunction."""

    word: str  # "and" or "or"
    parts: tuple[Condition, ...]


Condition = Compare | Not | Join


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int


def parse(text: str) -> Condition:
    """Parse a condition. UsageError includes the position of a syntax error."""
    parser = _Parser(text)
    condition = parser.parse_condition(0)
    parser.finish()
    return condition


def parse_sort(text: str) -> tuple[str, bool]:
    """Return the name, and whether the order is descending, as in ``-accuracy`` or ``-`odd name```."""
    descending = text.startswith("-")
    name = text[descending:].strip()
    if len(name) > 1 and name[0] == name[-1] and name[0] in '`"':
        name = name[1:-1]
    if not name:
        raise UsageError("--sort needs a name", "for example: --sort -accuracy")
    return name, descending


class _Parser:
    """A recursive descent parser for ``or``, ``and``, ``not``, and comparisons."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokenize(text)
        self._index = 0

    def parse_condition(self, depth: int) -> Condition:
        return self._parse_joined("or", depth)

    def finish(self) -> None:
        token = self._peek()
        if token.kind != "end":
            raise self._unexpected(token, "'and' or 'or'")

    def _parse_joined(self, word: str, depth: int) -> Condition:
        if depth > _MAX_DEPTH:
            raise _limit_error("nested too deeply", _HINT, _TIP)
        parts = [self._parse_operand(word, depth)]
        while self._accept_keyword(word):
            parts.append(self._parse_operand(word, depth))
        return parts[0] if len(parts) == 1 else Join(word, tuple(parts))

    def _parse_operand(self, word: str, depth: int) -> Condition:
        return self._parse_joined("and", depth) if word == "or" else self._parse_unary(depth)

    def _parse_unary(self, depth: int) -> Condition:
        if self._accept_keyword("not"):
            if depth >= _MAX_DEPTH:
                raise _limit_error("nested too deeply", _HINT, _TIP)
            return Not(self._parse_unary(depth + 1))
        if self._peek().text == "(" and self._peek().kind == "bracket":
            self._next()
            inner = self.parse_condition(depth + 1)
            token = self._next()
            if (token.kind, token.text) != ("bracket", ")"):
                raise self._unexpected(token, "')'")
            return inner
        return self._parse_comparison()

    def _parse_comparison(self) -> Compare:
        left, sign, right = self._next(), self._next(), self._next()
        is_mirrored = left.kind in ("number", "single")
        name, value = (right, left) if is_mirrored else (left, right)
        if name.kind not in ("name", "quoted", "double") or _is_keyword(name):
            raise self._unexpected(name, "a name")
        if sign.kind != "sign":
            raise self._unexpected(sign, "one of = != < <= > >= ~")
        operator = _OPERATOR_ALIASES.get(sign.text, sign.text)
        if operator == "~" and (is_mirrored or value.kind not in ("double", "single")):
            raise self._unexpected(value, "a name before ~ and a quoted string after it")
        return Compare(
            _parse_name(name), _MIRRORED.get(operator, operator) if is_mirrored else operator, self._parse_value(value)
        )

    def _parse_value(self, token: _Token) -> Value:
        if token.kind == "number":
            return _parse_number(token.text)
        if token.kind in ("double", "single"):
            return re.sub(r"\\(.)", r"\1", token.text, flags=re.DOTALL)
        if token.kind == "name" and token.text.lower() in _BOOLEANS:
            return _BOOLEANS[token.text.lower()]
        if token.kind == "name" and not _is_keyword(token):
            raise self._unexpected(token, f'a number or a quoted string ("{token.text}")')
        raise self._unexpected(token, "a number or a quoted string")

    def _accept_keyword(self, keyword: str) -> bool:
        token = self._peek()
        if token.kind == "name" and token.text.lower() == keyword:
            self._index += 1
            return True
        return False

    def _peek(self) -> _Token:
        return self._tokens[min(self._index, len(self._tokens) - 1)]

    def _next(self) -> _Token:
        token = self._peek()
        self._index += 1
        return token

    def _unexpected(self, token: _Token, expected: str) -> UsageError:
        return _syntax_error(self._text, token.at, f"expected {expected}")


def _tokenize(text: str) -> list[_Token]:
    tokens = []
    position = 0
    while True:
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            start = len(text) - len(text[position:].lstrip())
            raise _syntax_error(text, start, "invalid syntax")
        kind = match.lastgroup
        # The position of a quoted string is that of its opening quote.
        start = match.start(kind) - (kind in ("quoted", "double", "single"))
        tokens.append(_Token(kind, match[kind], start))
        if kind == "end":
            return tokens
        if len(tokens) > _MAX_COMPARISONS * 4:
            raise _limit_error("too long", f"at most {_MAX_COMPARISONS} comparisons")
        position = match.end()


def _syntax_error(text: str, position: int, problem: str) -> UsageError:
    near = f", near {text[position : position + 20]!r}" if text[position:].strip() else ", at the end"
    problem += f" at position {position + 1}{near}"
    return FilterError(f"--where {text!r}: {problem}", _HINT, text=problem, tip=_TIP)


def _limit_error(problem: str, hint: str, tip: str | None = None) -> UsageError:
    return FilterError(f"--where is {problem}", hint, text=f"the condition is {problem}", tip=tip)


def _parse_number(text: str) -> float | int:
    number = float(text)
    if re.search(r"[.eE]", text) or abs(number) > 2.0**63:
        return number
    return int(text) if abs(int(text)) <= _MAX_INTEGER else number


def _is_keyword(token: _Token) -> bool:
    return token.kind == "name" and token.text.lower() in _KEYWORDS


def _parse_name(token: _Token) -> str:
    if token.kind == "quoted":
        return token.text.replace("``", "`")
    return re.sub(r"\\(.)", r"\1", token.text, flags=re.DOTALL) if token.kind == "double" else token.text
