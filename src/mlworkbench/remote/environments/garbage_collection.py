"""Remove environments, leftovers of incomplete builds, and files that builds share.

Other processes may build environments and start runs at the same time. A removal holds both locks
of an environment (``environment_state.py``) while it renames the environment, and deletes it
afterwards. A run that starts in the meantime finds a complete environment or builds one.
"""

from __future__ import annotations

import errno
import os
import time

from ..shared import machine
from ..shared.atomic_files import read_json
from ..shared.disk_totals import DiskUsage
from ..shared.environment_layout import pack_path
from ..shared.folder_tree import remove as remove_tree
from ..shared.kept_reasons import RECENT, SHARED, USED
from ..shared.layout import Root
from .archive_record import environment_paths
from .build_caches import set_caches_aside
from .environment_state import file_list_path, record_path, unprotect, use_lock_path
from .environment_usage import (
    ASIDE,
    DIGEST,
    InUse,
    describe_all,
    describe_one,
    is_held,
    is_replaced_in_use,
    last_use,
    list_building,
    list_idle,
    list_records,
    removable_leftovers,
    runs_using,
    unfinished_runs,
)

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set, Tuple

    Answer = Dict[str, Any]

IDLE_SECONDS = 30 * 86400.0  # seconds without use after which `mlw experiment clean` removes an environment


# -- single environments -------------------------------------------------------------------------------


def set_environment_aside(
    root: Root, digest: str, dry_run: bool = False, seconds: float = 0.0, now: Optional[float] = None
) -> str:
    """Rename an environment, so that no run uses it anymore, and return its folder for removal.

    Raises InUse. ``seconds``: rename it only if it has not been used for this number of seconds. With
    ``dry_run``, nothing is renamed.
    """
    prefix = root.environment(digest)
    if not os.path.lexists(prefix):
        if machine.is_locked(prefix + ".lock"):
            raise InUse("being built", unfinished_runs(root, runs_using(root, digest)))
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), prefix)
    holder = machine.lock(use_lock_path(prefix))
    unfinished = unfinished_runs(root, runs_using(root, digest))
    if holder is None:
        raise InUse("in use", unfinished)
    try:
        if unfinished:
            raise InUse("in use", unfinished)
        builder = machine.lock(prefix + ".lock")
        if builder is None:
            raise InUse("being built", [])
        try:
            is_recent = (now or time.time()) - last_use(root, digest, read_json(record_path(prefix)) or {}) < seconds
            if is_recent:
                raise InUse("used recently", [])
            return prefix if dry_run else _set_aside(root, prefix, holder)
        finally:
            os.close(builder)
    finally:
        os.close(holder)


def _set_aside(root: Root, prefix: str, holder: int) -> str:
    """Rename the folder. The record is removed first, so that no run uses the environment anymore."""
    for path in (record_path(prefix), file_list_path(prefix), prefix + ".log", prefix + ".result"):
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
    aside = os.path.join(root.envs, ASIDE + os.urandom(8).hex())
    os.rename(prefix, aside)
    try:
        os.rename(pack_path(prefix), pack_path(aside))
    except FileNotFoundError:
        pass  # most environments have no archive
    os.ftruncate(holder, 0)  # the listed runs do not use the next environment with this digest
    return aside


def set_leftover_aside(root: Root, path: str, dry_run: bool = False) -> Optional[str]:
    """Set aside a leftover of a build or removal and return its path; None if it is in use."""
    digest = os.path.basename(path)[:64]
    if not DIGEST.fullmatch(digest):
        return path
    builder = machine.lock(root.environment(digest) + ".lock")
    if builder is None:
        return None
    try:
        prefix = root.environment(digest)
        if path in environment_paths(prefix) and os.path.exists(record_path(prefix)):
            return None  # the environment was built in the meantime
        if is_replaced_in_use(root, path):
            return None
        if dry_run or not os.path.lexists(path):
            return path
        aside = os.path.join(root.envs, ASIDE + os.urandom(8).hex())
        os.rename(path, aside)
        return aside
    finally:
        os.close(builder)


def delete(aside: str) -> int:
    """Delete a folder that was set aside; return the freed bytes."""
    freed = DiskUsage().add(*environment_paths(aside))[1]
    try:
        remove_tree(pack_path(aside))
        if os.path.isdir(aside) and not os.path.islink(aside):
            unprotect(aside)
        remove_tree(aside)
    except FileNotFoundError:
        pass  # another process removed it
    return freed


# -- for mlw experiment clean --------------------------------------------------------------------------


