"""Who uses a root folder: its identity, one file per client, and what each client has fetched of a run."""

from __future__ import annotations

import os
import time

from .shared import machine
from .shared.client_id import CLIENT
from .shared.files import read_json, write_first, write_note, write_whole
from .shared.layout import Root, RunFolder
from .shared.versions import PROTOCOL

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Answer = Dict[str, Any]

_LONGEST = 200  # characters of a client's name
_HOUR = 3600.0


def root_identity(root: Root) -> Optional[str]:
    """The ID of this root folder; None if it has none. A run is recorded together with it."""
    found = (read_json(root.identity, "id") or {}).get("id")
    return found if isinstance(found, str) else None


def mark_root(root: Root) -> Optional[str]:
    """Give the root folder its ID, once. A full or read-only disk must not keep a run or a look from working."""
    found = root_identity(root)
    if found is not None:
        return found
    try:
        write_first(root.identity, {"id": os.urandom(16).hex(), "created": time.time()})
    except OSError:
        return None
    return root_identity(root)


def acceptance(root: Root) -> Answer:
    """Who takes a run on, and in which root folder: the data of its event."""
    return dict(machine.identity(), protocol=PROTOCOL, pid=os.getpid(), root=root_identity(root))


def card_of(root: Root, client: str) -> str:
    """The file of a client. Its modification time is when the client was last here."""
    if not CLIENT.fullmatch(client):
        raise ValueError("invalid client ID %a" % client[:80])
    return os.path.join(root.clients, client + ".json")


def greet(root: Root, client: Any) -> None:
    """Record that a client is here. It must not fail where the disk is full: the client may be here to free space."""
    mark_root(root)
    if not isinstance(client, dict):
        return
    path = card_of(root, str(client.get("id")))
    card = {"id": client["id"], "name": str(client.get("name"))[:_LONGEST]}
    try:
        if read_json(path) != card:
            os.makedirs(root.clients, 0o700, exist_ok=True)
            write_note(path, card)
        elif time.time() - os.stat(path).st_mtime > _HOUR:
            os.utime(path)
    except OSError:
        return


def leave(root: Root, client: str) -> None:
    """The client has detached. As long as it has unfetched runs here, its file stays to tell whose they are."""
    path = card_of(root, client)
    if any(_lacks(root.run(name), client) for name in _names(root.runs)):
        return
    try:
        os.unlink(path)
        os.rmdir(root.clients)
    except OSError:
        return  # it never was here, or others are


def _lacks(run: RunFolder, client: str) -> bool:
    return (read_json(run.spec) or {}).get("client") == client and client not in fetched_by(run)


def clients(root: Root) -> List[Answer]:
    """Every client with its name and the time of its last visit."""
    found = []
    for name in _names(root.clients):
        path = os.path.join(root.clients, name)
        card = read_json(path, "id", "name")
        if card is not None and CLIENT.fullmatch(name[: -len(".json")]):
            found.append({"id": name[: -len(".json")], "name": card["name"], "seen": os.stat(path).st_mtime})
    return found


def acknowledge(run: RunFolder, client: str, log: int) -> Answer:
    """A client has log and outputs of a finished run: its results are not on this machine alone any more."""
    if not CLIENT.fullmatch(client):
        raise ValueError("invalid client ID %a" % client[:80])
    from .environments.stock import has_ended  # noqa: PLC0415 - every connection loads this module, for its greeting

    if not has_ended(run):
        return {"ok": False, "problem": "the run has not ended"}
    size = os.stat(run.log).st_size if os.path.exists(run.log) else 0
    if log < size:
        return {"ok": False, "problem": "the log has %d bytes, but only %d were fetched" % (size, log)}
    os.makedirs(run.fetched, 0o700, exist_ok=True)
    write_whole(os.path.join(run.fetched, client + ".json"), {"client": client, "log": log, "time": time.time()})
    return {"ok": True}


def fetched_by(run: RunFolder) -> List[str]:
    """The clients that have everything of a run."""
    return [name[: -len(".json")] for name in _names(run.fetched) if CLIENT.fullmatch(name[: -len(".json")])]


def _names(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
