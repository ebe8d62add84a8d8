"""What differs between the code of two runs: files, and their lines."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from ..model import Run
from ..paths import Root
from ..remote.shared.manifest import read_manifest
from ..remote.shared.tree import READ, Folders, join
from ..snapshot.scan import Scan
from .linediff import LineDiff

LARGEST = 256 * 1024  # bytes of a file that is shown line by line
LINES = 400  # of the diff of one file
ALL_LINES = 4000
_CHUNK = 1 << 20
_OPEN = READ | getattr(os, "O_NONBLOCK", 0)

File = tuple[str, str, int]  # kind, content (a file's digest, or the text of a link), mode
Lines = Callable[[str, "File | None"], "list[str] | None"]  # of the file under this path; None: not to be shown


def code_difference(root: Root, old: Run, new: Run, budget: LineDiff) -> dict[str, Any]:
    """Which files differ, how, and the lines; ``budget``: what may still be compared and shown."""
    for run in (old, new):
        if not run.spec.snapshot:
            return {"files": [], "diff": [], "problem": f"run {run.id} was not submitted by mlw: no code recorded"}
    if old.spec.snapshot == new.spec.snapshot:
        return {"files": [], "diff": []}
    try:
        before, after = _files(root, old), _files(root, new)
    except OSError as error:
        return {"files": [], "diff": [], "problem": f"the code of a run is no longer available: {error.strerror}"}
    return _told(before, after, partial(_text, root), partial(_text, root), budget)


def folder_difference(root: Root, run: Run, folder: str, budget: LineDiff) -> dict[str, Any]:
    """The same between the code of a run and a project's folder as it is now."""
    if not run.spec.snapshot:
        return {"files": [], "diff": [], "problem": f"run {run.id} was not submitted by mlw: no code recorded"}
    try:
        before = _files(root, run)
        home, base = os.path.realpath(root.path), os.path.realpath(folder)
        scan = Scan(base, {}, skip=os.path.relpath(home, base) if home.startswith(base + os.sep) else None)
        with Folders(base) as handles:
            after = _files_now(scan, handles)
            return _told(before, after, partial(_text, root), partial(_text_now, handles), budget)
    except OSError as error:
        return {"files": [], "diff": [], "problem": f"cannot compare code: {error.strerror}"}


def _told(before: dict[str, File], after: dict[str, File], old: Lines, new: Lines, budget: LineDiff) -> dict[str, Any]:
    changed = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    files = [{"path": path, "change": _change(before.get(path), after.get(path))} for path in changed]
    diff: list[str] = []
    for path in changed:
        shown = _diff(path, before.get(path), after.get(path), old, new, budget) if budget.lines > 0 else []
        budget.lines -= len(shown)
        diff += shown
    return {"files": files, "diff": diff}


def _files(root: Root, run: Run) -> dict[str, File]:
    """Path → kind, content and mode: a file's digest, or the text of a link."""
    manifest = read_manifest(root.snapshot(run.spec.snapshot))
    found = {path: ("file", sha256, mode) for path, sha256, _, mode in manifest["files"]}
    return {**found, **{path: ("link", text, 0) for path, text in manifest["links"]}}


def _files_now(scan: Scan, handles: Folders) -> dict[str, File]:
    found: dict[str, File] = {}
    for folder, one in scan.folders.items():
        for name, known in one["files"].items():
            with open(os.open(name, _OPEN, dir_fd=handles.open(folder)), "rb", buffering=0) as file:
                digest = hashlib.sha256()
                while data := file.read(_CHUNK):
                    digest.update(data)
            found[join(folder, name)] = ("file", digest.hexdigest(), known[4])
        found.update({join(folder, name): ("link", text, 0) for name, text in one["links"].items()})
    return found


def _change(before: File | None, after: File | None) -> str:
    if before is None or after is None:
        return "added" if before is None else "removed"
    return "mode" if before[:2] == after[:2] else "changed"


def _diff(
    path: str, before: File | None, after: File | None, read_old: Lines, read_new: Lines, budget: LineDiff
) -> list[str]:
    if before is not None and after is not None and before[:2] == after[:2]:
        return [f"--- {path}", f"+++ {path}", f"mode {before[2]:o} -> {after[2]:o}"]
    old, new = read_old(path, before), read_new(path, after)
    if old is None or new is None:
        return [f"--- {path}", f"+++ {path}", "(not shown: binary, too large, or no longer available)"]
    names = path if before else "(nothing)", path if after else "(nothing)"
    found = budget.unified(old, new, *names)
    if found is None:
        return [f"--- {path}", f"+++ {path}", "(not shown: too many differences)"]
    if len(found) > LINES:
        found[LINES:] = [f"({len(found) - LINES} more lines)"]
    return found


def _text(root: Root, path: str, known: File | None) -> list[str] | None:
    """The lines of a file; None if they cannot be shown."""
    if known is None:
        return []
    kind, content, _ = known
    if kind == "link":
        return [f"link to {content}"]
    try:
        with open(root.blob(content), "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError:
        return None
    return _lines(data)


def _text_now(handles: Folders, path: str, known: File | None) -> list[str] | None:
    if known is None:
        return []
    if known[0] == "link":
        return [f"link to {known[1]}"]
    folder, _, name = path.rpartition("/")
    with open(os.open(name, _OPEN, dir_fd=handles.open(folder)), "rb") as file:
        return _lines(file.read(LARGEST + 1))


def _lines(data: bytes) -> list[str] | None:
    if len(data) > LARGEST or b"\0" in data:
        return None
    return data.decode("utf-8", "replace").splitlines()
