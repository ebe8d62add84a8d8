"""What this user's folder on the machine holds, and what of it can be freed."""

from __future__ import annotations

import os
import re
import subprocess
import time

from .environments import retire
from .environments.stock import InUse, has_ended
from .run_removal import remove_run
from .shared import machine
from .shared.files import read_json
from .shared.kept_reasons import GOING, OTHER, UPLOADING, USED, YOUNG_CODE
from .shared.layout import Root, is_taken
from .shared.programs import which
from .shared.store_lock import removing_from_store
from .shared.tree import remove
from .shared.untrusted import parse_json

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

    Answer = Dict[str, Any]

KINDS = ("runs", "snapshots", "blobs", "spares", "lib", "envs", "caches")
_CODE = ("snapshots", "blobs")
# What we give names to. Whatever else lies in our folders is somebody's, and stays.
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PROJECT = re.compile(r"\.?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-contained)?(-[0-9]+-[0-9a-f]{12})?")
_LIBRARY = re.compile(r"[0-9a-f]{16}")
LEFT = re.compile(r"\.(part|bad|clean)-[0-9a-f]+")  # by a loader that was cut off
_UPLOAD = re.compile(r"part-[0-9A-Za-z._-]+")
YOUNG = 3600.0  # seconds: it may be about to be used
_NAMED = 100  # runs of each reason


def space(root: Root, request: Answer) -> Answer:
    """How much is where, how much of it nothing needs, and why the rest stays."""
    found = _survey(root, _Wanted(request, _is_idle(root)))
    disk = os.statvfs(root.path)
    sums = {
        kind: {
            "count": len(entries),
            "bytes": sum(one["bytes"] for one in entries),
            "free_count": sum(not one["needed"] for one in entries),
            "free_bytes": sum(one["bytes"] for one in entries if not one["needed"]),
            "kept": _reasons(kind, entries),
        }
        for kind, entries in found.items()
    }
    return {"ok": True, "kinds": sums, "disk_free": disk.f_bavail * disk.f_frsize, "root": root.path}


def _reasons(kind: str, entries: "List[Answer]") -> "Dict[str, Answer]":
    """Why entries stay → how many, their bytes, and of runs the names of the first ones."""
    found: Dict[str, Answer] = {}
    for one in entries:
        if one["needed"]:
            sums = found.setdefault(one["needed"], {"count": 0, "bytes": 0})
            sums["count"] += 1
            sums["bytes"] += one["bytes"]
            if kind == "runs" and sums["count"] <= _NAMED:
                sums.setdefault("names", []).append(os.path.basename(one["path"]))
    return found


def free(root: Root, request: Answer) -> Answer:
    """Remove what nothing needs, of the kinds in ``what``; with ``dry_run`` only say it.

    ``keep``: runs to be kept. ``runs``: those that may go; all that have ended, if it is not said. ``young``: code
    that came in so many seconds stays, for a submit may be about to use it. ``idle``: environments that were used in
    so many seconds stay: to build them again may take long. Caches of packages always do; see ``retire.remove``.
    """
    kinds = [kind for kind in request.get("what", KINDS) if kind in KINDS]
    if request.get("dry_run"):
        return _free(root, request, kinds, _Wanted(request, _is_idle(root)))
    # Uploads wait for the lock, so it is held for code only: what else there is may take long to look at.
    freed = _free(root, request, [kind for kind in kinds if kind not in _CODE], _Wanted(request, True))
    with removing_from_store(root) as alone:
        code = _free(root, request, [kind for kind in kinds if kind in _CODE], _Wanted(request, alone))
    for key in ("removed", "kept"):
        freed[key].update(code[key])
    freed["problems"] = (freed["problems"] + code["problems"])[:20]
    return freed


def _is_idle(root: Root) -> bool:
    """Whether no upload is under way at this moment."""
    with removing_from_store(root) as alone:
        return alone


