"""This machine as a host. The same program is started here as on every other host."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import remote
from ..errors import HostError
from ..remote import machine
from ..remote.folder import Root
from ..remote.tree import NOFOLLOW, remove
from .host import News

if TYPE_CHECKING:
    from .facts import Facts

_TRAVELS = Path(remote.__file__).parent


class LocalHost:
    """Runs live in the same folders as the history's: nothing is copied."""

    def __init__(self, root: Root, environment: Mapping[str, str]) -> None:
        self.root = root
        self._environment = environment
        self._library: Path | None = None

    def call(self, verb: str, run_id: str, words: Sequence[str], message: Mapping[str, Any]) -> dict[str, Any]:
        # The interpreter below a virtual environment: the run must not care when that is deleted.
        python = getattr(sys, "_base_executable", None) or sys.executable
        command = [python, "-I", "-S", str(self._installed() / "__main__.py"), verb, self.root.path, run_id, *words]
        environment = {name: value for name, value in self._environment.items() if not name.startswith("MLW_RUN_")}
        environment["MLW_SUPERVISOR"] = "1"
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,  # Ctrl-C in our terminal is not for it
                creationflags=machine.DETACHED,
            )
        except OSError as error:
            raise HostError(f"cannot start {python}: {error.strerror}") from error
        if machine.FORKS:
            told, said = process.communicate(json.dumps(message).encode())
        else:
            told, said = _ask(process, json.dumps(message).encode()), b""
        try:
            return dict(json.loads(told))
        except ValueError:
            if self._heal():
                return self.call(verb, run_id, words, message)
            last = (said.decode(errors="replace").strip().splitlines() or ["nothing was said"])[-1]
            raise HostError(f"the supervisor program failed on this machine: {last}") from None

    def news(self, run_id: str, offsets: Mapping[str, int], limit: int) -> News:
        folder = self.root.run(run_id)
        # Before the bytes are read: what a supervisor wrote before it let go of the lock must not be missed.
        supervised = machine.is_locked(folder.lock)
        parts = {name: _read(os.path.join(folder.path, name), offset, limit) for name, offset in offsets.items()}
        # After the events: a file that is there when the end is told must not be missed.
        for name in _names(folder.metrics):
            if name not in parts:
                parts[name] = _read(os.path.join(folder.path, name), 0, limit)
        return News(parts, os.path.exists(folder.spec), os.path.exists(folder.owner), supervised)

    def inrun(self) -> str:
        return str(self._installed() / "inrun")

    def facts(self) -> Facts:
        from ..remote.facts import gather  # noqa: PLC0415 - most commands do without
        from .facts import Facts  # noqa: PLC0415

        return Facts.from_json(gather(self.root.path))

    def close(self) -> None:
        """Nothing is held open."""

    def _heal(self) -> bool:
        """Whether what is installed was damaged (a power cut), and is whole now."""
        place = self._installed()
        files = _files()
        if all(
            (place / name).is_file() and (place / name).read_bytes() == (_TRAVELS / name).read_bytes() for name in files
        ):
            return False
        remove(str(place.parent))
        self._library = None
        return True

    def _installed(self) -> Path:
        """What travels, in a folder named by its content: an upgrade of mlw does not touch running supervisors."""
        if self._library is None:
            self._library = install(self.root)
        return self._library


def _ask(process: subprocess.Popen[bytes], message: bytes) -> bytes:
    """The answer of a process that then stays and supervises (Windows; untested)."""
    assert process.stdin and process.stdout
    process.stdin.write(message)
    process.stdin.close()
    return process.stdout.read()


def install(root: Root) -> Path:
    """Put what travels under ``lib/<digest>/remote`` of the root, unless it is there."""
    files = _files()
    digest = hashlib.sha256()
    for name in files:
        digest.update(str(name).encode() + b"\0" + (_TRAVELS / name).read_bytes() + b"\0")
    place = Path(root.lib) / digest.hexdigest()[:16]
    if not place.exists():
        _copy(files, place)
    return place / "remote"


def _files() -> list[Path]:
    return sorted(path.relative_to(_TRAVELS) for path in _TRAVELS.glob("**/*.py"))


def _copy(files: Sequence[Path], place: Path) -> None:
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = place.parent / f".part-{os.urandom(8).hex()}"
    for name in files:
        (part / "remote" / name).parent.mkdir(parents=True, exist_ok=True)
        with open(part / "remote" / name, "wb") as file:
            file.write((_TRAVELS / name).read_bytes())
            file.flush()
            os.fsync(file.fileno())
    machine.sync_folder(str(part))
    try:
        part.rename(place)
    except OSError:
        remove(str(part))
        if not place.exists():
            raise


def _names(metrics: str) -> list[str]:
    try:
        return [f"metrics/{name}" for name in os.listdir(metrics)]
    except OSError:
        return []  # no metrics yet


def _read(path: str, offset: int, limit: int) -> bytes:
    """Bytes of a plain file; a script may have put anything in its place."""
    try:
        descriptor = os.open(path, os.O_RDONLY | NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError:
        return b""
    with open(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        file.seek(offset)
        return file.read(limit) or b""
