"""Records in a root folder about its clients: the folder's ID, one file per client, and who fetched each run."""

from __future__ import annotations

import os
import time

from .allocation import current
from .shared import machine
from .shared.atomic_files import read_json, write_atomic, write_once, write_unsynced
from .shared.client_id import CLIENT
from .shared.layout import Root, RunFolder
from .shared.protocol_versions import PROTOCOL

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Message = Dict[str, Any]

_MAX_NAME_LENGTH = 200  # in characters
_HOUR = 3600.0


def root_identity(root: Root) -> Optional[str]:
    """Return the ID of this root folder, which each run records, or None if it has none."""
    root_id = (read_json(root.identity, "id") or {}).get("id")
    return root_id if isinstance(root_id, str) else None


def ensure_root_identity(root: Root) -> Optional[str]:
    """Give the root folder an ID if it has none, and return the ID.

    A full or read-only disk must not prevent a run or a query, so the result may be None.
    """
    root_id = root_identity(root)
    if root_id is not None:
        return root_id
    try:
        write_once(root.identity, {"id": os.urandom(16).hex(), "created": time.time()})
    except OSError:
        return None
    return root_identity(root)


def accepted_data(root: Root) -> Message:
    """Return the data of the ``accepted`` event: the accepting process, its allocation, and the root folder's ID."""
    facts = dict(machine.identity(), protocol=PROTOCOL, pid=os.getpid(), root=root_identity(root))
    return dict(facts, **current().facts)


def client_file(root: Root, client: str) -> str:
    """Return the path of a client's file. Its modification time is when the client last connected."""
    if not CLIENT.fullmatch(client):
        raise ValueError("invalid client ID %a" % client[:80])
    return os.path.join(root.clients, client + ".json")


def register_client(root: Root, client: Any) -> None:
    """Record that a client has connected. Ignore a full disk: the client may be connecting to free space."""
    ensure_root_identity(root)
    if not isinstance(client, dict):
        return
    path = client_file(root, str(client.get("id")))
    record = {"id": client["id"], "name": str(client.get("name"))[:_MAX_NAME_LENGTH]}
    try:
        if read_json(path) != record:
            os.makedirs(root.clients, 0o700, exist_ok=True)
            write_unsynced(path, record)
        elif time.time() - os.stat(path).st_mtime > _HOUR:
            os.utime(path)
    except OSError:
        return


def unregister_client(root: Root, client: str) -> None:
    """Remove the file of a client that has detached.

    The file is kept while the client has unfetched runs, to identify their owner.
    """
    path = client_file(root, client)
    if any(_has_unfetched(root.run(name), client) for name in _list_names(root.runs)):
        return
    try:
        os.unlink(path)
        os.rmdir(root.clients)
    except OSError:
        return  # the client was not registered, or other clients still are


def _has_unfetched(run: RunFolder, client: str) -> bool:
    return (read_json(run.spec) or {}).get("client") == client and client not in fetched_by(run)


def list_clients(root: Root) -> List[Message]:
    """Return the ID, name, and time of the last connection of each client."""
    result = []
    for name in _list_names(root.clients):
        path = os.path.join(root.clients, name)
        record = read_json(path, "id", "name")
        if record is not None and CLIENT.fullmatch(name[: -len(".json")]):
            result.append({"id": name[: -len(".json")], "name": record["name"], "seen": os.stat(path).st_mtime})
    return result


def record_fetched(run: RunFolder, client: str, log: int) -> Message:
    """Record that a client has fetched the log and outputs of a finished run."""
    if not CLIENT.fullmatch(client):
        raise ValueError("invalid client ID %a" % client[:80])
    from .environments.environment_usage import has_ended  # noqa: PLC0415 - every connection imports this module

    if not has_ended(run):
        return {"ok": False, "problem": "the run has not ended"}
    size = os.stat(run.log).st_size if os.path.exists(run.log) else 0
    if log < size:
        return {"ok": False, "problem": "the log has %d bytes, but only %d were fetched" % (size, log)}
    os.makedirs(run.fetched, 0o700, exist_ok=True)
    write_atomic(os.path.join(run.fetched, client + ".json"), {"client": client, "log": log, "time": time.time()})
    return {"ok": True}


def fetched_by(run: RunFolder) -> List[str]:
    """Return the IDs of clients that have fetched all data of a run."""
    return [name[: -len(".json")] for name in _list_names(run.fetched) if CLIENT.fullmatch(name[: -len(".json")])]


def _list_names(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
