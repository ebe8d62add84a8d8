"""Identity of this installation on other machines: a random data folder ID and a display name."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

from .paths import UserPaths, user_name
from .remote.shared import machine
from .remote.shared.atomic_files import write_once
from .remote.shared.client_id import CLIENT
from .remote.shared.untrusted_json import parse_json


@dataclass(frozen=True)
class Client:
    """An installation of mlw: a laptop, or one of several data folders on it."""

    id: str  # empty if the data folder is read-only
    name: str  # user@host

    @property
    def registration(self) -> dict[str, str] | None:
        """Return the data that a target records about the client."""
        return {"id": self.id, "name": self.name} if self.id else None


def client_of(paths: UserPaths) -> Client:
    """Return the client of this data folder. A copy on another machine is a different client."""
    client_id = _read(paths)
    if client_id is None:
        client_id = _make(paths)
    host = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    return Client(client_id, f"{user_name()}@{host}")


def _machine() -> str:
    return hashlib.sha256(machine.identity()["machine"].encode()).hexdigest()[:16]


def _read(paths: UserPaths) -> str | None:
    try:
        data = parse_json(paths.client.read_bytes())
        sound = CLIENT.fullmatch(data["id"]) and data["machine"] == _machine()
        return str(data["id"]) if sound else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _make(paths: UserPaths) -> str:
    """Create the ID. If several commands do so concurrently, the first one wins.

    Return "" if the data folder is read-only.
    """
    try:
        if paths.client.exists():
            os.replace(paths.client, paths.client.with_name("client.json.old"))  # from another machine, or damaged
        write_once(str(paths.client), {"id": os.urandom(16).hex(), "machine": _machine()})
    except OSError:
        return ""
    return _read(paths) or ""
