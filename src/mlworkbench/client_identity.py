"""Who this installation is to other machines: a random ID of its data folder, and a name for people."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

from .paths import UserPaths, user_name
from .remote.shared import machine
from .remote.shared.client_id import CLIENT
from .remote.shared.files import write_first
from .remote.shared.untrusted import parse_json


@dataclass(frozen=True)
class Client:
    """One laptop, or one data folder of it."""

    id: str  # empty where the data folder is read-only
    name: str  # user@host

    @property
    def card(self) -> dict[str, str] | None:
        """What a target records of it."""
        return {"id": self.id, "name": self.name} if self.id else None


def client_of(paths: UserPaths) -> Client:
    """The client of this data folder. A copy of the folder on another machine becomes another client."""
    known = _read(paths)
    if known is None:
        known = _make(paths)
    host = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    return Client(known, f"{user_name()}@{host}")


def _machine() -> str:
    return hashlib.sha256(machine.identity()["machine"].encode()).hexdigest()[:16]


def _read(paths: UserPaths) -> str | None:
    try:
        found = parse_json(paths.client.read_bytes())
        sound = CLIENT.fullmatch(found["id"]) and found["machine"] == _machine()
        return str(found["id"]) if sound else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _make(paths: UserPaths) -> str:
    """Several commands may do so at once: the first one wins. A data folder that is read-only gets no ID."""
    try:
        if paths.client.exists():
            os.replace(paths.client, paths.client.with_name("client.json.old"))  # of another machine, or damaged
        write_first(str(paths.client), {"id": os.urandom(16).hex(), "machine": _machine()})
    except OSError:
        return ""
    return _read(paths) or ""
