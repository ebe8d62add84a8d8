"""What differs between the code of two runs: files, and their lines."""

from __future__ import annotations

import difflib
from typing import Any

from ..model import Run
from ..paths import Root
from ..remote.manifest import read_manifest

LARGEST = 256 * 1024  # bytes of a file that is shown line by line
LINES = 400  # of the diff of one file
ALL_LINES = 4000


def code_difference(root: Root, old: Run, new: Run, budget: list[int]) -> dict[str, Any]:
    """Which files differ, how, and the lines; ``budget``: as many lines as may still be shown."""
    for run in (old, new):
        if not run.spec.snapshot:
            return {"files": [], "diff": [], "problem": f"run {run.id} was not submitted, and its code was not kept"}
    if old.spec.snapshot == new.spec.snapshot:
        return {"files": [], "diff": []}
    try:
        before, after = _files(root, old), _files(root, new)
    except OSError as error:
        return {"files": [], "diff": [], "problem": f"the code of a run is no longer stored: {error.strerror}"}
    changed = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    files = [{"path": path, "change": _change(before.get(path), after.get(path))} for path in changed]
    diff: list[str] = []
    for path in changed:
        shown = _diff(root, path, before.get(path), after.get(path)) if budget[0] > 0 else []
        budget[0] -= len(shown)
        diff += shown
    return {"files": files, "diff": diff}


def _files(root: Root, run: Run) -> dict[str, tuple[str, str, int]]:
    """Path → kind, content and mode: a file's digest, or the text of a link."""
    manifest = read_manifest(root.snapshot(run.spec.snapshot))
    found = {path: ("file", sha256, mode) for path, sha256, _, mode in manifest["files"]}
    return {**found, **{path: ("link", text, 0) for path, text in manifest["links"]}}


def _change(before: tuple[str, str, int] | None, after: tuple[str, str, int] | None) -> str:
    if before is None or after is None:
        return "added" if before is None else "removed"
    return "mode" if before[:2] == after[:2] else "changed"


def _diff(root: Root, path: str, before: tuple[str, str, int] | None, after: tuple[str, str, int] | None) -> list[str]:
    if before is not None and after is not None and before[:2] == after[:2]:
        return [f"--- {path}", f"+++ {path}", f"mode {before[2]:o} -> {after[2]:o}"]
    old, new = _text(root, before), _text(root, after)
    if old is None or new is None:
        return [f"--- {path}", f"+++ {path}", "(not shown: binary, large or no longer stored)"]
    names = path if before else "(nothing)", path if after else "(nothing)"
    found = list(difflib.unified_diff(old, new, *names, lineterm=""))
    if len(found) > LINES:
        found[LINES:] = [f"({len(found) - LINES} more lines)"]
    return found


def _text(root: Root, known: tuple[str, str, int] | None) -> list[str] | None:
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
    if len(data) > LARGEST or b"\0" in data:
        return None
    return data.decode("utf-8", "replace").splitlines()