def list_for_clean(root: Root, seconds: float, unfinished: Set[str]) -> "Tuple[List[Answer], List[Answer]]":
    """Return two lists of entries: environments with leftovers, and folders that builds share.

    Each entry has its path, its bytes, and the reason why it is needed, or "". Bytes are the space that
    a removal would free or, for needed entries, the space that they use. Nothing is counted twice.
    """
    removable, kept = DiskUsage(), DiskUsage()
    building = list_building(root)
    idle_digests = set(list_idle(root, seconds, time.time())) - building - unfinished
    entries: List[Answer] = []
    for digest in list_records(root):
        path = root.environment(digest)
        used = digest in building or is_held(root, digest) or bool(unfinished_runs(root, runs_using(root, digest)))
        needed = USED if used or digest in unfinished else RECENT if digest not in idle_digests else ""
        parts = environment_paths(path)
        entries.append(
            {"path": path, "needed": needed, "bytes": kept.add(*parts)[0] if needed else removable.add(*parts)[1]}
        )
    for path in removable_leftovers(root):
        is_used = os.path.basename(path)[:64] in building or is_replaced_in_use(root, path)
        needed = USED if is_used else ""
        entries.append(
            {"path": path, "needed": needed, "bytes": kept.add(path)[0] if needed else removable.add(path)[1]}
        )
    folders = [root.caches, root.packages, root.tools]
    shared = [{"path": path, "needed": SHARED, "bytes": kept.add(path)[0]} for path in folders if os.path.isdir(path)]
    return entries, shared


def remove_path(root: Root, path: str, seconds: float, now: Optional[float] = None) -> int:
    """Remove an environment or leftover that ``list_for_clean`` returned; return the freed bytes. Raises InUse."""
    name = os.path.basename(path)
    aside: Optional[str] = path
    if DIGEST.fullmatch(name) and os.path.exists(record_path(path)):
        aside = set_environment_aside(root, name, seconds=seconds, now=now)
    else:
        aside = set_leftover_aside(root, path)
    if aside is None:
        raise InUse("being built", [])
    return delete(aside)


# -- requests ------------------------------------------------------------------------------------------


def handle_remove(root: Root, request: Answer) -> Answer:
    """Remove environments as requested, and return what was removed and kept.

    ``digests`` are removed. ``unused`` adds leftovers and environments that no run has used for ``idle``
    seconds. ``caches`` adds leftovers and files that builds share. With ``dry_run``, nothing is removed.
    """
    removal = _Removal(root, bool(request.get("dry_run")))
    for digest in request.get("digests", ()):
        if DIGEST.fullmatch(str(digest)):
            removal.environment(str(digest), 0.0, named=True)
    if request.get("unused"):
        seconds = float(request.get("idle", 0.0))
        for digest in list_records(root):
            if digest not in request.get("digests", ()):
                removal.environment(digest, seconds, named=False)
    if request.get("unused") or request.get("caches"):
        removal.broken()
    if request.get("caches"):
        removal.caches()
    return {
        "ok": True,
        "removed": removal.removed,
        "others": removal.others,
        "kept": removal.kept,
        "problems": removal.problems[:20],
    }


class _Removal:
    """The result of one request: removed entries with their bytes, and kept entries."""

    def __init__(self, root: Root, dry_run: bool) -> None:
        self.removed: List[Answer] = []
        self.others: Dict[str, Dict[str, int]] = {}
        self.kept: List[Answer] = []
        self.problems: List[str] = []
        self._root = root
        self._dry_run = dry_run
        self._usage = DiskUsage()  # counts files that several environments share only once

    def environment(self, digest: str, seconds: float, named: bool) -> None:
        try:
            path = set_environment_aside(self._root, digest, self._dry_run, seconds)
        except InUse as error:
            self.kept.append({"name": digest, "why": error.why, "runs": error.runs, "named": named})
        except OSError as error:
            self.problems.append("%s: %s" % (self._root.environment(digest), error.strerror))
        else:
            self._finish("environment", digest, path)

    def broken(self) -> None:
        for path in removable_leftovers(self._root):
            try:
                aside = set_leftover_aside(self._root, path, self._dry_run)
            except OSError:
                continue  # already removed
            if aside:
                self._finish("leftover", os.path.basename(path), aside)

    def caches(self) -> None:
        try:
            for kind, name, path in set_caches_aside(self._root, self._dry_run):
                self._finish(kind, name, path)
        except InUse as error:
            self.kept.append({"name": "caches", "why": error.why, "runs": error.runs, "named": True})

    def _finish(self, kind: str, name: str, path: str) -> None:
        parts = environment_paths(path) if kind == "environment" else (path,)
        try:
            freed = self._usage.add(*parts)[1] if self._dry_run else delete(path)
        except OSError as error:
            self.problems.append("%s: %s" % (path, error.strerror))
        else:
            if kind == "environment":
                self.removed.append({"digest": name, "bytes": freed})
                return
            totals = self.others.setdefault(kind, {"count": 0, "bytes": 0})
            totals["count"] += 1
            totals["bytes"] += freed


HANDLERS = {
    "environments": describe_all,
    "environment": describe_one,
    "environments-remove": handle_remove,
}
