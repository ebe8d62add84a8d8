"""What builds of environments share, and can fetch again: caches, packages that were sent along, tools.

Nothing of it is needed once an environment is built, but for a Python of uv's that several environments share.
"""

from __future__ import annotations

import os
import re
import time

from ..shared import machine
from ..shared.layout import Root
from ..shared.tree import make_private
from .environment import caches_lock
from .stock import ASIDE, InUse, going_on, in_building, notes, users

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Iterator, List, Tuple

    Piece = Tuple[str, str, str]  # kind, name, path

YOUNG = 3600.0  # a package that came in the last hour: a run may be about to need it
# Below cache/. Earlier versions filled "conda", where a name decides and not the content: nothing reads it any more.
BUILDERS = ("uv", "conda-by-sha256", "conda")
CARRIED = ("packages", "repodata")  # below cache/ of a client, which fetches for others
_TOOL = re.compile(r"(uv|py-rattler)-.+-[0-9a-f]{8,32}(\.[0-9a-f]{8}\.part)?")
_LEFT = re.compile(r"\.clean-[0-9a-f]{16}")


def caches(root: Root) -> "List[Piece]":
    """All of it that can go now."""
    names = [name for name in _names(root.caches) if name in BUILDERS or _LEFT.match(name)]
    found = [("cache", name, os.path.join(root.caches, name)) for name in names]
    return [*found, *_old_files(root), *_tools(root)]


def take_caches(root: Root, dry: bool) -> "List[Piece]":
    """The pieces, no longer where builds look for them, to be measured and deleted; raises InUse while one builds."""
    if dry:
        _refuse_builds(root)
        return caches(root)
    make_private(root.envs)
    holder = machine.lock(caches_lock(root))
    if holder is None:
        raise InUse("an environment is being built", [])
    try:
        _refuse_builds(root)
        return [(kind, name, _set_aside(path)) for kind, name, path in caches(root)]
    finally:
        os.close(holder)


def _refuse_builds(root: Root) -> None:
    building = sorted(in_building(root))
    if building:
        runs = [name for digest in building for name in going_on(root, users(root, digest))]
        raise InUse("environment %s is being built" % building[0][:12], runs)


def _set_aside(path: str) -> str:
    """By a rename, so that no build ever sees half of it."""
    folder, name = os.path.split(path)
    if _LEFT.match(name) or not os.path.isdir(path):
        return path
    if os.path.exists(path + ".ready"):  # a Python: without this it is fetched anew
        os.unlink(path + ".ready")
    aside = os.path.join(folder, ASIDE + os.urandom(8).hex())
    os.rename(path, aside)
    return aside


def _old_files(root: Root) -> "Iterator[Piece]":
    within = [os.path.join(root.packages, one) for one in ("named", "pythons")]
    for folder in (root.packages, *within):
        for name in _names(folder):
            path = os.path.join(folder, name)
            if path not in within and _is_old(path):
                yield "package", name, path
    for folder in [os.path.join(root.caches, one) for one in CARRIED]:
        for place, _, names in os.walk(folder) if not os.path.islink(folder) else ():
            for name in names:
                if _is_old(os.path.join(place, name)):
                    yield "cache", name, os.path.join(place, name)


def _is_old(path: str) -> bool:
    try:
        facts = os.lstat(path)
        return time.time() - max(facts.st_mtime, facts.st_ctime) > YOUNG  # a new name for an old file is news, too
    except OSError:
        return False  # gone meanwhile


def _tools(root: Root) -> "Iterator[Piece]":
    for name in _names(root.tools):
        if _TOOL.fullmatch(name) or _LEFT.match(name):
            yield "tool", name, os.path.join(root.tools, name)
    used = {note.get("home") for note in notes(root).values()}
    base = os.path.join(root.tools, "python")
    for name in _names(base):
        path = os.path.join(base, name)
        ours = name.startswith(("cpython-", "pypy-")) or _LEFT.match(name)
        if ours and os.path.isdir(path) and not os.path.islink(path) and path not in used:
            yield "tool", name, path


def _names(folder: str) -> "List[str]":
    """None of a link's: where that leads is not ours."""
    try:
        return [] if os.path.islink(folder) else os.listdir(folder)
    except OSError:
        return []
