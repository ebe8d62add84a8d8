"""Differences between the code of two runs: files and lines."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from ..model import Run
from ..paths import Root
from ..remote.shared.folder_tree import READ, FolderHandles, join
from ..remote.shared.snapshot_manifest import read_manifest
from ..snapshot.project_scan import Scan
from .line_diff import LineDiff

MAX_FILE_BYTES = 256 * 1024  # maximum size of a file that is shown line by line
MAX_FILE_LINES = 400  # maximum lines in the diff of one file
MAX_LINES = 4000
_CHUNK = 1 << 20
_OPEN = READ | getattr(os, "O_NONBLOCK", 0)

File = tuple[str, str, int]  # kind, content (a file's digest, or a link's target), mode
ReadLines = Callable[[str, "File | None"], "list[str] | None"]  # returns a file's lines, or None if not displayable


def code_difference(root: Root, old: Run, new: Run, budget: LineDiff) -> dict[str, Any]:
    """Return the files that differ, the kind of each change, and the diff.

    ``budget`` limits comparisons and lines.
    """
    for run in (old, new):
        if not run.spec.snapshot:
            return {"files": [], "diff": [], "problem": f"run {run.id} was not submitted by mlw: no code recorded"}
    if old.spec.snapshot == new.spec.snapshot:
        return {"files": [], "diff": []}
    try:
        before, after = _snapshot_files(root, old), _snapshot_files(root, new)
    except OSError as error:
        return {"files": [], "diff": [], "problem": f"the code of a run is no longer available: {error.strerror}"}
    return _compare(before, after, partial(_stored_lines, root), partial(_stored_lines, root), budget)


def folder_difference(root: Root, run: Run, folder: str, budget: LineDiff) -> dict[str, Any]:
    """Return the differences between a run's code and the current content of a project folder."""
    if not run.spec.snapshot:
        return {"files": [], "diff": [], "problem": f"run {run.id} was not submitted by mlw: no code recorded"}
    try:
        before = _snapshot_files(root, run)
        home, base = os.path.realpath(root.path), os.path.realpath(folder)
        scan = Scan(base, {}, skip=os.path.relpath(home, base) if home.startswith(base + os.sep) else None)
        with FolderHandles(base) as handles:
            after = _folder_files(scan, handles)
            return _compare(before, after, partial(_stored_lines, root), partial(_folder_lines, handles), budget)
    except OSError as error:
        return {"files": [], "diff": [], "problem": f"cannot compare code: {error.strerror}"}


def _compare(
    before: dict[str, File], after: dict[str, File], old: ReadLines, new: ReadLines, budget: LineDiff
) -> dict[str, Any]:
    changed = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    files = [{"path": path, "change": _change(before.get(path), after.get(path))} for path in changed]
    diff: list[str] = []
    for path in changed:
        lines = _diff(path, before.get(path), after.get(path), old, new, budget) if budget.lines > 0 else []
        budget.lines -= len(lines)
        diff += lines
    return {"files": files, "diff": diff}


def _snapshot_files(root: Root, run: Run) -> dict[str, File]:
    """Return a mapping from each path to its kind, content, and mode.

    The content is a file's digest, or the target of a link.
    """
    manifest = read_manifest(root.snapshot(run.spec.snapshot))
    files = {path: ("file", sha256, mode) for path, sha256, _, mode in manifest["files"]}
    return {**files, **{path: ("link", text, 0) for path, text in manifest["links"]}}


def _folder_files(scan: Scan, handles: FolderHandles) -> dict[str, File]:
    files: dict[str, File] = {}
    for folder, content in scan.folders.items():
        for name, entry in content["files"].items():
            with open(os.open(name, _OPEN, dir_fd=handles.open(folder)), "rb", buffering=0) as file:
                digest = hashlib.sha256()
                while data := file.read(_CHUNK):
                    digest.update(data)
            files[join(folder, name)] = ("file", digest.hexdigest(), entry[4])
        files.update({join(folder, name): ("link", text, 0) for name, text in content["links"].items()})
    return files


def _change(before: File | None, after: File | None) -> str:
    if before is None or after is None:
        return "added" if before is None else "removed"
    return "mode" if before[:2] == after[:2] else "changed"


def _diff(
    path: str, before: File | None, after: File | None, read_old: ReadLines, read_new: ReadLines, budget: LineDiff
) -> list[str]:
    if before is not None and after is not None and before[:2] == after[:2]:
        return [f"--- {path}", f"+++ {path}", f"mode {before[2]:o} -> {after[2]:o}"]
    old, new = read_old(path, before), read_new(path, after)
    if old is None or new is None:
        return [f"--- {path}", f"+++ {path}", "(not shown: binary, too large, or no longer available)"]
    names = path if before else "(nothing)", path if after else "(nothing)"
    lines = budget.unified(old, new, *names)
    if lines is None:
        return [f"--- {path}", f"+++ {path}", "(not shown: too many differences)"]
    if len(lines) > MAX_FILE_LINES:
        lines[MAX_FILE_LINES:] = [f"({len(lines) - MAX_FILE_LINES} more lines)"]
    return lines


def _stored_lines(root: Root, path: str, entry: File | None) -> list[str] | None:
    """Return the lines of a stored file, or None if they cannot be displayed."""
    if entry is None:
        return []
    kind, content, _ = entry
    if kind == "link":
        return [f"link to {content}"]
    try:
        with open(root.blob(content), "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError:
        return None
    return _split_lines(data)


def _folder_lines(handles: FolderHandles, path: str, entry: File | None) -> list[str] | None:
    if entry is None:
        return []
    if entry[0] == "link":
        return [f"link to {entry[1]}"]
    folder, _, name = path.rpartition("/")
    with open(os.open(name, _OPEN, dir_fd=handles.open(folder)), "rb") as file:
        return _split_lines(file.read(MAX_FILE_BYTES + 1))


def _split_lines(data: bytes) -> list[str] | None:
    if len(data) > MAX_FILE_BYTES or b"\0" in data:
        return None
    return data.decode("utf-8", "replace").splitlines()
