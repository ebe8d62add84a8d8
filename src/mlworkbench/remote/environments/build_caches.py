"""Files that environment builds share and can fetch again: caches, uploaded packages, and tools.

A built environment does not need them, except a Python interpreter that uv installed, which several
environments may share.
"""

from __future__ import annotations

import os
import re
import time

from ..shared import machine
from ..shared.folder_tree import make_private
from ..shared.layout import Root
from .environment_state import caches_lock
from .environment_usage import ASIDE, InUse, list_building, list_records, runs_using, unfinished_runs

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Iterator, List, Tuple

    CacheEntry = Tuple[str, str, str]  # kind, name, path

MIN_AGE = 3600.0  # seconds; a run may soon need a recently added package
# Folders below cache/. Only earlier versions use "conda", which identifies packages by name, not by content.
BUILD_CACHES = ("uv", "conda-by-sha256", "conda")
CLIENT_CACHES = ("packages", "repodata")  # folders below cache/ on a client, which downloads packages for targets
_TOOL = re.compile(r"(uv|py-rattler)-.+-[0-9a-f]{8,32}(\.[0-9a-f]{8}\.part)?")
_ASIDE = re.compile(r"\.clean-[0-9a-f]{16}")


def removable_entries(root: Root) -> "List[CacheEntry]":
    """Return the caches, packages, and tools that can be removed now."""
    names = [name for name in _list_names(root.caches) if name in BUILD_CACHES or _ASIDE.match(name)]
    pieces = [("cache", name, os.path.join(root.caches, name)) for name in names]
    return [*pieces, *_old_files(root), *_tools(root)]


def set_caches_aside(root: Root, dry_run: bool) -> "List[CacheEntry]":
    """Rename caches and tools, so that builds cannot use them, and return everything to be removed.

    Raises InUse during a build.
    """
    if dry_run:
        _refuse_builds(root)
        return removable_entries(root)
    make_private(root.envs)
    holder = machine.lock(caches_lock(root))
    if holder is None:
        raise InUse("an environment is being built", [])
    try:
        _refuse_builds(root)
        return [(kind, name, _set_aside(path)) for kind, name, path in removable_entries(root)]
    finally:
        os.close(holder)


def _refuse_builds(root: Root) -> None:
    building = sorted(list_building(root))
    if building:
        runs = [name for digest in building for name in unfinished_runs(root, runs_using(root, digest))]
        raise InUse("environment %s is being built" % building[0][:12], runs)


def _set_aside(path: str) -> str:
    """Rename a folder, so that no build uses it while it is being removed, and return its new path.

    Files, and folders that were already renamed, keep their paths.
    """
    folder, name = os.path.split(path)
    if _ASIDE.match(name) or not os.path.isdir(path):
        return path
    if os.path.exists(path + ".ready"):  # Without this marker, the Python interpreter is downloaded again.
        os.unlink(path + ".ready")
    aside = os.path.join(folder, ASIDE + os.urandom(8).hex())
    os.rename(path, aside)
    return aside


def _old_files(root: Root) -> "Iterator[CacheEntry]":
    subfolders = [os.path.join(root.packages, subfolder) for subfolder in ("named", "pythons")]
    for folder in (root.packages, *subfolders):
        for name in _list_names(folder):
            path = os.path.join(folder, name)
            if path not in subfolders and _is_old(path):
                yield "package", name, path
    for folder in [os.path.join(root.caches, subfolder) for subfolder in CLIENT_CACHES]:
        for parent, _, names in os.walk(folder) if not os.path.islink(folder) else ():
            for name in names:
                if _is_old(os.path.join(parent, name)):
                    yield "cache", name, os.path.join(parent, name)


def _is_old(path: str) -> bool:
    try:
        status = os.lstat(path)
        return time.time() - max(status.st_mtime, status.st_ctime) > MIN_AGE  # a renamed old file counts as new
    except OSError:
        return False  # already removed


def _tools(root: Root) -> "Iterator[CacheEntry]":
    for name in _list_names(root.tools):
        if _TOOL.fullmatch(name) or _ASIDE.match(name):
            yield "tool", name, os.path.join(root.tools, name)
    used = {note.get("home") for note in list_records(root).values()}
    base = os.path.join(root.tools, "python")
    for name in _list_names(base):
        path = os.path.join(base, name)
        is_managed = name.startswith(("cpython-", "pypy-")) or _ASIDE.match(name)
        if is_managed and os.path.isdir(path) and not os.path.islink(path) and path not in used:
            yield "tool", name, path


def _list_names(folder: str) -> "List[str]":
    """Return the names in a folder; none if the folder is a link, which may lead outside."""
    try:
        return [] if os.path.islink(folder) else os.listdir(folder)
    except OSError:
        return []
