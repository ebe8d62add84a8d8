"""The environments on this machine: their sizes, the runs that use them, and the time of last use."""

from __future__ import annotations

import os
import re

from ..attempts import newest_attempt
from ..shared import machine
from ..shared.disk_totals import DiskUsage
from ..shared.environment_layout import python_of
from ..shared.layout import Root, RunFolder, is_claimed
from .archive_record import environment_paths
from .environment_state import find_damage, is_intact, list_environments, list_leftovers, use_lock_path

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Set

    Answer = Dict[str, Any]

ASIDE = ".clean-"
REPLACED_SUFFIX = ".replaced-"
DIGEST = re.compile(r"[0-9a-f]{64}")
_LEFTOVER = re.compile(
    r"[0-9a-f]{64}(\.tmp|\.replaced-[0-9a-f]{16}|\.tar\.gz(\.part)?)?|\.clean-[0-9a-f]{16}(\.tar\.gz)?"
)
_MAX_RUNS = 1000  # maximum number of runs listed in a response


class InUse(Exception):
    """Error for something that cannot be removed, with the reason and the runs that use it."""

    def __init__(self, reason: str, runs: List[str]) -> None:
        super().__init__(reason)
        self.why = reason
        self.runs = runs


# -- usage -------------------------------------------------------------------------------------------


def has_ended(run: RunFolder) -> bool:
    try:
        with open(run.events, "rb") as file:
            return b'"kind": "finished"' in file.read()
    except OSError:
        return False


def has_open_job(run: RunFolder) -> bool:
    """Return whether a scheduler has a job of the run, which may still wait, or run on another machine."""
    return os.path.exists(run.handle) and not has_ended(run)


def runs_using(root: Root, digest: str) -> List[str]:
    """Return the runs that used an environment, latest last."""
    try:
        with open(use_lock_path(root.environment(digest)), encoding="utf-8", errors="replace") as file:
            names = [line.rstrip("\n") for line in file]
    except OSError:
        return []
    return list(dict.fromkeys(name for name in names if name and "/" not in name and name[0] not in ".-"))


def unfinished_runs(root: Root, names: List[str]) -> List[str]:
    """Return the runs that were started on this machine and have not ended, whether supervised or not.

    A scheduler may requeue the job of a run whose script has ended once.
    """
    runs = ((name, newest_attempt(root.run(name))) for name in names)
    return [
        name
        for name, run in runs
        if is_claimed(run) and not has_ended(run) and (has_open_job(run) or not os.path.exists(run.exit))
    ]


def last_use(root: Root, digest: str, record: Answer) -> float:
    """Return the time of the last use or of the build. A run uses its environment until it ends."""
    times = [float(record.get("built") or 0.0), _modified(use_lock_path(root.environment(digest)))]
    times += [_modified(root.run(name).events) for name in runs_using(root, digest)[-_MAX_RUNS:]]
    return max(times)


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def is_held(root: Root, digest: str) -> bool:
    """Return whether a run holds the environment now."""
    path = use_lock_path(root.environment(digest))
    if not os.path.exists(path):
        return False
    holder = machine.lock(path)
    if holder is None:
        return True
    os.close(holder)
    return False


def list_building(root: Root) -> Set[str]:
    """Return the digests of environments that are being built."""
    names = [name[: -len(".lock")] for name in _list_names(root.envs) if name.endswith(".lock")]
    return {name for name in names if machine.is_locked(root.environment(name) + ".lock")}


# -- listing -----------------------------------------------------------------------------------------


def list_records(root: Root) -> Dict[str, Answer]:
    """Return records by digest, newest first."""
    return {record["digest"]: record for record in list_environments(root) if DIGEST.fullmatch(str(record["digest"]))}


def describe_all(root: Root, request: Answer) -> Answer:
    """Describe all environments, including those being built; with ``sizes``, include their sizes."""
    building = list_building(root)
    entries = [
        _entry(root, digest, record, building, bool(request.get("sizes")))
        for digest, record in list_records(root).items()
    ]
    digests = {entry["digest"] for entry in entries}
    entries += [_entry(root, digest, {}, building, False) for digest in sorted(building - digests)]
    usage = DiskUsage()
    paths = [path for path in removable_leftovers(root) if os.path.basename(path)[:64] not in building]
    for path in paths if request.get("sizes") else ():
        usage.add(path)
    return {"ok": True, "environments": entries, "leftovers": len(paths), "leftover_bytes": usage.size}


def _entry(root: Root, digest: str, record: Answer, building: Set[str], sizes: bool) -> Answer:
    names = runs_using(root, digest)
    lock = record.get("lock") or {}
    entry = {
        "digest": digest,
        "path": root.environment(digest),
        "python": (record.get("python") or {}).get("version"),
        "platform": lock.get("platform"),
        "packages": record.get("packages"),
        "built": record.get("built"),
        "seconds": record.get("seconds"),
        "used": last_use(root, digest, record) if record else None,
        "runs": len(names),
        "going": unfinished_runs(root, names)[-_MAX_RUNS:],
        "held": is_held(root, digest),
        "building": digest in building,
    }
    if sizes:
        entry["size"], entry["own"] = DiskUsage().add(*environment_paths(root.environment(digest)))
    return entry


def describe_one(root: Root, request: Answer) -> Answer:
    """Describe one environment; with ``verify``, compare every file with its package's record."""
    digest = str(request["digest"])
    record = list_records(root).get(digest)
    if record is None:
        return {"ok": False, "problem": "environment %a was not found" % digest[:80]}
    lock = record["lock"]
    entry = _entry(root, digest, record, list_building(root), True)
    keys = ("name", "version", "build", "url", "git", "commit", "subdir")
    entry.update(
        {
            "source": lock["python"].get("source"),
            "home": record.get("home"),
            "glibc": lock.get("glibc"),
            "cuda": lock.get("cuda"),
            "conda": [{key: package.get(key) for key in keys if package.get(key)} for package in lock["conda"]],
            "pip": [{key: package.get(key) for key in keys if package.get(key)} for package in lock["pip"]],
            "used_by": runs_using(root, digest)[-_MAX_RUNS:],
            "sound": is_intact(root, lock),
            "runs_here": os.access(python_of(root.environment(digest)), os.X_OK),
        }
    )
    if request.get("verify"):
        problems = find_damage(root, lock)
        entry.update(damage=problems[:_MAX_RUNS], damaged=len(problems))
    return {"ok": True, "environment": entry}


def removable_leftovers(root: Root) -> List[str]:
    """Return the leftovers of incomplete builds and removals.

    Other files may belong to users and are kept.
    """
    return [
        path
        for path in list_leftovers(root)
        if _LEFTOVER.fullmatch(os.path.basename(path)) and not os.path.islink(path)
    ]


def is_replaced_in_use(root: Root, path: str) -> bool:
    """Return whether containers may still use a replaced environment (``image_environments.py``)."""
    digest, replaced, _ = os.path.basename(path).partition(REPLACED_SUFFIX)
    return bool(replaced) and (is_held(root, digest) or bool(unfinished_runs(root, runs_using(root, digest))))


def list_idle(root: Root, seconds: float, now: float) -> List[str]:
    """Return the environments that have not been used for at least ``seconds``."""
    return [digest for digest, record in list_records(root).items() if now - last_use(root, digest, record) >= seconds]


def _list_names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
