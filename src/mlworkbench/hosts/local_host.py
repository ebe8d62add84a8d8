"""This machine as a host. It runs the same code as any other host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import HostError
from ..remote import run_reader
from ..remote.shared import machine
from ..remote.shared.folder_tree import remove
from ..remote.shared.layout import Root
from ..remote.shared.starter_names import DETACHED
from ..remote.shared.untrusted_json import parse_json
from . import bundle
from .host import News, Progress

if TYPE_CHECKING:
    from .host_facts import Facts
    from .package_upload import Package


class LocalHost:
    """This machine as a host. Runs share their folders with the history, so nothing is copied."""

    identity = "local"
    is_remote = False
    attachment = None

    def __init__(self, root: Root, environment: Mapping[str, str], starter: str = DETACHED) -> None:
        """Create the host. ``starter`` is a built-in starter's name or the path of a plugin's file."""
        self.root = root
        self._environment = environment
        self._starter = starter
        self._folder: Path | None = None

    def call(self, verb: str, run_id: str, arguments: Sequence[str], message: Mapping[str, Any]) -> dict[str, Any]:
        # Use the base interpreter: deleting the virtual environment must not affect the run.
        python = getattr(sys, "_base_executable", None) or sys.executable
        command = [
            python,
            "-I",
            "-S",
            str(self._bundle_folder() / "__main__.py"),
            verb,
            self.root.path,
            run_id,
            *arguments,
        ]
        environment = {name: value for name, value in self._environment.items() if not name.startswith("MLW_RUN_")}
        environment["MLW_SUPERVISOR"] = "1"
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,  # Ctrl-C in the terminal must not reach the process
                creationflags=machine.DETACHED,
            )
        except OSError as error:
            raise HostError(f"cannot start {python}: {error.strerror}") from error
        if machine.CAN_FORK:
            stdout, stderr = process.communicate(json.dumps(message).encode())
        else:
            stdout, stderr = _read_answer(process, json.dumps(message).encode()), b""
        try:
            return dict(parse_json(stdout))
        except ValueError:
            if self._reinstall_if_damaged():
                return self.call(verb, run_id, arguments, message)
            last_line = (stderr.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
            raise HostError(f"the supervisor program failed on this machine: {last_line}") from None

    def send_code(self, digest: str, store: Root, progress: Progress | None = None) -> None:
        """Do nothing: the host uses the local store."""

    def send_packages(self, packages: Mapping[str, Package], progress: Progress | None = None) -> None:
        """Do nothing: the host uses the local package folder."""

    def news(self, run_id: str, offsets: Mapping[str, int], limit: int, wait: float = 0.0) -> News:
        news = run_reader.RunUpdates(self.root.run(run_id), dict(offsets))
        if wait > 0:
            news.wait(wait, _sleep)
        status = news.status()
        parts = {**dict.fromkeys(offsets, b""), **dict(news.parts(limit))}
        return News(parts, **status, pending=news.pending, unwritten_reason=news.unwritten_reason())

    def read_file(self, run_id: str, name: str, offset: int, limit: int) -> bytes:
        return run_reader.read_run_file(self.root.run(run_id), name, offset, limit)

    def outputs(self, run_id: str, files: Sequence[tuple[str, int, int]]) -> Iterator[tuple[int, bytes]]:
        return run_reader.read_outputs(self.root.run(run_id), [list(file) for file in files])

    def facts(self) -> Facts:
        from ..remote.system_facts import gather  # noqa: PLC0415 - most commands do not need it
        from .host_facts import Facts  # noqa: PLC0415

        return Facts.from_json(gather(self.root.path))

    def ask(self, request: Mapping[str, Any], body: bytes = b"", timeout: float = 60.0) -> dict[str, Any]:
        from ..remote import handlers  # noqa: PLC0415 - most commands do not need it

        return handlers.handle_request(handlers.Connection(self.root, None), dict(request), body)

    def inrun(self) -> str:
        return str(self._bundle_folder() / "inrun")

    def warm_up(self) -> None:
        """Do nothing: this machine needs no connection."""

    def close(self) -> None:
        """Do nothing: there are no connections."""

    def _reinstall_if_damaged(self) -> bool:
        """Remove a damaged bundle (for example, after a power loss), so that it is reinstalled.

        Return False if the bundle is intact.
        """
        folder = self._bundle_folder()
        files = bundle.files(self._starter)
        if all((folder / name).is_file() and (folder / name).read_bytes() == files[name] for name in files):
            return False
        remove(str(folder.parent))
        self._folder = None
        return True

    def _bundle_folder(self) -> Path:
        """Return the bundle's folder, installed if necessary.

        Its name contains the digest, so an upgrade of mlw does not replace files that running supervisors use.
        """
        if self._folder is None:
            self._folder = install(self.root, self._starter)
        return self._folder


def _read_answer(process: subprocess.Popen[bytes], message: bytes) -> bytes:
    """Return the answer of a process that keeps running as a supervisor (on Windows; untested)."""
    assert process.stdin and process.stdout
    process.stdin.write(message)
    process.stdin.close()
    return process.stdout.read()


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def install(root: Root, starter: str = DETACHED) -> Path:
    """Install the bundle under ``lib/<digest>/remote`` in the root folder, unless it exists there."""
    folder = Path(root.lib) / bundle.digest(starter)
    if not folder.exists():
        _write_bundle(folder, bundle.files(starter))
    return folder / "remote"


def _write_bundle(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = folder.parent / f".part-{os.urandom(8).hex()}"
    for name, content in files.items():
        (part / "remote" / name).parent.mkdir(parents=True, exist_ok=True)
        with open(part / "remote" / name, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    machine.sync_folder(str(part))
    try:
        part.rename(folder)
    except OSError:
        remove(str(part))
        if not folder.exists():
            raise
