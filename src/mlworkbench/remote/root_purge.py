"""What the root folder holds and whose it is; and the removal of all that a client has named.

Whatever can be built or sent again goes with a purge. Runs, container homes and shared folders go only if they are
named, and files that have no name of ours stay.
"""

from __future__ import annotations

import os
import time

from .clients import clients, fetched_by, leave
from .environments.environment import discard, unprotect
from .environments.stock import has_ended, in_building
from .run_removal import remove_run
from .shared import machine
from .shared.client_id import CLIENT
from .shared.disk_tally import Tally
from .shared.files import read_json
from .shared.layout import Root, RunFolder, is_taken
from .shared.store_lock import removing_from_store
from .shared.tree import remove
from .space import LEFT, names_in, size_of

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Optional

    Answer = Dict[str, Any]

_PAGE = 500  # runs in one answer
# Can be built or sent again. The program that runs goes last, and after it the lock that is held meanwhile.
_REPLACEABLE = ("blobs", "snapshots", "spares", "envs", "tools", "pkgs", "cache", "gpus", "lib", "store.lock")
_KEPT = ("runs", "homes", "share", "clients", "root.json")


def survey(root: Root, request: Answer) -> Answer:
    """Clients, folders, and a page of runs after the name ``after``; with ``sizes`` how much each takes."""
    sizes = bool(request.get("sizes"))
    names = sorted(name for name in names_in(root.runs) if name > str(request.get("after", "")))
    found: Answer = {
        "ok": True,
        "now": time.time(),
        "runs": [_run(root, name, sizes) for name in names[:_PAGE]],
        "more": len(names) > _PAGE,
    }
    if not request.get("after"):
        found.update(
            clients=clients(root),
            shared=[one for one in _folders(root.share, sizes) if one["name"] not in _empty_below(root.share)],
            homes=_folders(root.homes, sizes),
            replaceable=Tally().add(*(os.path.join(root.path, one) for one in _REPLACEABLE))[0] if sizes else 0,
            other=sorted(set(names_in(root.path)) - set(_REPLACEABLE) - set(_KEPT))[:_PAGE],
        )
    return found


def _run(root: Root, name: str, sizes: bool) -> Answer:
    """Of a folder that holds no run, too: it has no owner, and nobody has fetched it."""
    run = root.run(name)
    spec = {} if os.path.islink(run.path) else read_json(run.spec, "id") or {}
    ours = spec.get("id") == name
    return {
        "id": name,
        "client": spec.get("client") if ours else None,
        "project": spec.get("project_name") if ours else None,
        "project_id": spec.get("project_id") if ours else None,
        "created": spec.get("created") if ours else None,
        "changed": max(_changed(path) for path in (run.path, run.events, run.log, run.heartbeat)),
        "claimed": is_taken(run),
        "ended": has_ended(run),
        "going": _is_going(root, name),
        "empty": _is_empty(run.path),
        "fetched": fetched_by(run),
        "bytes": size_of(run.path) if sizes else 0,
    }


def _is_going(root: Root, name: str) -> bool:
    """Whether a run is supervised; a file or a link among the runs is none."""
    run = root.run(name)
    return os.path.isdir(run.path) and not os.path.islink(run.path) and machine.is_locked(run.lock)


def _folders(place: str, sizes: bool) -> List[Answer]:
    found = []
    for name in sorted(names_in(place))[:_PAGE]:
        path = os.path.join(place, name)
        found.append({"name": name, "bytes": size_of(path) if sizes else 0, "changed": _changed(path)})
    return found


