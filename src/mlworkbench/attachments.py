"""Machines that this user attached: one private folder per machine, outside any project.

targets/<16 hex digits>/
    attachment.json  known_hosts  key  key.pub  ssh_config (generated from the others)

The private key is the only secret in the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from .container_consents import MOUNT, Consent, merge
from .dataclass_check import has_valid_types
from .errors import HistoryError
from .paths import UserPaths
from .remote.shared import file_lock
from .remote.shared.folder_tree import NEW, remove
from .remote.shared.untrusted_json import parse_json

_NOT_STORED = {"folder", "called"}
OWN, MADE, FILE = "own", "mlw", "file:"  # key types: the user's own, chosen by ssh; created by mlw; a specified file


@dataclass(frozen=True)
class Attachment:
    """A machine and the account that mlw uses on it."""

    folder: Path
    identity: str  # user@host:port as resolved by ssh; not unique for private addresses, see `where`
    address: str  # as typed; may be an alias in ~/.ssh/config
    username: str
    port: int
    jump: str | None = None
    default_port: int = 22  # from the ssh configuration at attach; used for a .compute file without a port
    default_way: str | None = None  # from the ssh configuration at attach; used if `jump` is empty
    key: str = OWN
    password: bool = False  # the password is in the keyring, because the server accepts no keys
    root: str = ""  # absolute path of ~/.mlw on the machine
    python: str = ""
    host_key: str = ""  # fingerprint
    allowed: tuple[Consent, ...] = ()  # what containers may access on the machine
    places: Mapping[str, str] = field(default_factory=dict)  # standard folders, resolved at attach
    projects: tuple[tuple[str, str], ...] = ()  # (project path, target name in that project)
    linger: bool = False  # mlw enabled lingering
    facts: Mapping[str, Any] = field(default_factory=dict)
    called: str = ""  # target name in the current project; not stored

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def key_file(self) -> Path | None:
        if self.key == MADE:
            return self.folder / "key"
        return Path(self.key[len(FILE) :]) if self.key.startswith(FILE) else None

    @property
    def where(self) -> str:
        """Return user@host:port and the jump hosts, which together identify a machine."""
        return with_route(self.identity, self.jump or self.default_way)

    @property
    def keyring_name(self) -> str:
        return f"ssh:{self.where}"

    @property
    def file_port(self) -> int | None:
        """Return the port to write to a .compute file, or None if the file can omit it.

        That is only the case if the port is 22 and this user's ssh configuration does not change the default.
        """
        return None if self.port == self.default_port == 22 else self.port


def with_route(machine: str, way: str | None) -> str:
    """Format the machine and the route to it for messages."""
    return f"{machine} through {way}" if way else machine


class Attachments:
    """Collection of all attachments, stored in one folder."""

    def __init__(self, paths: UserPaths) -> None:
        self._folder = paths.home / "targets"

    def list(self) -> list[Attachment]:
        return sorted(self._read_all(), key=lambda attachment: attachment.where)

    def find(
        self, address: str, username: str | None = None, port: int | None = None, jump: str | None = None
    ) -> Attachment | None:
        """Return the machine that a .compute file names. The port and jump host must match."""
        fitting = (
            attachment
            for attachment in self.list()
            if attachment.address.lower() == address.lower()
            and username in (None, attachment.username)
            and (port or attachment.default_port) == attachment.port
            and same_route(attachment.jump, jump)
        )
        return next(fitting, None)

    def of_project(self, root: str, name: str) -> Attachment | None:
        """Return the attachment that a project used under ``name``, even if its file is missing."""
        return next(
            (replace(attachment, called=name) for attachment in self.list() if (root, name) in attachment.projects),
            None,
        )

    def draft(self, identity: str, **more: Any) -> Attachment:
        """Create a draft in its own folder. It has no effect until ``save``. ``remove`` discards it."""
        folder = self._folder / f".draft-{os.urandom(8).hex()}"
        attachment = Attachment(folder, identity, **more)
        try:
            folder.mkdir(mode=0o700, parents=True)
            self._folder.chmod(0o700)
            _hold(folder)
            _write(folder / "draft.json", attachment)
        except OSError as error:
            raise _refused(self._folder, error) from error
        return attachment

    def dead_drafts(self) -> tuple[Attachment, ...]:
        """Return drafts of killed commands; restore or remove the folders they had renamed."""
        with self._exclusive_lock():
            for old in self._folder.glob(".old-*-*"):
                place = self._folder / old.name.split("-")[1]
                if place.exists():
                    remove(str(old))
                else:
                    old.rename(place)
        folders = [folder for folder in self._folder.glob(".draft-*") if not _is_held(folder)]
        return tuple(_read(folder, "draft.json") or Attachment(folder, "", "", "", 22) for folder in folders)

    def save(self, attachment: Attachment) -> Attachment:
        """Save the attachment. A draft replaces an older attachment of the same machine and user."""
        place = self._folder / _name(attachment)
        try:
            _write(attachment.folder / "attachment.json", attachment)
            if attachment.folder != place:
                self._put_into_place(attachment.folder, place)
        except OSError as error:
            raise _refused(self._folder, error) from error
        return replace(attachment, folder=place)

    def _put_into_place(self, draft: Path, place: Path) -> None:
        for name in ("draft.json", "maker"):
            (draft / name).unlink(missing_ok=True)
        old = self._folder / f".old-{place.name}-{os.urandom(8).hex()}"
        with self._exclusive_lock():
            try:
                place.rename(old)
            except FileNotFoundError:
                pass  # the machine was not attached before
            draft.rename(place)
        if old.exists():
            remove(str(old))

    @contextmanager
    def _exclusive_lock(self) -> Iterator[None]:
        """Lock the folder while attachments are renamed."""
        try:
            held = os.open(self._folder, os.O_RDONLY)
        except OSError:
            yield  # the folder does not exist, or this is Windows, which cannot open folders
            return
        try:
            file_lock.wait_for_lock(held)
            yield
        finally:
            os.close(held)

    def remove(self, attachment: Attachment) -> None:
        remove(str(attachment.folder))
        try:
            self._folder.rmdir()  # fails if other attachments exist
        except OSError:
            pass

    def _read_all(self) -> Iterator[Attachment]:
        try:
            folders = [path for path in self._folder.iterdir() if not path.name.startswith(".")]
        except OSError:
            return
        for folder in folders:
            attachment = _read(folder)
            if attachment is not None:
                yield attachment


def same_route(jump: str | None, other: str | None) -> bool:
    """Return whether two jump host lists match. Host names are case-insensitive; user names are not."""
    return _hops(jump) == _hops(other)


def _hops(jump: str | None) -> list[tuple[str, str]]:
    parts = [hop.strip().rpartition("@") for hop in jump.split(",")] if jump else []
    return [(user, host.lower()) for user, _, host in parts]


def _name(attachment: Attachment) -> str:
    """Return the attachment's folder name. Each name or route of a machine has its own folder."""
    what = [attachment.identity]
    if attachment.address != attachment.identity.rpartition(":")[0].rpartition("@")[2]:
        what.append(attachment.address.lower())
    if attachment.jump:
        what.append(f"by {attachment.jump}")
    return hashlib.sha256("\0".join(what).encode()).hexdigest()[:16]


