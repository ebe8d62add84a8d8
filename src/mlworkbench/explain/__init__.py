"""Troubleshooting pages by name, shipped with the package.

``mlw explain NAME`` prints a page, and docs/troubleshooting.md is generated from all pages. Messages
refer to a page if a hint is not enough. Each page begins with its title; its list "You see:"
contains the messages, with … in place of names and numbers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import UnknownName

FOLDER = Path(__file__).parent
# Folder → heading of its pages, in the order of docs/troubleshooting.md.
GROUPS = {
    "project": "Commands and projects",
    "python": "Python for scripts",
    "connection": "Attaching and connecting",
    "packages": "Packages and environments",
    "containers": "Containers and images",
    "gpu": "GPUs",
    "runs": "Runs",
    "history": "History and disk space",
    "browser": "Browser UI",
    "tools": "Spark, MLflow, and launchers",
}
_MIN_MATCH = 8  # minimum number of characters for a match
_MAX_COMPARED = 2000  # maximum number of characters compared: the message may come from a target
_LABEL = "error: "  # prefix of error messages in a terminal
_ITEM = re.compile(r"^- ((?:`[^`]+`(?:, )?)+)")
_EXCEPTION = re.compile(r"^\w+(?:Error|Exception): ")  # users often omit it when typing a message
_QUOTES = re.compile("[\"'`´‘’“”]")


@dataclass(frozen=True)
class Symptom:
    """A troubleshooting page: symptoms, cause, and solution. ``body`` is Markdown without the title."""

    name: str
    group: str
    title: str
    body: str

    def seen(self) -> list[str]:
        """Return the messages that the page explains."""
        _, _, below = self.body.partition("You see:\n")
        messages: list[str] = []
        for line in below.lstrip("\n").splitlines():
            item = _ITEM.match(line)
            if item is None:
                break
            messages += [message.removeprefix(_LABEL) for message in re.findall("`([^`]+)`", item.group(1))]
        return messages

    def former(self) -> list[str]:
        """Return messages of earlier versions, one per line of the page's file in ``former/``."""
        path = FOLDER / "former" / f"{self.name}.txt"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def symptoms(groups: Collection[str] = ()) -> Iterator[Symptom]:
    """Yield all pages, or those in ``groups``, by group and then by name."""
    for group in GROUPS:
        if not groups or group in groups:
            for path in sorted((FOLDER / group).glob("*.md")):
                yield _read(path)


def symptom(name: str) -> Symptom:
    """Return the page with this name, or the page that explains this message.

    A message may lack its quotes and its beginning.
    """
    pages = {path.stem: path for group in GROUPS for path in (FOLDER / group).glob("*.md")}
    path = pages.get(name.lower())
    if path is None:
        fitting = symptom_of(name) or _similar(name)
        path = pages.get(fitting) if fitting else None
    if path is None:
        raise UnknownName("explain page", name, pages, _proposal(name, pages))
    return _read(path)


def symptom_of(message: str, groups: Collection[str] = ()) -> str | None:
    """Return the name of the page that explains this message, preferring the longest match."""
    message = message[:_MAX_COMPARED].removeprefix(_LABEL)
    best, name = 0, None
    for page in symptoms(groups):
        for pattern in (*page.seen(), *page.former()):
            parts = [part for part in pattern.split("…") if part.strip()]
            length = sum(map(len, parts))
            if length >= max(_MIN_MATCH, best + 1) and _fits(pattern, message):
                best, name = length, page.name
    return name


def _similar(typed: str) -> str | None:
    """Return the page for a message as typed by a user, preferring the longest match.

    The message may lack its beginning and quotes, and differ in case.
    """
    typed = _as_typed(typed[:_MAX_COMPARED])
    best, name = 0, None
    for page in symptoms():
        for pattern in (*page.seen(), *page.former()):
            parts = [part for part in _as_typed(_EXCEPTION.sub("", pattern)).rstrip("…: ").split("…") if part.strip()]
            length = sum(map(len, parts))
            if length >= max(_MIN_MATCH, best + 1) and _has_in_order(typed, parts):
                best, name = length, page.name
    return name


def _as_typed(text: str) -> str:
    return " ".join(_QUOTES.sub("", text).lower().split())


def _has_in_order(text: str, parts: list[str]) -> bool:
    end = 0
    for part in parts:
        place = text.find(part.strip(), end)
        if place < 0:
            return False
        end = place + len(part.strip())
    return True


def _fits(pattern: str, message: str) -> bool:
    """Return whether the parts occur in order, with at least one character between them.

    The first occurrence of each part suffices, so there is no backtracking: untrusted text must not
    take hours to match.
    """
    first, *parts = pattern.rstrip("…: ").split("…")
    if not message.startswith(first):
        return False
    end = len(first)
    for part in parts:
        place = message.find(part, end + 1)
        if place < 0:
            return False
        end = place + len(part)
    return True


def _proposal(name: str, names: Collection[str]) -> str:
    """Return a hint with similarly spelled names, else with names that share a word with ``name``."""
    parts = set(re.findall(r"\w{3,}", name.lower()))
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.7)
    having = sorted(
        (candidate for candidate in names if parts & set(candidate.split("-"))),
        key=lambda candidate: _unmatched(candidate, parts),
    )
    meant = near or having[:3]
    listed = "'mlw explain' lists all pages"
    return f"did you mean {' or '.join(repr(candidate) for candidate in meant)}? {listed}" if meant else listed


def _unmatched(name: str, parts: Collection[str]) -> tuple[int, str]:
    """Return a sort key: the number of words of a name that are not in ``parts``, and the name."""
    return len(set(name.split("-")) - set(parts)), name


def _read(path: Path) -> Symptom:
    title, _, body = path.read_text(encoding="utf-8").partition("\n")
    return Symptom(path.stem, path.parent.name, title.removeprefix("# ").strip(), body.strip())
