"""Validate untrusted replies from a remote machine, field by field. Malformed replies raise an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from ..errors import HostError
from ..failure import Failure
from ..sanitize import plain

MAX_NUMBER = 2**63  # the index cannot store larger numbers
_MAX_TEXT, _MAX_PROBLEM = 4000, 1000
T = TypeVar("T")


class MalformedReply(HostError):
    """Error for a reply that no mlw agent would send."""

    def __init__(self, host: str, problem: str) -> None:
        super().__init__(
            f"{host} sent a malformed reply: {problem}",
            "the agent on the machine is damaged or was replaced; check the machine, then detach and attach it again",
        )


class Reply:
    """A message from an agent. Getters return a value of the expected type or raise MalformedReply."""

    def __init__(self, host: str, data: object) -> None:
        if not isinstance(data, Mapping):
            raise MalformedReply(host, "not an object")
        self._host = host
        self._data: Mapping[str, Any] = data

    @property
    def ok(self) -> bool:
        return self._data.get("ok") is True

    @property
    def problem(self) -> str:
        """The reported problem, safe to print in a terminal."""
        problem = self._data.get("problem")
        return printable(problem, _MAX_PROBLEM) if isinstance(problem, str) and problem.strip() else "no reason given"

    @property
    def failure(self) -> Failure:
        """The reported failure, safe to print in a terminal. Its code defaults to that of HostError."""
        return printable_failure(self._data.get("failure")) or Failure(HostError.code, self.problem)

    def require_ok(self, summary: str) -> Reply:
        """Return this reply, or raise HostError if it reports a failure.

        The error message begins with ``summary``.
        """
        if not self.ok:
            failure = self.failure
            raise HostError(f"{summary}: {failure.message}", failure.hint, more=failure.explain, code=failure.code)
        return self

    def has_value(self, name: str) -> bool:
        """Return whether a field exists and is not empty."""
        return bool(self._data.get(name))

    def text(self, name: str) -> str:
        """Return a string field, or "" if it is missing."""
        value = self._data.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._malformed(name, "a string")
        return value

    def number(self, name: str) -> float | None:
        """Return a numeric field, or None if it is missing."""
        value = self._data.get(name)
        if value is None:
            return None
        result = number(value)
        if result is None:
            raise self._malformed(name, "a number")
        return result

    def integer(self, name: str) -> int:
        """Return an integer field, or 0 if it is missing."""
        value = self.number(name) or 0
        if not isinstance(value, int):
            raise self._malformed(name, "an integer")
        return value

    def flag(self, name: str) -> bool:
        value = self._data.get(name)
        if not isinstance(value, bool):
            raise self._malformed(name, "true or false")
        return value

    def mapping(self, name: str) -> Mapping[str, Any]:
        value = self._data.get(name)
        if not isinstance(value, Mapping):
            raise self._malformed(name, "an object")
        return value

    def items(self, name: str) -> list[Any]:
        """Return a list field, or an empty list if it is missing. The caller must check the items."""
        value = self._data.get(name, [])
        if not isinstance(value, list):
            raise self._malformed(name, "a list")
        return value

    def texts(self, name: str) -> list[str]:
        """Return a list of strings that are safe to print in a terminal; empty if missing."""
        value = self._data.get(name, [])
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise self._malformed(name, "a list of strings")
        return [printable(text) for text in value]

    def _malformed(self, name: str, kind: str) -> MalformedReply:
        return MalformedReply(self._host, f"{name} is not {kind}" if name in self._data else f"{name} is missing")


def printable(text: str, limit: int = 300) -> str:
    """Return text from a remote machine as one line that is safe to print in a terminal."""
    return plain(text.strip().replace("\r\n", "\n"), limit)


def printable_failure(data: object) -> Failure | None:
    """Return a failure that a remote machine reported, or None if ``data`` is not a failure."""
    failure = Failure.from_json(data)
    if failure is None:
        return None
    message = printable(failure.message, _MAX_PROBLEM) or "no reason given"
    hint = printable(failure.hint, _MAX_PROBLEM) if failure.hint else None
    return Failure(failure.code, message, hint, failure.explain)


def number(value: object) -> float | int | None:
    """Return the value if it is a finite number within the limits, otherwise None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -MAX_NUMBER < value < MAX_NUMBER:
        return None  # this also rejects NaN
    return value


def parse_dataclass(kind: type[T], data: Mapping[str, Any], max_length: int = _MAX_TEXT, **overrides: Any) -> T:
    """Build a dataclass with simple fields.

    A value that is missing or does not match the field's type becomes None.
    """
    values = dict(overrides)
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name not in values:
            values[field.name] = _parse_value(data.get(field.name), str(field.type).partition(" ")[0], max_length)
    return kind(**values)


def _parse_value(value: object, kind: str, max_length: int) -> object:
    if kind == "str":
        return value[:max_length] if isinstance(value, str) else None
    if kind == "bool":
        return value if isinstance(value, bool) else None
    parsed = number(value)
    if parsed is None or parsed < 0:
        return None
    return int(parsed) if kind == "int" else float(parsed)
