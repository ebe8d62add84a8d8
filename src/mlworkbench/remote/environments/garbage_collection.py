"""The removal of environments, of what broken builds left, and of what builds share.

Others build and start runs at the same moment. Who removes holds both locks of an environment (``environment.py``)
while it gets another name, and deletes afterwards: a run that comes meanwhile finds all of it, or none and builds it.
"""

from __future__ import annotations

import errno
import os
import time

from ..shared import machine
from ..shared.disk_tally import Tally
from ..shared.environment_layout import packed
from ..shared.files import read_json
from ..shared.kept_reasons import RECENT, SHARED, USED
from ..shared.layout import Root
from ..shared.tree import remove as remove_tree
from .caches import take_caches
from .environment import files_of, note_of, unprotect, use_of
from .packed import parts_of
from .stock import (
    ASIDE,
    DIGEST,
    InUse,
    broken,
    going_on,
    idle,
    in_building,
    is_held,
    is_replaced_in_use,
    last_use,
    notes,
    users,
)

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set, Tuple

    Answer = Dict[str, Any]

IDLE = 30 * 86400.0  # seconds without use, after which `mlw experiment clean` frees an environment


# -- one of them ---------------------------------------------------------------------------------------


def take_away(root: Root, digest: str, dry: bool = False, seconds: float = 0.0, now: Optional[float] = None) -> str:
    """Folder of an environment that counts no more, to be measured and deleted; raises InUse.

    ``seconds``: only if nobody has used it for so long. ``dry``: only looks, and the folder is where it was.
    """
    prefix = root.environment(digest)
    if not os.path.lexists(prefix):
        if machine.is_locked(prefix + ".lock"):
            raise InUse("being built", going_on(root, users(root, digest)))
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), prefix)
    holder = machine.lock(use_of(prefix))
    going = going_on(root, users(root, digest))
    if holder is None:
        raise InUse("in use", going)
    try:
        if going:
            raise InUse("in use", going)
        builder = machine.lock(prefix + ".lock")
        if builder is None:
            raise InUse("being built", [])
        try:
            recent = (now or time.time()) - last_use(root, digest, read_json(note_of(prefix)) or {}) < seconds
            if recent:
                raise InUse("used recently", [])
            return prefix if dry else _set_aside(root, prefix, holder)
        finally:
            os.close(builder)
    finally:
        os.close(holder)


def _set_aside(root: Root, prefix: str, holder: int) -> str:
    """The note first: from then on it does not count."""
    for path in (note_of(prefix), files_of(prefix), prefix + ".log", prefix + ".result"):
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
    aside = os.path.join(root.envs, ASIDE + os.urandom(8).hex())
    os.rename(prefix, aside)
    try:
        os.rename(packed(prefix), packed(aside))
    except FileNotFoundError:
        pass  # few environments are packed
    os.ftruncate(holder, 0)  # who used it is not who uses the next one of that name
    return aside


def take_leftover(root: Root, path: str, dry: bool = False) -> Optional[str]:
    """The same for what a build or a removal left; None if somebody is at work there."""
    digest = os.path.basename(path)[:64]
    if not DIGEST.fullmatch(digest):
        return path
    builder = machine.lock(root.environment(digest) + ".lock")
    if builder is None:
        return None
    try:
        prefix = root.environment(digest)
        if path in parts_of(prefix) and os.path.exists(note_of(prefix)):
            return None  # it was built meanwhile
        if is_replaced_in_use(root, path):
            return None
        if dry or not os.path.lexists(path):
            return path
        aside = os.path.join(root.envs, ASIDE + os.urandom(8).hex())
        os.rename(path, aside)
        return aside
    finally:
        os.close(builder)


def delete(aside: str) -> int:
    """What that frees."""
    freed = Tally().add(*parts_of(aside))[1]
    try:
        remove_tree(packed(aside))
        if os.path.isdir(aside) and not os.path.islink(aside):
            unprotect(aside)
        remove_tree(aside)
    except FileNotFoundError:
        pass  # somebody else removes the same
    return freed


# -- as a part of all that can go ----------------------------------------------------------------------