def _free(root: Root, request: Answer, kinds: "List[str]", wanted: "_Wanted") -> Answer:
    removed: Dict[str, Dict[str, int]] = {}
    kept: Dict[str, Dict[str, Answer]] = {}
    problems: List[str] = []
    for kind, entries in _survey(root, wanted, kinds).items():
        removed[kind] = {"count": 0, "bytes": 0}
        kept[kind] = _reasons(kind, entries)
        for one in entries:
            if one["needed"]:
                continue
            try:
                if kind == "envs" and not request.get("dry_run"):
                    one["bytes"] = retire.end(root, one["path"], wanted.idle)
                elif not request.get("dry_run"):
                    _remove(kind, one["path"])
                removed[kind]["count"] += 1
                removed[kind]["bytes"] += one["bytes"]
            except InUse:
                continue  # a run has come that needs it
            except OSError as error:
                problems.append("%s: %s" % (one["path"], error.strerror))
    return {"ok": True, "removed": removed, "kept": kept, "problems": problems[:20]}


def _remove(kind: str, path: str) -> None:
    if kind == "snapshots":  # the note first: without its list it would vouch for nothing
        for note in (path[: -len(".json")] + ".checked", path):
            if os.path.lexists(note):
                os.unlink(note)
    elif kind in ("spares", "lib"):
        # Under a name that nobody asks for: whoever takes it now gets all of it, or none.
        aside = os.path.join(os.path.dirname(path), ".clean-" + os.urandom(8).hex())
        os.rename(path, aside)
        remove(aside)
    elif kind == "runs":
        remove_run(path)
    else:
        remove(path)


