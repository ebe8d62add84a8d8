"""What this user attached: one private folder per machine, outside of any project. No secret is in it but a key.

targets/<16 hex digits>/   attachment.json  known_hosts  key  key.pub  ssh_config (made from the rest)
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

from .consents import MOUNT, Consent, merge
from .errors import HistoryError
from .paths import UserPaths
from .remote.shared import file_lock
from .remote.shared.tree import NEW, remove
from .remote.shared.untrusted import parse_json
from .typed import is_sound

_NOT_STORED = {"folder", "called"}
OWN, MADE, FILE = "own", "mlw", "file:"  # kinds of key: the user's as ssh finds them, ours, one in a file


@dataclass(frozen=True)
class Attachment:
    """One machine, as one user of it."""

    folder: Path
    identity: str  # user@host:port as ssh resolved them; private addresses repeat, so `where` adds the way
    address: str  # as typed: may be an alias of ~/.ssh/config
    username: str
    port: int
    jump: str | None = None
    default_port: int = 22  # that of ssh's configuration at attach: what a .compute file without a port means
    default_way: str | None = None  # that of ssh's configuration at attach, for when there is no `jump`
    key: str = OWN
    password: bool = False  # it is in the keyring, because the server takes no keys
    root: str = ""  # ~/.mlw there, spelt out
    python: str = ""
    host_key: str = ""  # fingerprint
    allowed: tuple[Consent, ...] = ()  # what containers may have of the machine
    places: Mapping[str, str] = field(default_factory=dict)  # its standard folders, and where they led at attach
    projects: tuple[tuple[str, str], ...] = ()  # (path of the project, name of the target in it)
    linger: bool = False  # we switched it on
    facts: Mapping[str, Any] = field(default_factory=dict)
    called: str = ""  # the target's name in the project of this command; not stored

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
        """user@host:port and the way: with another jump host the same address is another machine."""
        return through(self.identity, self.jump or self.default_way)

    @property
    def keyring_name(self) -> str:
        return f"ssh:{self.where}"

    @property
    def file_port(self) -> int | None:
        """For a .compute file; left out only where it means the same to everybody."""
        return None if self.port == self.default_port == 22 else self.port


def through(machine: str, way: str | None) -> str:
    """A machine and the way to it, for messages."""
    return f"{machine} through {way}" if way else machine


class Attachments:
    """The folder of all of them."""

    def __init__(self, paths: UserPaths) -> None:
        self._folder = paths.home / "targets"

    def list(self) -> list[Attachment]:
        return sorted(self._read_all(), key=lambda one: one.where)

    def find(
        self, address: str, username: str | None = None, port: int | None = None, jump: str | None = None
    ) -> Attachment | None:
        """The machine that a .compute file names. With another port or jump host it would be another machine."""
        fitting = (
            one
            for one in self.list()
            if one.address.lower() == address.lower()
            and username in (None, one.username)
            and (port or one.default_port) == one.port
            and same_way(one.jump, jump)
        )
        return next(fitting, None)

    def of_project(self, root: str, name: str) -> Attachment | None:
        """The one that a project used under this name, whatever became of its file."""
        return next((replace(one, called=name) for one in self.list() if (root, name) in one.projects), None)

    def draft(self, identity: str, **more: Any) -> Attachment:
        """A new one in a folder of its own that does not count yet: `save` or `remove` it."""
        folder = self._folder / f".draft-{os.urandom(8).hex()}"
        made = Attachment(folder, identity, **more)
        try:
            folder.mkdir(mode=0o700, parents=True)
            self._folder.chmod(0o700)
            _hold(folder)
            _write(folder / "draft.json", made)
        except OSError as error:
            raise _refused(self._folder, error) from error
        return made

    def dead_drafts(self) -> tuple[Attachment, ...]:
        """Drafts of commands that were killed; and what such a one had set aside is put back, or removed."""
        with self._alone():
            for old in self._folder.glob(".old-*-*"):
                place = self._folder / old.name.split("-")[1]
                if place.exists():
                    remove(str(old))
                else:
                    old.rename(place)
        folders = [folder for folder in self._folder.glob(".draft-*") if not _is_held(folder)]
        return tuple(_read(folder, "draft.json") or Attachment(folder, "", "", "", 22) for folder in folders)

    def save(self, attachment: Attachment) -> Attachment:
        """Write it down; a draft takes the place of an older attachment of the same machine and user."""
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
        with self._alone():
            try:
                place.rename(old)
            except FileNotFoundError:
                pass  # the first of this machine
            draft.rename(place)
        if old.exists():
            remove(str(old))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else changes the folder's names meanwhile."""
        try:
            held = os.open(self._folder, os.O_RDONLY)
        except OSError:
            yield  # nothing is there, or Windows, which opens no folders
            return
        try:
            file_lock.wait_for_lock(held)
            yield
        finally:
            os.close(held)

    def remove(self, attachment: Attachment) -> None:
        remove(str(attachment.folder))
        try:
            self._folder.rmdir()  # if it was the only one
        except OSError:
            pass

    def _read_all(self) -> Iterator[Attachment]:
        try:
            folders = [path for path in self._folder.iterdir() if not path.name.startswith(".")]
        except OSError:
            return
        for folder in folders:
            found = _read(folder)
            if found is not None:
                yield found