_held: list[int] = []  # drafts of this process; the kernel releases their locks when it exits


def _hold(folder: Path) -> None:
    handle = os.open(folder / "maker", NEW, 0o600)
    file_lock.wait_for_lock(handle)
    _held.append(handle)


def _is_held(folder: Path) -> bool:
    """Return whether the command that created the draft is still running."""
    try:
        handle = os.open(folder / "maker", os.O_RDONLY)
    except OSError:
        return time.time() - folder.stat().st_mtime < 60  # the draft is about to be locked or saved
    try:
        if not file_lock.AVAILABLE:
            return time.time() - os.fstat(handle).st_mtime < 24 * 3600
        return not file_lock.try_lock(handle)
    finally:
        os.close(handle)


def _read(folder: Path, name: str = "attachment.json") -> Attachment | None:
    try:
        data = parse_json((folder / name).read_bytes())
        names = {item.name for item in fields(Attachment)} - _NOT_STORED
        values = {name: value for name, value in data.items() if name in names}
        old = [Consent(MOUNT, path, "rw") for path in data.get("allowed_mounts", ())]  # format of older versions
        values["allowed"] = merge(old, [Consent.from_json(item) for item in values.get("allowed", ())])
        values["projects"] = tuple((path, name) for path, name in values.get("projects", ()))
        attachment = Attachment(folder, **values)
        return attachment if has_valid_types(attachment) else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None  # damaged: the machine must be attached again


def _write(path: Path, attachment: Attachment) -> None:
    data = {item.name: getattr(attachment, item.name) for item in fields(Attachment) if item.name not in _NOT_STORED}
    data["allowed"] = [item.to_json() for item in attachment.allowed]
    part = path.with_name(f".{path.name}-{os.urandom(6).hex()}")
    with open(os.open(part, NEW, 0o600), "w", encoding="utf-8") as file:
        json.dump(data, file, indent=1, default=dict)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def _refused(folder: Path, error: OSError) -> HistoryError:
    return HistoryError(f"cannot write to {folder}: {error.strerror}", "set MLW_HOME to a writable folder")
