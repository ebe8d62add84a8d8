"""Disk usage of this user's root folder, and removal of files that are not needed."""

from __future__ import annotations

import os
import re
import subprocess
import time

from .environments import garbage_collection
from .environments.environment_usage import InUse, has_ended
from .run_removal import remove_run
from .shared import machine
from .shared.atomic_files import read_json
from .shared.folder_tree import remove
from .shared.kept_reasons import GOING, OTHER, UPLOADING, USED, YOUNG_CODE
from .shared.layout import Root, is_claimed
from .shared.program_lookup import which
from .shared.store_lock import removing_from_store
from .shared.untrusted_json import parse_json

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

    Message = Dict[str, Any]

KINDS = ("runs", "snapshots", "blobs", "spares", "lib", "envs", "caches")
_CODE_KINDS = ("snapshots", "blobs")
# Names that mlw creates. Other files in these folders belong to the user and are kept.
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PROJECT = re.compile(r"\.?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-contained)?(-[0-9]+-[0-9a-f]{12})?")
_LIBRARY = re.compile(r"[0-9a-f]{16}")
LEFTOVER = re.compile(r"\.(part|bad|clean)-[0-9a-f]+")  # left by an interrupted bootstrap or removal
_UPLOAD = re.compile(r"part-[0-9A-Za-z._-]+")
RECENT = 3600.0  # seconds; a run may be about to use newer files
_MAX_NAMES = 100  # maximum number of runs listed per reason


def report_usage(root: Root, request: Message) -> Message:
    """Report the size of each kind, how much can be freed, and why the rest is kept."""
    entries_by_kind = _collect_entries(root, _KeepRules(request, _has_no_upload(root)))
    disk = os.statvfs(root.path)
    sums = {
        kind: {
            "count": len(entries),
            "bytes": sum(entry["bytes"] for entry in entries),
            "free_count": sum(not entry["needed"] for entry in entries),
            "free_bytes": sum(entry["bytes"] for entry in entries if not entry["needed"]),
            "kept": _group_by_reason(kind, entries),
        }
        for kind, entries in entries_by_kind.items()
    }
    return {"ok": True, "kinds": sums, "disk_free": disk.f_bavail * disk.f_frsize, "root": root.path}


def _group_by_reason(kind: str, entries: "List[Message]") -> "Dict[str, Message]":
    """Return a mapping of reasons to the count, the bytes, and the names of the first runs."""
    groups: Dict[str, Message] = {}
    for entry in entries:
        if entry["needed"]:
            sums = groups.setdefault(entry["needed"], {"count": 0, "bytes": 0})
            sums["count"] += 1
            sums["bytes"] += entry["bytes"]
            if kind == "runs" and sums["count"] <= _MAX_NAMES:
                sums.setdefault("names", []).append(os.path.basename(entry["path"]))
    return groups


def free_space(root: Root, request: Message) -> Message:
    """Remove entries of the kinds in ``what`` that are not needed. With ``dry_run``, only report them.

    ``keep``: runs to keep. ``runs``: runs that may be removed; default: all that have ended.
    ``young``: keep code that arrived within this number of seconds, because a submission may be about
    to use it. ``idle``: keep environments that were used within this number of seconds, because
    rebuilding may take a long time. Package caches are always kept
    (``garbage_collection.handle_remove`` removes them).
    """
    kinds = [kind for kind in request.get("what", KINDS) if kind in KINDS]
    if request.get("dry_run"):
        return _free_kinds(root, request, kinds, _KeepRules(request, _has_no_upload(root)))
    # Uploads wait for the lock, so hold it only for code: checking the other kinds may take a long time.
    freed = _free_kinds(root, request, [kind for kind in kinds if kind not in _CODE_KINDS], _KeepRules(request, True))
    with removing_from_store(root) as exclusive:
        code = _free_kinds(
            root, request, [kind for kind in kinds if kind in _CODE_KINDS], _KeepRules(request, exclusive)
        )
    for key in ("removed", "kept"):
        freed[key].update(code[key])
    freed["problems"] = (freed["problems"] + code["problems"])[:20]
    return freed


def _has_no_upload(root: Root) -> bool:
    """Return whether no upload is in progress."""
    with removing_from_store(root) as exclusive:
        return exclusive


def _free_kinds(root: Root, request: Message, kinds: "List[str]", rules: "_KeepRules") -> Message:
    removed: Dict[str, Dict[str, int]] = {}
    kept: Dict[str, Dict[str, Message]] = {}
    problems: List[str] = []
    for kind, entries in _collect_entries(root, rules, kinds).items():
        removed[kind] = {"count": 0, "bytes": 0}
        kept[kind] = _group_by_reason(kind, entries)
        for entry in entries:
            if entry["needed"]:
                continue
            try:
                if kind == "envs" and not request.get("dry_run"):
                    entry["bytes"] = garbage_collection.remove_path(root, entry["path"], rules.idle)
                elif not request.get("dry_run"):
                    _remove(kind, entry["path"])
                removed[kind]["count"] += 1
                removed[kind]["bytes"] += entry["bytes"]
            except InUse:
                continue  # a run that needs it has started
            except OSError as error:
                problems.append("%s: %s" % (entry["path"], error.strerror))
    return {"ok": True, "removed": removed, "kept": kept, "problems": problems[:20]}