def same_way(one: str | None, other: str | None) -> bool:
    """Whether two lists of jump hosts are the same; host names have no case, names of users do."""
    return _hops(one) == _hops(other)


def _hops(jump: str | None) -> list[tuple[str, str]]:
    parts = [hop.strip().rpartition("@") for hop in jump.split(",")] if jump else []
    return [(user, host.lower()) for user, _, host in parts]


def _name(attachment: Attachment) -> str:
    """Of its folder. The same machine by another name or another way is another: each says how ssh gets there."""
    what = [attachment.identity]
    if attachment.address != attachment.identity.rpartition(":")[0].rpartition("@")[2]:
        what.append(attachment.address.lower())
    if attachment.jump:
        what.append(f"by {attachment.jump}")
    return hashlib.sha256("\0".join(what).encode()).hexdigest()[:16]


_held: list[int] = []  # drafts of this process: the kernel lets go of them at its end, whatever the end


def _hold(folder: Path) -> None:
    handle = os.open(folder / "maker", NEW, 0o600)
    file_lock.wait_for_lock(handle)
    _held.append(handle)


def _is_held(folder: Path) -> bool:
    """Whether the command that makes it is still at work."""
    try:
        handle = os.open(folder / "maker", os.O_RDONLY)
    except OSError:
        return time.time() - folder.stat().st_mtime < 60  # it is about to be held, or to be put into place
    try:
        if not file_lock.AVAILABLE:
            return time.time() - os.fstat(handle).st_mtime < 24 * 3600
        return not file_lock.try_lock(handle)
    finally:
        os.close(handle)


def _read(folder: Path, name: str = "attachment.json") -> Attachment | None:
    try:
        data = parse_json((folder / name).read_bytes())
        known = {one.name for one in fields(Attachment)} - _NOT_STORED
        made = {name: value for name, value in data.items() if name in known}
        old = [Consent(MOUNT, path, "rw") for path in data.get("allowed_mounts", ())]  # as older versions wrote them
        made["allowed"] = merge(old, [Consent.from_json(one) for one in made.get("allowed", ())])
        made["projects"] = tuple((path, name) for path, name in made.get("projects", ()))
        found = Attachment(folder, **made)
        return found if is_sound(found) else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None  # a damaged one: the machine has to be attached again


def _write(path: Path, attachment: Attachment) -> None:
    data = {one.name: getattr(attachment, one.name) for one in fields(Attachment) if one.name not in _NOT_STORED}
    data["allowed"] = [one.to_json() for one in attachment.allowed]
    part = path.with_name(f".{path.name}-{os.urandom(6).hex()}")
    with open(os.open(part, NEW, 0o600), "w", encoding="utf-8") as file:
        json.dump(data, file, indent=1, default=dict)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def _refused(folder: Path, error: OSError) -> HistoryError:
    return HistoryError(f"cannot write to {folder}: {error.strerror}", "set MLW_HOME to a writable folder")
