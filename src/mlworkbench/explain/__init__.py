"""Troubles by name: a text for each, shipped with the package.

``mlw explain NAME`` prints one, docs/troubleshooting.md is made of them all, and messages that need more than a hint
name one. Each begins with its title; its list "You see:" has the messages, with … for names and numbers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import UnknownName

PLACE = Path(__file__).parent
# Folder → what its texts are about, in the order of the page.
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
    "tools": "Spark and MLflow",
}
_LEAST = 8  # letters of a message that must be there to know it by
_LONGEST = 2000  # letters of a message that are looked at: it may come from a target, and nobody's words are longer
_LABEL = "error: "  # as it is seen on a terminal
_ITEM = re.compile(r"^- ((?:`[^`]+`(?:, )?)+)")
_EXCEPTION = re.compile(r"^\w+(?:Error|Exception): ")  # which people leave out when they type a message
_QUOTES = re.compile("[\"'`´‘’“”]")


@dataclass(frozen=True)
class Symptom:
    """One trouble: what is seen, why, and what to do. ``body`` is Markdown without the title."""

    name: str
    group: str
    title: str
    body: str

    def seen(self) -> list[str]:
        """The messages that belong to it."""
        _, _, below = self.body.partition("You see:\n")
        found: list[str] = []
        for line in below.lstrip("\n").splitlines():
            item = _ITEM.match(line)
            if item is None:
                break
            found += [words.removeprefix(_LABEL) for words in re.findall("`([^`]+)`", item.group(1))]
        return found

    def former(self) -> list[str]:
        """Messages of earlier versions that belong to it, one per line of its file in ``former/``."""
        path = PLACE / "former" / f"{self.name}.txt"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def symptoms(groups: Collection[str] = ()) -> Iterator[Symptom]:
    """All, or those of some groups: group by group, by their names."""
    for group in GROUPS:
        if not groups or group in groups:
            for path in sorted((PLACE / group).glob("*.md")):
                yield _read(path)


def symptom(name: str) -> Symptom:
    """The page of that name; of a message that belongs to one, too, with or without its quotes and its beginning."""
    found = {path.stem: path for group in GROUPS for path in (PLACE / group).glob("*.md")}
    path = found.get(name.lower())
    if path is None:
        fitting = symptom_of(name) or _similar(name)
        path = found.get(fitting) if fitting else None
    if path is None:
        raise UnknownName("explain page", name, found, _proposal(name, found))
    return _read(path)


def symptom_of(message: str, groups: Collection[str] = ()) -> str | None:
    """The name of the text that speaks of this message; of several, the one that has most of its words."""
    message = message[:_LONGEST].removeprefix(_LABEL)
    best, name = 0, None
    for one in symptoms(groups):
        for words in (*one.seen(), *one.former()):
            parts = [part for part in words.split("…") if part.strip()]
            length = sum(map(len, parts))
            if length >= max(_LEAST, best + 1) and _fits(words, message):
                best, name = length, one.name
    return name


def _similar(typed: str) -> str | None:
    """The page of a message as people type it: from its middle, in other case, without quotes. The longest wins."""
    typed = _as_typed(typed[:_LONGEST])
    best, name = 0, None
    for one in symptoms():
        for words in (*one.seen(), *one.former()):
            parts = [part for part in _as_typed(_EXCEPTION.sub("", words)).rstrip("…: ").split("…") if part.strip()]
            length = sum(map(len, parts))
            if length >= max(_LEAST, best + 1) and _has_in_order(typed, parts):
                best, name = length, one.name
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


def _fits(words: str, message: str) -> bool:
    """Whether each part follows the one before it, with a letter between them at least.

    The first place of a part is always good enough, so none is tried twice: hostile words must not take hours.
    """
    first, *parts = words.rstrip("…: ").split("…")
    if not message.startswith(first):
        return False
    end = len(first)
    for part in parts:
        place = message.find(part, end + 1)
        if place < 0:
            return False
        end = place + len(part)
    return True


def _proposal(name: str, known: Collection[str]) -> str:
    """Names that are spelt nearly so; else those that have a word of it."""
    words = set(re.findall(r"\w{3,}", name.lower()))
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.7)
    having = sorted((one for one in known if words & set(one.split("-"))), key=lambda one: _strangers(one, words))
    meant = near or having[:3]
    listed = "'mlw explain' lists all pages"
    return f"did you mean {' or '.join(repr(one) for one in meant)}? {listed}" if meant else listed


def _strangers(name: str, words: Collection[str]) -> tuple[int, str]:
    """How many words of a name are none of these."""
    return len(set(name.split("-")) - set(words)), name


def _read(path: Path) -> Symptom:
    title, _, body = path.read_text(encoding="utf-8").partition("\n")
    return Symptom(path.stem, path.parent.name, title.removeprefix("# ").strip(), body.strip())
