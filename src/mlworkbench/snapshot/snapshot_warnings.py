"""Messages for the user about a snapshot."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Sequence

from ..remote.shared.folder_tree import join
from ..sanitize import plain
from .ignore_rules import MLW_IGNORE, SECRET, SPECIAL, USUAL
from .scan_cache import Folder

LARGE_SIZE = 100 * 1000 * 1000
LARGE_COUNT = 20_000
_SHOWN = 3
_BIGGEST = 5
_NARROW = 0.9

Sizes = dict[str, tuple[int, int]]  # folder → (bytes, files)
Place = tuple[str, tuple[int, int]]  # a file, or a folder with a final slash; (bytes, files)


def format_size(size: float) -> str:
    """Format a size in powers of 1000, such as ``12 B``, ``3.4 kB``, or ``1.2 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 99.5 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def format_paths(paths: Sequence[str]) -> str:
    more = f", and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    return ", ".join(plain(path) for path in paths[:_SHOWN]) + more


def describe_folders(folders: dict[str, Folder]) -> list[str]:
    """Return messages that depend only on the project, not on changes during the snapshot."""
    special = _left(folders, SPECIAL)
    secret = _left(folders, SECRET)
    outside = sorted(_links_outside(folders))
    notes = []
    if special:
        notes.append(f"{_count(special, 'special file')} (FIFO, socket, or device) skipped: {format_paths(special)}")
    if outside:
        notes.append(f"{_count(outside, 'link')} to files outside the project kept as links: {format_paths(outside)}")
    if secret:
        notes.append(
            f"{_count(secret, 'path')} excluded (possible secrets): {format_paths(secret)};"
            f" to include one, add !{plain(os.path.basename(secret[0].rstrip('/')))} to {MLW_IGNORE}"
        )
    return notes + _collisions(folders) + _size(folders)


def describe_usual(folders: dict[str, Folder]) -> str | None:
    """Return a note about folders excluded by default. It is not a warning: most projects have some."""
    usual = _left(folders, USUAL)
    if not usual:
        return None
    return (
        f"{_count(usual, 'folder')} excluded by default (environments, caches, and similar): {format_paths(usual)};"
        f" to include one, add !{plain(os.path.basename(usual[0].rstrip('/')))} to {MLW_IGNORE}"
    )


def describe_reading(changed: Sequence[str], gone: Sequence[str]) -> list[str]:
    """Return messages about files that changed during the snapshot."""
    notes = []
    if changed:
        notes.append(f"{_count(changed, 'file')} changed while being read: {format_paths(changed)}")
    if gone:
        notes.append(f"{_count(gone, 'path')} disappeared while being read, not included: {format_paths(gone)}")
    return notes


def _count(items: Sequence[str], noun: str) -> str:
    return f"{len(items):,} {noun}" if len(items) == 1 else f"{len(items):,} {noun}s"


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
    """Return a message about names that macOS and Windows treat as equal, but Linux does not."""
    pairs = []
    for path, folder in folders.items():
        names: dict[str, str] = {}
        for name in [*folder["files"], *folder["links"], *folder["folders"]]:
            key = name if name.isascii() else unicodedata.normalize("NFC", name)
            other = names.setdefault(key.casefold(), name)
            if other is not name:
                first, second = sorted((other, name))
                pairs.append(f"{join(path, first)} and {second}")
    if not pairs:
        return []
    pairs.sort()
    return [f"{_count(pairs, 'pair')} of names would collide on macOS and Windows: {format_paths(pairs)}"]


def _size(folders: dict[str, Folder]) -> list[str]:
    sizes = _sum(folders)
    size, count = sizes[""]
    if size <= LARGE_SIZE and count <= LARGE_COUNT:
        return []
    by = 0 if size > LARGE_SIZE else 1
    largest = [_narrow(place, folders, sizes, by) for place in _children("", folders, sizes)]
    largest.sort(key=lambda place: (-place[1][by], place[0]))
    places = ", ".join(_describe(*place) for place in largest[:_BIGGEST])
    return [
        f"the project is large, {_extent(size, count)}; largest: {places};"
        f" list what the run does not need in {MLW_IGNORE}"
    ]


def _sum(folders: dict[str, Folder]) -> Sizes:
    """Return (bytes, files) below each folder.

    Reads ``folders`` in reverse, because parents precede their children.
    """
    sums: Sizes = {}
    for path in reversed(folders):
        files = folders[path]["files"].values()
        size, count = sum(file[0] for file in files), len(files)
        for name in folders[path]["folders"]:
            below = sums.get(join(path, name), (0, 0))
            size, count = size + below[0], count + below[1]
        sums[path] = (size, count)
    return sums


def _children(path: str, folders: dict[str, Folder], sizes: Sizes) -> Iterable[Place]:
    """Yield each file and subfolder of a folder."""
    for name, file in folders[path]["files"].items():
        yield join(path, name), (file[0], 1)
    for name in folders[path]["folders"]:
        inner = join(path, name)
        if inner in sizes:
            yield f"{inner}/", sizes[inner]


def _narrow(place: Place, folders: dict[str, Folder], sizes: Sizes, by: int) -> Place:
    """Return the innermost file or folder that contains nearly all bytes or files of ``place``.

    For example, "data/raw/2019/" is more useful than "data/".
    """
    enough = place[1][by] * _NARROW
    while place[0].endswith("/"):
        dominants = (child for child in _children(place[0][:-1], folders, sizes) if child[1][by] > enough)
        dominant = next(dominants, None)
        if dominant is None:
            break
        place = dominant
    return place


def _describe(path: str, extent: tuple[int, int]) -> str:
    return f"{plain(path)} ({_extent(*extent) if path.endswith('/') else format_size(extent[0])})"


def _extent(size: int, count: int) -> str:
    return f"{format_size(size)} in {count:,} {'file' if count == 1 else 'files'}"
