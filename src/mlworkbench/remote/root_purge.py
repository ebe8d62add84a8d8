"""List the contents of the root folder and their owners, and remove the entries that a client names.

A purge removes everything that can be rebuilt or uploaded again. Runs, container homes, and shared
folders are removed only if they are named. Unknown files are kept.
"""

from __future__ import annotations

import os
import time

from .client_registry import fetched_by, list_clients, unregister_client
from .disk_usage import LEFTOVER, disk_size, list_names
from .environments.environment_state import discard, unprotect
from .environments.environment_usage import has_ended, has_open_job, list_building
from .run_removal import remove_run
from .shared import machine
from .shared.atomic_files import read_json
from .shared.client_id import CLIENT
from .shared.disk_totals import DiskUsage
from .shared.folder_tree import remove
from .shared.layout import Root, RunFolder, is_claimed
from .shared.store_lock import removing_from_store

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Optional

    Message = Dict[str, Any]

_PAGE = 500  # maximum runs per response
# Entries that can be rebuilt or uploaded again. The running program and the lock of the purge are removed last.
_REPLACEABLE = ("blobs", "snapshots", "spares", "envs", "tools", "pkgs", "cache", "gpus", "lib", "store.lock")
_KEPT = ("runs", "homes", "share", "clients", "root.json")


def survey(root: Root, request: Message) -> Message:
    """Return the clients, the folders, and a page of runs whose names follow ``after``.

    Sizes are included if the request contains ``sizes``.
    """
    sizes = bool(request.get("sizes"))
    names = sorted(name for name in list_names(root.runs) if name > str(request.get("after", "")))
    response: Message = {
        "ok": True,
        "now": time.time(),
        "runs": [_run_entry(root, name, sizes) for name in names[:_PAGE]],
        "more": len(names) > _PAGE,
    }
    if not request.get("after"):
        response.update(
            clients=list_clients(root),
            shared=[
                entry for entry in _folder_entries(root.share, sizes) if entry["name"] not in _empty_folders(root.share)
            ],
            homes=_folder_entries(root.homes, sizes),
            replaceable=DiskUsage().add(*(os.path.join(root.path, entry) for entry in _REPLACEABLE))[0] if sizes else 0,
            other=sorted(set(list_names(root.path)) - set(_REPLACEABLE) - set(_KEPT))[:_PAGE],
        )
    return response


def _run_entry(root: Root, name: str, sizes: bool) -> Message:
    """Return the entry for a run. A folder that is not a run has no owner and was not fetched."""
    run = root.run(name)
    spec = {} if os.path.islink(run.path) else read_json(run.spec, "id") or {}
    is_run = spec.get("id") == name
    return {
        "id": name,
        "client": spec.get("client") if is_run else None,
        "project": spec.get("project_name") if is_run else None,
        "project_id": spec.get("project_id") if is_run else None,
        "created": spec.get("created") if is_run else None,
        "changed": max(_modified_at(path) for path in (run.path, run.events, run.log, run.heartbeat)),
        "claimed": is_claimed(run),
        "ended": has_ended(run),
        "going": _is_supervised(root, name),
        "empty": _is_empty(run.path),
        "fetched": fetched_by(run),
        "bytes": disk_size(run.path) if sizes else 0,
    }


def _is_supervised(root: Root, name: str) -> bool:
    """Return whether a run is supervised here or has a job. A file or link in the runs folder never is."""
    run = root.run(name)
    if not os.path.isdir(run.path) or os.path.islink(run.path):
        return False
    return machine.is_locked(run.lock) or has_open_job(run)


def _folder_entries(folder: str, sizes: bool) -> List[Message]:
    entries = []
    for name in sorted(list_names(folder))[:_PAGE]:
        path = os.path.join(folder, name)
        entries.append({"name": name, "bytes": disk_size(path) if sizes else 0, "changed": _modified_at(path)})
    return entries


