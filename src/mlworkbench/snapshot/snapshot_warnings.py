"""What the user should know about a snapshot, in a few plain sentences."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Sequence

from ..remote.shared.tree import join
from .ignore import OURS, SECRET, SPECIAL, USUAL
from .record import Folder

LARGE_SIZE = 100 * 1000 * 1000
LARGE_COUNT = 20_000
_SHOWN = 3
_BIGGEST = 5
_NARROW = 0.9

Sizes = dict[str, tuple[int, int]]  # folder → (bytes, files)
Place = tuple[str, tuple[int, int]]  # a file, or a folder with a slash at its end; (bytes, files)


def amount(size: float) -> str:
    """12 B, 3.4 kB, 1.2 GB: powers of a thousand, as disks are sold."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 99.5 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def shown(path: str) -> str:
    """A name fit for a terminal: line ends, escapes and foreign bytes are spelled out."""
    return path if path.isprintable() else ascii(path)[1:-1]


def listed(paths: Sequence[str]) -> str:
    more = f", and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    return ", ".join(shown(path) for path in paths[:_SHOWN]) + more


def describe_folders(folders: dict[str, Folder]) -> list[str]:
    """The sentences that depend only on what the project is, not on what happened while it was read."""
    special = _left(folders, SPECIAL)
    secret = _left(folders, SECRET)
    outside = sorted(_links_outside(folders))
    notes = []
    if special:
        notes.append(f"{_count(special, 'special file')} (FIFO, socket, or device) skipped: {listed(special)}")
    if outside:
        notes.append(f"{_count(outside, 'link')} to files outside the project kept as links: {listed(outside)}")
    if secret:
        notes.append(
            f"{_count(secret, 'path')} excluded (possible secrets): {listed(secret)};"
            f" to include one, add !{shown(os.path.basename(secret[0].rstrip('/')))} to {OURS}"
        )
    return notes + _collisions(folders) + _size(folders)


def describe_usual(folders: dict[str, Folder]) -> str | None:
    """The line about folders that are left out by default: most projects have some, so it is no warning."""
    usual = _left(folders, USUAL)
    if not usual:
        return None
    return (
        f"{_count(usual, 'folder')} excluded by default (environments, caches, and similar): {listed(usual)};"
        f" to include one, add !{shown(os.path.basename(usual[0].rstrip('/')))} to {OURS}"
    )


def describe_reading(changed: Sequence[str], gone: Sequence[str]) -> list[str]:
    """The sentences about files that did not hold still."""
    notes = []
    if changed:
        notes.append(f"{_count(changed, 'file')} changed while being read: {listed(changed)}")
    if gone:
        notes.append(f"{_count(gone, 'path')} disappeared while being read, not included: {listed(gone)}")
    return notes


def _count(things: Sequence[str], word: str) -> str:
    return f"{len(things):,} {word}" if len(things) == 1 else f"{len(things):,} {word}s"


def _left(folders: dict[str, Folder], why: str) -> list[str]:
    return sorted(
        f"{path}/" if name == "." else join(path, name[:-2] if name.endswith("//") else name)
        for path, folder in folders.items()
        for name, reason in folder["left"].items()
        if reason == why
    )


def _links_outside(folders: dict[str, Folder]) -> Iterable[str]:
    for path, folder in folders.items():
        for name, text in folder["links"].items():
            goal = os.path.normpath(join(path, text) if not text.startswith("/") else text)
            if goal.startswith("/") or goal == ".." or goal.startswith("../"):
                yield join(path, name)


def _collisions(folders: dict[str, Folder]) -> list[str]:
    """Names that macOS and Windows take for the same; Linux does not."""
    pairs = []
    for path, folder in folders.items():
        seen: dict[str, str] = {}
        for name in [*folder["files"], *folder["links"], *folder["folders"]]:
            key = name if name.isascii() else unicodedata.normalize("NFC", name)
            other = seen.setdefault(key.casefold(), name)
            if other is not name:
                first, second = sorted((other, name))
                pairs.append(f"{join(path, first)} and {second}")
    if not pairs:
        return []
    pairs.sort()
    return [f"{_count(pairs, 'pair')} of names would collide on macOS and Windows: {listed(pairs)}"]


def _size(folders: dict[str, Folder]) -> list[str]:
    sizes = _sum(folders)
    size, count = sizes[""]
    if size <= LARGE_SIZE and count <= LARGE_COUNT:
        return []
    by = 0 if size > LARGE_SIZE else 1
    largest = [_narrow(one, folders, sizes, by) for one in _children("", folders, sizes)]
    largest.sort(key=lambda one: (-one[1][by], one[0]))
    places = ", ".join(_describe(*one) for one in largest[:_BIGGEST])
    return [
        f"the project is large, {_extent(size, count)}; largest: {places}; list what the run does not need in {OURS}"
    ]


def _sum(folders: dict[str, Folder]) -> Sizes:
    """(bytes, files) below each folder. Parents come before children in ``folders``, hence backwards."""
    sums: Sizes = {}
    for path in reversed(folders):
        files = folders[path]["files"].values()
        size, count = sum(known[0] for known in files), len(files)
        for name in folders[path]["folders"]:
            below = sums.get(join(path, name), (0, 0))
            size, count = size + below[0], count + below[1]
        sums[path] = (size, count)
    return sums


def _children(path: str, folders: dict[str, Folder], sizes: Sizes) -> Iterable[Place]:
    """Each file and each folder in a folder."""
    for name, known in folders[path]["files"].items():
        yield join(path, name), (known[0], 1)
    for name in folders[path]["folders"]:
        inner = join(path, name)
        if inner in sizes:
            yield f"{inner}/", sizes[inner]


def _narrow(place: Place, folders: dict[str, Folder], sizes: Sizes, by: int) -> Place:
    """The innermost file or folder with nearly all of it: "data/raw/2019/" says more than "data/"."""
    enough = place[1][by] * _NARROW
    while place[0].endswith("/"):
        inner = (one for one in _children(place[0][:-1], folders, sizes) if one[1][by] > enough)
        found = next(inner, None)
        if found is None:
            break
        place = found
    return place


def _describe(path: str, extent: tuple[int, int]) -> str:
    return f"{shown(path)} ({_extent(*extent) if path.endswith('/') else amount(extent[0])})"


def _extent(size: int, count: int) -> str:
    return f"{amount(size)} in {count:,} {'file' if count == 1 else 'files'}"