def linger(root: Root, request: Answer) -> Answer:
    """Let this user's processes outlive the login (logind), or take that back."""
    program = which("loginctl")
    if program is None:
        return {"ok": False, "problem": "loginctl is not installed"}
    try:
        done = subprocess.run(
            [program, "enable-linger" if request.get("on") else "disable-linger"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=30,
        )
    except subprocess.TimeoutExpired:
        return {"ok": False, "problem": "loginctl does not respond"}
    said = done.stdout.decode("utf-8", "replace").strip()
    return {"ok": True} if done.returncode == 0 else {"ok": False, "problem": said[-500:]}


# -- what is there -------------------------------------------------------------------------------------


class _Wanted:
    """What the asker says about runs. ``alone``: no upload is under way."""

    def __init__(self, request: Answer, alone: bool) -> None:
        reasons = request.get("reasons", {})
        self.keep = {name: str(reasons.get(name, OTHER)) for name in request.get("keep", [])}
        self.runs = set(request["runs"]) if "runs" in request else None
        self.young = float(request.get("young", 0))
        self.idle = float(request.get("idle", retire.IDLE))
        self.alone = alone

    def why_run(self, name: str) -> str:
        """Why a run stays; "" if it may go."""
        return self.keep.get(name) or (OTHER if self.runs is not None and name not in self.runs else "")

    def why_code(self, path: str, needed: bool) -> str:
        """The same for a list of code, or for a file that such a list names."""
        if needed:
            return USED
        return UPLOADING if not self.alone else YOUNG_CODE if _is_young(path, self.young) else ""

    def why_unlisted(self) -> str:
        """For a file that no list names: its upload was broken off, unless it is still under way."""
        return "" if self.alone else UPLOADING


def _survey(root: Root, wanted: _Wanted, kinds: "Any" = KINDS) -> "Dict[str, List[Answer]]":
    """kind → entries with path, bytes and why they stay ("": they can go). What only freed entries need can go, too."""
    runs = [found for found in (_run(root, name, wanted) for name in names_in(root.runs)) if found]
    stay = [one for one in runs if one["needed"] or "runs" not in kinds]
    digests = {one["snapshot"] for one in stay if not one["finished"]}
    snapshots = [
        {"path": path, "needed": wanted.why_code(path, name[:-5] in digests)}
        for name, path in _entries(root.snapshots)
        if name.endswith(".json") and _DIGEST.fullmatch(name[:-5])
    ]
    kept = _contents(
        (one["path"], one["needed"] or USED) for one in snapshots if one["needed"] or "snapshots" not in kinds
    )
    used = {one["lib"] for one in runs if one["needed"]} | _libraries_at_work(root)
    built_for = {one["env"] for one in stay if not one["finished"]}
    looked = retire.for_clean(root, wanted.idle, built_for) if {"envs", "caches"}.intersection(kinds) else ([], [])
    found: Dict[str, List[Answer]] = {
        "runs": runs,
        "snapshots": snapshots,
        "blobs": [*_blobs(root, kept, wanted), *_packages(root, wanted)],
        "spares": [
            {"path": path, "needed": USED if name.startswith(".") and _is_young(path) else ""}
            for name, path in _entries(root.spares)
            if _PROJECT.fullmatch(name) or LEFT.fullmatch(name)
        ],
        "lib": list(_libraries(root, used)),
        "envs": looked[0],
        "caches": looked[1],
    }
    found = {kind: found[kind] for kind in KINDS if kind in kinds}
    for entries in found.values():
        for one in entries:
            one.setdefault("bytes", size_of(one["path"]))
    return found


def _run(root: Root, name: str, wanted: _Wanted) -> "Optional[Answer]":
    """None for a folder that is no run of ours: what we made says so itself."""
    run = root.run(name)
    spec = read_json(run.spec)
    if not spec or spec.get("id") != name or os.path.islink(run.path):
        return None
    finished = has_ended(run)
    going = machine.is_locked(run.lock) or (is_taken(run) and not finished)
    needed = GOING if going else wanted.why_run(name)
    library = str(spec.get("environment", {}).get("PYTHONPATH", ""))
    used = library.partition(root.lib + "/")[2].partition("/")[0]
    snapshot = spec.get("snapshot")
    built = (spec.get("lock") or {}).get("digest")
    return {"path": run.path, "needed": needed, "finished": finished, "snapshot": snapshot, "lib": used, "env": built}


def _contents(lists: "Iterable[Tuple[str, str]]") -> "Dict[str, str]":
    """Files that lists of code name → why the list stays."""
    found: Dict[str, str] = {}
    for path, why in lists:
        try:
            with open(path, "rb") as file:
                found.update((entry[1], why) for entry in parse_json(file.read())["files"])
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            continue
    return found


def _libraries(root: Root, used: "Set[str]") -> "Iterator[Answer]":
    for name, path in _entries(root.lib):
        if _LIBRARY.fullmatch(name) and os.path.exists(os.path.join(path, "remote", "agent.py")):
            yield {"path": path, "needed": USED if name in used else ""}
        elif LEFT.fullmatch(name):
            yield {"path": path, "needed": USED if _is_young(path) else ""}


def _is_young(path: str, age: float = YOUNG) -> bool:
    try:
        return time.time() - os.lstat(path).st_mtime < age
    except OSError:
        return True


def _blobs(root: Root, kept: "Dict[str, str]", wanted: _Wanted) -> "Iterator[Answer]":
    for folder, place in _entries(root.blobs):
        if _UPLOAD.fullmatch(folder):
            yield {"path": place, "needed": wanted.why_unlisted()}
            continue
        for name, path in _entries(place) if len(folder) == 2 else ():
            if _DIGEST.fullmatch(folder + name):
                yield {"path": path, "needed": kept.get(folder + name) or wanted.why_unlisted()}


def _packages(root: Root, wanted: _Wanted) -> "Iterator[Answer]":
    """What uploads of packages left that were broken off. A list is there from the last file until they are sorted."""
    store = Root(os.path.join(root.packages, "incoming"))
    lists = [path for name, path in _entries(store.snapshots) if name.endswith(".json") and _is_young(path)]
    return _blobs(store, _contents((path, YOUNG_CODE) for path in lists), wanted)


def _libraries_at_work(root: Root) -> "Set[str]":
    """Those that a living process was started from: ours, and supervisors'."""
    mark = os.fsencode(root.lib) + b"/"
    found = {os.path.basename(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))}
    for name in names_in("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/cmdline" % name, "rb") as file:
                    rest = file.read().partition(mark)[2]
            except OSError:
                continue
            found.add(os.fsdecode(rest.partition(b"/")[0]))
    return found


def names_in(folder: str) -> "List[str]":
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _entries(folder: str) -> "List[Tuple[str, str]]":
    return [(name, os.path.join(folder, name)) for name in names_in(folder)]


def size_of(path: str) -> int:
    """On disk, links not followed."""
    total, pending = 0, [path]
    while pending:
        place = pending.pop()
        try:
            facts = os.lstat(place)
            total += getattr(facts, "st_blocks", facts.st_size // 512 + 1) * 512
            if os.path.isdir(place) and not os.path.islink(place):
                pending += [os.path.join(place, name) for name in os.listdir(place)]
        except OSError:
            continue
    return total


ASKED: "Dict[str, Callable[[Root, Answer], Answer]]" = {"space": space, "free": free, "linger": linger}