def _remove(kind: str, path: str) -> None:
    if kind == "snapshots":  # remove the verification marker first: it must not exist without its manifest
        for obsolete in (path[: -len(".json")] + ".checked", path):
            if os.path.lexists(obsolete):
                os.unlink(obsolete)
    elif kind in ("spares", "lib"):
        # Rename it first, so that a process that uses it at this moment gets either all files or none.
        aside = os.path.join(os.path.dirname(path), ".clean-" + os.urandom(8).hex())
        os.rename(path, aside)
        remove(aside)
    elif kind == "runs":
        remove_run(path)
    else:
        remove(path)


def set_linger(root: Root, request: Message) -> Message:
    """Allow this user's processes to outlive the login session (logind), or revert that."""
    program = which("loginctl")
    if program is None:
        return {"ok": False, "problem": "loginctl is not installed"}
    try:
        result = subprocess.run(
            [program, "enable-linger" if request.get("on") else "disable-linger"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=30,
        )
    except subprocess.TimeoutExpired:
        return {"ok": False, "problem": "loginctl does not respond"}
    output = result.stdout.decode("utf-8", "replace").strip()
    return {"ok": True} if result.returncode == 0 else {"ok": False, "problem": output[-500:]}


# -- inventory -----------------------------------------------------------------------------------------


class _KeepRules:
    """Rules for which runs and code to keep. ``exclusive``: no upload is in progress."""

    def __init__(self, request: Message, exclusive: bool) -> None:
        reasons = request.get("reasons", {})
        self.keep = {name: str(reasons.get(name, OTHER)) for name in request.get("keep", [])}
        self.runs = set(request["runs"]) if "runs" in request else None
        self.young = float(request.get("young", 0))
        self.idle = float(request.get("idle", garbage_collection.IDLE_SECONDS))
        self.exclusive = exclusive

    def reason_to_keep_run(self, name: str) -> str:
        """Return why a run is kept, or "" if it may be removed."""
        return self.keep.get(name) or (OTHER if self.runs is not None and name not in self.runs else "")

    def reason_to_keep_code(self, path: str, needed: bool) -> str:
        """Return why a manifest, or a blob that a manifest lists, is kept; "" if it is removable."""
        if needed:
            return USED
        return UPLOADING if not self.exclusive else YOUNG_CODE if _is_recent(path, self.young) else ""

    def reason_to_keep_unlisted(self) -> str:
        """Return why a blob that no manifest lists is kept, or "".

        Such a blob belongs to an upload that was aborted or is still in progress.
        """
        return "" if self.exclusive else UPLOADING


def _collect_entries(root: Root, rules: _KeepRules, kinds: "Any" = KINDS) -> "Dict[str, List[Message]]":
    """Return a mapping of kinds to entries with path, bytes, and the reason to keep them.

    An empty reason means that the entry can be removed. This includes entries that only other removable
    entries need.
    """
    runs = [
        entries_by_kind
        for entries_by_kind in (_run_entry(root, name, rules) for name in list_names(root.runs))
        if entries_by_kind
    ]
    remaining_runs = [entry for entry in runs if entry["needed"] or "runs" not in kinds]
    digests = {digest for entry in remaining_runs if not entry["finished"] for digest in entry["snapshots"]}
    snapshots = [
        {"path": path, "needed": rules.reason_to_keep_code(path, name[:-5] in digests)}
        for name, path in _list_entries(root.snapshots)
        if name.endswith(".json") and _DIGEST.fullmatch(name[:-5])
    ]
    kept_blobs = _blobs_of_manifests(
        (entry["path"], entry["needed"] or USED) for entry in snapshots if entry["needed"] or "snapshots" not in kinds
    )
    used_libraries = {entry["lib"] for entry in runs if entry["needed"]} | _libraries_in_use(root)
    used_environments = {entry["env"] for entry in remaining_runs if not entry["finished"]}
    environments = (
        garbage_collection.list_for_clean(root, rules.idle, used_environments)
        if {"envs", "caches"}.intersection(kinds)
        else ([], [])
    )
    entries_by_kind: Dict[str, List[Message]] = {
        "runs": runs,
        "snapshots": snapshots,
        "blobs": [*_blob_entries(root, kept_blobs, rules), *_package_entries(root, rules)],
        "spares": [
            {"path": path, "needed": USED if name.startswith(".") and _is_recent(path) else ""}
            for name, path in _list_entries(root.warm_copies)
            if _PROJECT.fullmatch(name) or LEFTOVER.fullmatch(name)
        ],
        "lib": list(_library_entries(root, used_libraries)),
        "envs": environments[0],
        "caches": environments[1],
    }
    entries_by_kind = {kind: entries_by_kind[kind] for kind in KINDS if kind in kinds}
    for entries in entries_by_kind.values():
        for entry in entries:
            entry.setdefault("bytes", disk_size(entry["path"]))
    return entries_by_kind


def _run_entry(root: Root, name: str, rules: _KeepRules) -> "Optional[Message]":
    """Return the entry for a run, or None if the folder is not a run."""
    run = root.run(name)
    spec = read_json(run.spec)
    if not spec or spec.get("id") != name or os.path.islink(run.path):
        return None
    finished = has_ended(run)
    is_active = machine.is_locked(run.lock) or (is_claimed(run) and not finished)
    needed = GOING if is_active else rules.reason_to_keep_run(name)
    library = str(spec.get("environment", {}).get("PYTHONPATH", ""))
    library_name = library.partition(root.lib + "/")[2].partition("/")[0]
    snapshots = [str(spec.get(name)) for name in ("snapshot", "checkpoints")]  # the latter from another machine
    environment = (spec.get("lock") or {}).get("digest")
    return {
        "path": run.path,
        "needed": needed,
        "finished": finished,
        "snapshots": snapshots,
        "lib": library_name,
        "env": environment,
    }


def _blobs_of_manifests(manifests: "Iterable[Tuple[str, str]]") -> "Dict[str, str]":
    """Return the reason to keep each blob that the manifests list, by blob."""
    reasons: Dict[str, str] = {}
    for path, reason in manifests:
        try:
            with open(path, "rb") as file:
                reasons.update((entry[1], reason) for entry in parse_json(file.read())["files"])
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            continue
    return reasons


def _library_entries(root: Root, used: "Set[str]") -> "Iterator[Message]":
    for name, path in _list_entries(root.lib):
        if _LIBRARY.fullmatch(name) and os.path.exists(os.path.join(path, "remote", "agent.py")):
            yield {"path": path, "needed": USED if name in used else ""}
        elif LEFTOVER.fullmatch(name):
            yield {"path": path, "needed": USED if _is_recent(path) else ""}


def _is_recent(path: str, age: float = RECENT) -> bool:
    try:
        return time.time() - os.lstat(path).st_mtime < age
    except OSError:
        return True


def _blob_entries(root: Root, kept: "Dict[str, str]", rules: _KeepRules) -> "Iterator[Message]":
    for folder, folder_path in _list_entries(root.blobs):
        if _UPLOAD.fullmatch(folder):
            yield {"path": folder_path, "needed": rules.reason_to_keep_unlisted()}
            continue
        for name, path in _list_entries(folder_path) if len(folder) == 2 else ():
            if _DIGEST.fullmatch(folder + name):
                yield {"path": path, "needed": kept.get(folder + name) or rules.reason_to_keep_unlisted()}


def _package_entries(root: Root, rules: _KeepRules) -> "Iterator[Message]":
    """Yield the files in the incoming store for packages, which aborted uploads leave behind.

    Files in a recent manifest are still needed: their upload is complete, but they are not moved to the packages yet.
    """
    store = Root(os.path.join(root.packages, "incoming"))
    manifests = [path for name, path in _list_entries(store.snapshots) if name.endswith(".json") and _is_recent(path)]
    return _blob_entries(store, _blobs_of_manifests((path, YOUNG_CODE) for path in manifests), rules)


def _libraries_in_use(root: Root) -> "Set[str]":
    """Return the libraries from which living processes were started: this process and supervisors."""
    prefix = os.fsencode(root.lib) + b"/"
    names = {os.path.basename(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))}
    for pid in list_names("/proc"):
        if pid.isdigit():
            try:
                with open("/proc/%s/cmdline" % pid, "rb") as file:
                    rest = file.read().partition(prefix)[2]
            except OSError:
                continue
            names.add(os.fsdecode(rest.partition(b"/")[0]))
    return names


def list_names(folder: str) -> "List[str]":
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _list_entries(folder: str) -> "List[Tuple[str, str]]":
    return [(name, os.path.join(folder, name)) for name in list_names(folder)]


def disk_size(path: str) -> int:
    """Return the size on disk without following links."""
    total, pending = 0, [path]
    while pending:
        current = pending.pop()
        try:
            status = os.lstat(current)
            total += getattr(status, "st_blocks", status.st_size // 512 + 1) * 512
            if os.path.isdir(current) and not os.path.islink(current):
                pending += [os.path.join(current, name) for name in os.listdir(current)]
        except OSError:
            continue
    return total


HANDLERS: "Dict[str, Callable[[Root, Message], Message]]" = {
    "space": report_usage,
    "free": free_space,
    "linger": set_linger,
}