def _changed(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0


def purge(root: Root, request: Answer) -> Answer:
    """Remove ``runs``, ``homes``, ``shared`` and the files of ``clients``, by name, and all that is replaceable.

    ``runs``: name → its stage when it was judged. If a run came or went on since then, nothing is removed.
    """
    with removing_from_store(root) as alone:
        if not alone:
            return {"ok": False, "problem": "an upload, a start, or a cleanup is in progress"}
        return _purge(root, request)


def stage_of(empty: bool, claimed: bool, ended: bool) -> str:
    """How far a run is: what a client judges it by."""
    return "empty" if empty else "ended" if ended else "claimed" if claimed else "unclaimed"


def _stage(run: RunFolder) -> str:
    return stage_of(_is_empty(run.path), is_taken(run), has_ended(run))


def _obstacle(root: Root, named: Dict[str, str]) -> Optional[str]:
    """Why nothing may be removed now."""
    names = sorted(names_in(root.runs))
    for words, runs in (
        ("runs are active", [name for name in names if _is_going(root, name)]),
        ("found runs that were not listed", [name for name in names if name not in named]),
        (
            "runs have changed since they were listed",
            [name for name in names if _stage(root.run(name)) != named.get(name)],
        ),
    ):
        if runs:
            return "%s: %s" % (words, ", ".join(runs[:10]))
    return "an environment is being built" if in_building(root) else None


def _purge(root: Root, request: Answer) -> Answer:
    named = {str(name): str(stage) for name, stage in dict(request["runs"]).items()}
    obstacle = _obstacle(root, named)
    if obstacle:
        return {"ok": False, "problem": obstacle}
    real = os.path.realpath(root.path)  # what a link in its place leads to
    before = size_of(real)
    _remove_below(root.runs, named, remove_run)
    _remove_below(root.homes, request.get("homes", ()))
    _remove_below(root.share, [*request.get("shared", ()), *_empty_below(root.share)])
    obstacle = _obstacle(root, {})  # an older mlw starts runs without the lock
    if obstacle:
        return {"ok": False, "problem": "%s; the listed runs were deleted, code and environments were kept" % obstacle}
    for client in request.get("clients", ()):
        leave(root, str(client))
    _remove_replaceable(root)
    if not names_in(root.clients):
        _remove_root(root, real)
    left = names_in(real)
    return {"ok": True, "bytes": max(0, before - size_of(real)), "left": sorted(left)[:_PAGE]}


def _empty_below(place: str) -> List[str]:
    """Folders that a run was given and has not used."""
    return [name for name in names_in(place) if _is_empty(os.path.join(place, name))]


def _is_empty(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path) and not names_in(path)


def _remove_below(place: str, names: Iterable[object], remove_one: Callable[[str], None] = remove) -> None:
    """Entries of a folder of ours, then the folder itself if nothing is left in it."""
    known = set(names_in(place))
    for name in map(str, names):
        path = os.path.join(place, name)
        if name in known and os.path.isdir(path):  # a name of this folder, so no path
            remove_one(path)
        elif name in known:
            os.unlink(path)  # a file, a pipe, or a link that leads nowhere
    if _is_empty(place):
        os.rmdir(place)


def _remove_replaceable(root: Root) -> None:
    for name in names_in(root.envs):  # read-only: nothing could be removed from them
        if os.path.isdir(os.path.join(root.envs, name)):
            discard(os.path.join(root.envs, name))
    if os.path.isdir(root.tools) and not os.path.islink(root.tools):
        unprotect(root.tools)
    for name in _REPLACEABLE:
        path = os.path.join(root.path, name)
        if os.path.lexists(path):
            remove(path)


def _remove_root(root: Root, real: str) -> None:
    """The folder and, where it was reached by a link, the link. Both stay if something is left, or at a mount point."""
    if os.path.exists(root.identity):
        os.unlink(root.identity)
    try:
        os.rmdir(real)
    except OSError:
        return
    if os.path.islink(root.path):
        os.unlink(root.path)


def purge_bare(root: Root, request: Answer) -> Answer:
    """Undo a failed attach: the client leaves, and a folder that held nothing before goes."""
    client = str(request["client"])
    bare = _is_bare(root, client)
    if CLIENT.fullmatch(client):
        leave(root, client)
    return purge(root, {"runs": {}}) if bare else {"ok": True, "bytes": 0}


def _is_bare(root: Root, client: str) -> bool:
    """Whether nobody was here before us: no other program of ours, and nothing that it would have made."""
    mine = os.path.basename(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return (
        set(names_in(root.path)) <= {"lib", "clients", os.path.basename(root.identity)}
        and set(names_in(root.clients)) <= {client + ".json"}
        and all(name == mine or LEFT.fullmatch(name) for name in names_in(root.lib))
    )


ASKED: "Dict[str, Callable[[Root, Answer], Answer]]" = {"survey": survey, "purge": purge, "purge bare": purge_bare}