def _modified_at(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0


def purge(root: Root, request: Message) -> Message:
    """Remove the named ``runs``, ``homes``, ``shared``, and ``clients``, and everything replaceable.

    ``runs`` maps each name to its stage at the time of the listing. If a run was added or changed since
    then, nothing is removed.
    """
    with removing_from_store(root) as exclusive:
        if not exclusive:
            return {"ok": False, "problem": "an upload, a start, or a cleanup is in progress"}
        return _purge(root, request)


def stage_of(empty: bool, claimed: bool, ended: bool) -> str:
    """Return the stage of a run, on which a client bases its decision."""
    return "empty" if empty else "ended" if ended else "claimed" if claimed else "unclaimed"


def _run_stage(run: RunFolder) -> str:
    return stage_of(_is_empty(run.path), is_claimed(run), has_ended(run))


def _find_obstacle(root: Root, listed: Dict[str, str]) -> Optional[str]:
    """Return why nothing may be removed now, or None."""
    names = sorted(list_names(root.runs))
    for problem, runs in (
        ("runs are active", [name for name in names if _is_supervised(root, name)]),
        ("found runs that were not listed", [name for name in names if name not in listed]),
        (
            "runs have changed since they were listed",
            [name for name in names if _run_stage(root.run(name)) != listed.get(name)],
        ),
    ):
        if runs:
            return "%s: %s" % (problem, ", ".join(runs[:10]))
    return "an environment is being built" if list_building(root) else None


def _purge(root: Root, request: Message) -> Message:
    listed = {str(name): str(stage) for name, stage in dict(request["runs"]).items()}
    obstacle = _find_obstacle(root, listed)
    if obstacle:
        return {"ok": False, "problem": obstacle}
    real = os.path.realpath(root.path)  # the target, if the root is a link
    before = disk_size(real)
    _remove_entries(root.runs, listed, remove_run)
    _remove_entries(root.homes, request.get("homes", ()))
    _remove_entries(root.share, [*request.get("shared", ()), *_empty_folders(root.share)])
    obstacle = _find_obstacle(root, {})  # older versions start runs without the lock
    if obstacle:
        return {"ok": False, "problem": "%s; the listed runs were deleted, code and environments were kept" % obstacle}
    for client in request.get("clients", ()):
        unregister_client(root, str(client))
    _remove_replaceable(root)
    if not list_names(root.clients):
        _remove_root(root, real)
    left = list_names(real)
    return {"ok": True, "bytes": max(0, before - disk_size(real)), "left": sorted(left)[:_PAGE]}


def _empty_folders(folder: str) -> List[str]:
    """Return the names of empty folders, which were created for a run but never used."""
    return [name for name in list_names(folder) if _is_empty(os.path.join(folder, name))]


def _is_empty(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path) and not list_names(path)


def _remove_entries(folder: str, names: Iterable[object], remove_entry: Callable[[str], None] = remove) -> None:
    """Remove the named entries from a folder, then the folder itself if it is empty."""
    existing = set(list_names(folder))
    for name in map(str, names):
        path = os.path.join(folder, name)
        if name in existing and os.path.isdir(path):  # names of existing entries only, so never a path
            remove_entry(path)
        elif name in existing:
            os.unlink(path)  # a file, a pipe, or a broken link
    if _is_empty(folder):
        os.rmdir(folder)


def _remove_replaceable(root: Root) -> None:
    for name in list_names(root.envs):  # environments are read-only and must be discarded first
        if os.path.isdir(os.path.join(root.envs, name)):
            discard(os.path.join(root.envs, name))
    if os.path.isdir(root.tools) and not os.path.islink(root.tools):
        unprotect(root.tools)
    for name in _REPLACEABLE:
        path = os.path.join(root.path, name)
        if os.path.lexists(path):
            remove(path)


def _remove_root(root: Root, real: str) -> None:
    """Remove the root folder, and the link to it if there is one.

    Both stay if files are left, or if the folder is a mount point.
    """
    if os.path.exists(root.identity):
        os.unlink(root.identity)
    try:
        os.rmdir(real)
    except OSError:
        return
    if os.path.islink(root.path):
        os.unlink(root.path)


def purge_unused(root: Root, request: Message) -> Message:
    """Undo a failed attach: unregister the client, and remove the root folder if it was unused before."""
    client = str(request["client"])
    bare = _is_unused(root, client)
    if CLIENT.fullmatch(client):
        unregister_client(root, client)
    return purge(root, {"runs": {}}) if bare else {"ok": True, "bytes": 0}


def _is_unused(root: Root, client: str) -> bool:
    """Return whether the root was unused before this client: no other library, client, or file."""
    own_library = os.path.basename(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return (
        set(list_names(root.path)) <= {"lib", "clients", os.path.basename(root.identity)}
        and set(list_names(root.clients)) <= {client + ".json"}
        and all(name == own_library or LEFTOVER.fullmatch(name) for name in list_names(root.lib))
    )


HANDLERS: "Dict[str, Callable[[Root, Message], Message]]" = {
    "survey": survey,
    "purge": purge,
    "purge bare": purge_unused,
}
