"""The environments of this machine: how large they are, who uses them, and since when nobody does."""

from __future__ import annotations

import os
import re

from ..shared import machine
from ..shared.disk_tally import Tally
from ..shared.environment_layout import python_of
from ..shared.layout import Root, RunFolder, is_taken
from .environment import damage, environments, is_sound, leftovers, use_of
from .packed import parts_of

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Set

    Answer = Dict[str, Any]

ASIDE = ".clean-"
REPLACED = ".replaced-"
DIGEST = re.compile(r"[0-9a-f]{64}")
_LEFT = re.compile(r"[0-9a-f]{64}(\.tmp|\.replaced-[0-9a-f]{16}|\.tar\.gz(\.part)?)?|\.clean-[0-9a-f]{16}(\.tar\.gz)?")
_SHOWN = 1000  # runs named in an answer at most


class InUse(Exception):
    """It has to stay: why, and which runs are the reason."""

    def __init__(self, why: str, runs: List[str]) -> None:
        super().__init__(why)
        self.why = why
        self.runs = runs


# -- who uses them -----------------------------------------------------------------------------------


def has_ended(run: RunFolder) -> bool:
    try:
        with open(run.events, "rb") as file:
            return b'"kind": "finished"' in file.read()
    except OSError:
        return False


def users(root: Root, digest: str) -> List[str]:
    """Runs that used it, the latest last."""
    try:
        with open(use_of(root.environment(digest)), encoding="utf-8", errors="replace") as file:
            names = [line.rstrip("\n") for line in file]
    except OSError:
        return []
    return list(dict.fromkeys(name for name in names if name and "/" not in name and name[0] not in ".-"))


def going_on(root: Root, names: List[str]) -> List[str]:
    """Those of them that have begun here and not ended, whether or not somebody supervises them now."""
    runs = ((name, root.run(name)) for name in names)
    return [name for name, run in runs if is_taken(run) and not os.path.exists(run.exit) and not has_ended(run)]


def last_use(root: Root, digest: str, note: Answer) -> float:
    """By a run, or when it was built. A run uses it to its end, which may be long after it has begun."""
    times = [float(note.get("built") or 0.0), _changed(use_of(root.environment(digest)))]
    times += [_changed(root.run(name).events) for name in users(root, digest)[-_SHOWN:]]
    return max(times)


def _changed(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def is_held(root: Root, digest: str) -> bool:
    """Whether a run holds it now."""
    path = use_of(root.environment(digest))
    if not os.path.exists(path):
        return False
    holder = machine.lock(path)
    if holder is None:
        return True
    os.close(holder)
    return False


def in_building(root: Root) -> Set[str]:
    """Digests of those that somebody is building now."""
    names = [name[: -len(".lock")] for name in _names(root.envs) if name.endswith(".lock")]
    return {name for name in names if machine.is_locked(root.environment(name) + ".lock")}


# -- what is there -----------------------------------------------------------------------------------


def notes(root: Root) -> Dict[str, Answer]:
    """digest → note, the newest first."""
    return {note["digest"]: note for note in environments(root) if DIGEST.fullmatch(str(note["digest"]))}


def every(root: Root, request: Answer) -> Answer:
    """All environments, also those that are just being built; with ``sizes`` how large each is."""
    building = in_building(root)
    found = [_entry(root, digest, note, building, bool(request.get("sizes"))) for digest, note in notes(root).items()]
    known = {one["digest"] for one in found}
    found += [_entry(root, digest, {}, building, False) for digest in sorted(building - known)]
    left = Tally()
    paths = [path for path in broken(root) if os.path.basename(path)[:64] not in building]
    for path in paths if request.get("sizes") else ():
        left.add(path)
    return {"ok": True, "environments": found, "leftovers": len(paths), "leftover_bytes": left.size}


def _entry(root: Root, digest: str, note: Answer, building: Set[str], sizes: bool) -> Answer:
    names = users(root, digest)
    lock = note.get("lock") or {}
    made = {
        "digest": digest,
        "path": root.environment(digest),
        "python": (note.get("python") or {}).get("version"),
        "platform": lock.get("platform"),
        "packages": note.get("packages"),
        "built": note.get("built"),
        "seconds": note.get("seconds"),
        "used": last_use(root, digest, note) if note else None,
        "runs": len(names),
        "going": going_on(root, names)[-_SHOWN:],
        "held": is_held(root, digest),
        "building": digest in building,
    }
    if sizes:
        made["size"], made["own"] = Tally().add(*parts_of(root.environment(digest)))
    return made


def one(root: Root, request: Answer) -> Answer:
    """All about one; with ``verify`` every file is compared with what its package says of it."""
    digest = str(request["digest"])
    note = notes(root).get(digest)
    if note is None:
        return {"ok": False, "problem": "environment %a was not found" % digest[:80]}
    lock = note["lock"]
    made = _entry(root, digest, note, in_building(root), True)
    kept = ("name", "version", "build", "url", "git", "commit", "subdir")
    made.update(
        {
            "source": lock["python"].get("source"),
            "home": note.get("home"),
            "glibc": lock.get("glibc"),
            "cuda": lock.get("cuda"),
            "conda": [{key: package.get(key) for key in kept if package.get(key)} for package in lock["conda"]],
            "pip": [{key: package.get(key) for key in kept if package.get(key)} for package in lock["pip"]],
            "used_by": users(root, digest)[-_SHOWN:],
            "sound": is_sound(root, lock),
            "runs_here": os.access(python_of(root.environment(digest)), os.X_OK),
        }
    )
    if request.get("verify"):
        wrong = damage(root, lock)
        made.update(damage=wrong[:_SHOWN], damaged=len(wrong))
    return {"ok": True, "environment": made}


def broken(root: Root) -> List[str]:
    """What is left of builds that did not end, and of removals. Whatever else lies there is somebody's, and stays."""
    return [path for path in leftovers(root) if _LEFT.fullmatch(os.path.basename(path)) and not os.path.islink(path)]


def is_replaced_in_use(root: Root, path: str) -> bool:
    """Whether containers may still run in an environment that another has replaced (``built_in.py``)."""
    digest, replaced, _ = os.path.basename(path).partition(REPLACED)
    return bool(replaced) and (is_held(root, digest) or bool(going_on(root, users(root, digest))))


def idle(root: Root, seconds: float, now: float) -> List[str]:
    """Those that nobody has used for so long, nor uses now."""
    return [digest for digest, note in notes(root).items() if now - last_use(root, digest, note) >= seconds]


def _names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
