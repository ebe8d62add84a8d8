"""Replies of another machine, read field by field. What it sends is hostile input: a wrong shape is one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from ..errors import HostError
from ..failure import Failure

LARGEST = 2**63  # of any number: larger ones fit neither the index nor a disk
_LONGEST_TEXT, _LONGEST_PROBLEM = 4000, 1000
Part = TypeVar("Part")


class MalformedReply(HostError):
    """The machine answered, and not as an agent of ours does."""

    def __init__(self, who: str, what: str) -> None:
        super().__init__(
            f"{who} sent a malformed reply: {what}",
            "the agent on the machine is damaged or was replaced; check the machine, then detach and attach it again",
        )


class Reply:
    """One message of an agent. A getter returns the kind of value that it names, or raises MalformedReply."""

    def __init__(self, who: str, data: object) -> None:
        if not isinstance(data, Mapping):
            raise MalformedReply(who, "not an object")
        self._who = who
        self._data: Mapping[str, Any] = data

    @property
    def ok(self) -> bool:
        return self._data.get("ok") is True

    @property
    def problem(self) -> str:
        """Why it is not, fit for a terminal."""
        said = self._data.get("problem")
        return printable(said, _LONGEST_PROBLEM) if isinstance(said, str) and said.strip() else "no reason given"

    @property
    def failure(self) -> Failure:
        """The same as data, fit for a terminal. Most answers name no code: HostError's stands for those."""
        return printable_failure(self._data.get("failure")) or Failure(HostError.code, self.problem)

    def require_ok(self, failed: str) -> Reply:
        """This reply, unless it reports a failure; ``failed`` is the beginning of the message then."""
        if not self.ok:
            failure = self.failure
            raise HostError(f"{failed}: {failure.message}", failure.hint, more=failure.explain, code=failure.code)
        return self

    def given(self, name: str) -> bool:
        """Whether it is there, and not empty."""
        return bool(self._data.get(name))

    def text(self, name: str) -> str:
        """Empty if it is not there."""
        value = self._data.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._wrong(name, "a string")
        return value

    def number(self, name: str) -> float | None:
        """None if it is not there."""
        value = self._data.get(name)
        if value is None:
            return None
        found = number(value)
        if found is None:
            raise self._wrong(name, "a number")
        return found

    def whole(self, name: str) -> int:
        """0 if it is not there."""
        value = self.number(name) or 0
        if not isinstance(value, int):
            raise self._wrong(name, "an integer")
        return value

    def flag(self, name: str) -> bool:
        value = self._data.get(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def mapping(self, name: str) -> Mapping[str, Any]:
        value = self._data.get(name)
        if not isinstance(value, Mapping):
            raise self._wrong(name, "an object")
        return value

    def items(self, name: str) -> list[Any]:
        """Empty if it is not there; of any kind, to be checked one by one."""
        value = self._data.get(name, [])
        if not isinstance(value, list):
            raise self._wrong(name, "a list")
        return value

    def texts(self, name: str) -> list[str]:
        """Empty if it is not there; each fit for a terminal."""
        value = self._data.get(name, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self._wrong(name, "a list of strings")
        return [printable(one) for one in value]

    def _wrong(self, name: str, kind: str) -> MalformedReply:
        return MalformedReply(self._who, f"{name} is not {kind}" if name in self._data else f"{name} is missing")


def printable(said: str, most: int = 300) -> str:
    """Text of another machine, made safe for a terminal."""
    said = said.strip().replace("\r\n", "\n")
    text = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in said[: most + 1])
    return text if len(text) <= most else text[:most] + "…"


def printable_failure(data: object) -> Failure | None:
    """A failure that another machine reports; None if the data are something else."""
    found = Failure.from_json(data)
    if found is None:
        return None
    message = printable(found.message, _LONGEST_PROBLEM) or "no reason given"
    hint = printable(found.hint, _LONGEST_PROBLEM) if found.hint else None
    return Failure(found.code, message, hint, found.explain)


def number(value: object) -> float | int | None:
    """A finite number of a sane size; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -LARGEST < value < LARGEST:
        return None  # NaN is in no range
    return value


def part_of(kind: type[Part], data: Mapping[str, Any], longest: int = _LONGEST_TEXT, **given: Any) -> Part:
    """A dataclass of plain fields: each with the kind of value that its type names, None where that did not come."""
    values = dict(given)
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name not in values:
            values[field.name] = _plain(data.get(field.name), str(field.type).partition(" ")[0], longest)
    return kind(**values)


def _plain(value: object, kind: str, longest: int) -> object:
    if kind == "str":
        return value[:longest] if isinstance(value, str) else None
    if kind == "bool":
        return value if isinstance(value, bool) else None
    found = number(value)
    if found is None or found < 0:
        return None
    return int(found) if kind == "int" else float(found)