def for_clean(root: Root, seconds: float, unfinished: Set[str]) -> "Tuple[List[Answer], List[Answer]]":
    """Environments and leftovers, then what builds share: path, bytes, why it is needed ("": it is not).

    Bytes of what can go are what that frees; of the rest, what it takes. Nothing is counted twice.
    """
    gone, stay = Tally(), Tally()
    building = in_building(root)
    free = set(idle(root, seconds, time.time())) - building - unfinished
    found: List[Answer] = []
    for digest in notes(root):
        path = root.environment(digest)
        used = digest in building or is_held(root, digest) or bool(going_on(root, users(root, digest)))
        needed = USED if used or digest in unfinished else RECENT if digest not in free else ""
        parts = parts_of(path)
        found.append({"path": path, "needed": needed, "bytes": stay.add(*parts)[0] if needed else gone.add(*parts)[1]})
    for path in broken(root):
        at_work = os.path.basename(path)[:64] in building or is_replaced_in_use(root, path)
        needed = USED if at_work else ""
        found.append({"path": path, "needed": needed, "bytes": stay.add(path)[0] if needed else gone.add(path)[1]})
    places = [root.caches, root.packages, root.tools]
    shared = [{"path": path, "needed": SHARED, "bytes": stay.add(path)[0]} for path in places if os.path.isdir(path)]
    return found, shared


def end(root: Root, path: str, seconds: float, now: Optional[float] = None) -> int:
    """Remove an environment or a leftover that ``for_clean`` found; what that freed. Raises InUse."""
    name = os.path.basename(path)
    aside: Optional[str] = path
    if DIGEST.fullmatch(name) and os.path.exists(note_of(path)):
        aside = take_away(root, name, seconds=seconds, now=now)
    else:
        aside = take_leftover(root, path)
    if aside is None:
        raise InUse("being built", [])
    return delete(aside)


# -- as asked ------------------------------------------------------------------------------------------


def remove(root: Root, request: Answer) -> Answer:
    """Remove ``digests``; with ``unused`` also all that no run is using and none has used for ``idle`` seconds,
    and what broken builds left; with ``caches`` what builds share. With ``dry_run`` only say it."""
    work = _Removal(root, bool(request.get("dry_run")))
    for digest in request.get("digests", ()):
        if DIGEST.fullmatch(str(digest)):
            work.environment(str(digest), 0.0, named=True)
    if request.get("unused"):
        seconds = float(request.get("idle", 0.0))
        for digest in notes(root):
            if digest not in request.get("digests", ()):
                work.environment(digest, seconds, named=False)
    if request.get("unused") or request.get("caches"):
        work.broken()
    if request.get("caches"):
        work.caches()
    return {
        "ok": True,
        "removed": work.removed,
        "others": work.others,
        "kept": work.kept,
        "problems": work.problems[:20],
    }


class _Removal:
    """One request: what went, with its bytes, and what stays."""

    def __init__(self, root: Root, dry: bool) -> None:
        self.removed: List[Answer] = []
        self.others: Dict[str, Dict[str, int]] = {}
        self.kept: List[Answer] = []
        self.problems: List[str] = []
        self._root = root
        self._dry = dry
        self._tally = Tally()  # if all of it goes, what two share goes too

    def environment(self, digest: str, seconds: float, named: bool) -> None:
        try:
            path = take_away(self._root, digest, self._dry, seconds)
        except InUse as error:
            self.kept.append({"name": digest, "why": error.why, "runs": error.runs, "named": named})
        except OSError as error:
            self.problems.append("%s: %s" % (self._root.environment(digest), error.strerror))
        else:
            self._end("environment", digest, path)

    def broken(self) -> None:
        for path in broken(self._root):
            try:
                aside = take_leftover(self._root, path, self._dry)
            except OSError:
                continue  # gone meanwhile
            if aside:
                self._end("leftover", os.path.basename(path), aside)

    def caches(self) -> None:
        try:
            for kind, name, path in take_caches(self._root, self._dry):
                self._end(kind, name, path)
        except InUse as error:
            self.kept.append({"name": "caches", "why": error.why, "runs": error.runs, "named": True})

    def _end(self, kind: str, name: str, path: str) -> None:
        parts = parts_of(path) if kind == "environment" else (path,)
        try:
            freed = self._tally.add(*parts)[1] if self._dry else delete(path)
        except OSError as error:
            self.problems.append("%s: %s" % (path, error.strerror))
        else:
            if kind == "environment":
                self.removed.append({"digest": name, "bytes": freed})
                return
            sums = self.others.setdefault(kind, {"count": 0, "bytes": 0})
            sums["count"] += 1
            sums["bytes"] += freed
