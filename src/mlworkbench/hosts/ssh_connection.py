"""Shared SSH connections: all mlw commands use one ssh master per target, which exits after ten idle minutes.

OpenSSH for Windows cannot share connections. There, each channel opens a separate connection (untested).
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..attachments import Attachment
from ..errors import HostError, Unreachable
from ..remote.shared.failpoint import failpoint
from ..remote.shared.untrusted_json import parse_json
from .channel_slots import acquire_lock
from .openssh import SUPPORTS_MULTIPLEXING, command, environment, explain_ssh_error, write_config

if TYPE_CHECKING:
    from .askpass import Askpass

OPEN_TIMEOUT = 60.0  # seconds; more than ssh's own limits, because a jump host or a slow prompt takes extra time
_MAX_SOCKET_PATH = 104 - 18  # system limit, minus the suffix that ssh appends while it creates the socket


class SshConnection:
    """The shared connection to one target. Channels are opened through ``socket``."""

    def __init__(self, attachment: Attachment) -> None:
        self.attachment = attachment
        text = write_config(attachment).read_bytes()
        name = hashlib.sha256(os.fsencode(attachment.folder) + b"\0" + text).hexdigest()[:16]
        self.path = runtime_folder() / name
        self.socket = self.path if SUPPORTS_MULTIPLEXING else None

    def is_open(self) -> bool:
        """Return whether a master is listening. A killed master leaves a socket with no listener."""
        if self.socket is None:
            return False
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1)
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
        return True

    def open(self, askpass: Askpass | None = None, options: Sequence[str] = ()) -> bool:
        """Open the connection unless it is already open. Return whether this call opened it.

        A lock prevents two commands from opening it at the same time.
        """
        if self.socket is None or self.is_open():
            return False
        requested = time.time()
        lock = acquire_lock(self.path.with_suffix(".lock"), 2 * OPEN_TIMEOUT, self._lock_timeout)
        try:
            if self.is_open():
                return False
            _raise_recent_failure(lock, requested)
            try:
                self._start(askpass, options)
            except Unreachable as error:
                _record_failure(lock, error)
                raise
            failpoint("connected")
            return True
        finally:
            os.close(lock)

    def retire(self) -> None:
        """Accept no new channels. Open channels continue until they end."""
        self._control("stop")
        if self.socket is not None:
            self.socket.unlink(missing_ok=True)  # a stuck master does not remove its socket

    def close(self) -> None:
        """Close the connection and all its channels."""
        if self.is_open():
            self._control("exit")

    def run(self, askpass: Askpass | None, options: Sequence[str], *arguments: str) -> tuple[int, str]:
        """Run a separate ssh process that does not use the master. Return its exit status and stderr."""
        return self._run(command(self.attachment, options, *arguments), askpass)

    def _start(self, askpass: Askpass | None, options: Sequence[str]) -> None:
        assert self.socket is not None
        self.socket.unlink(missing_ok=True)
        mode = [] if askpass is None else ["BatchMode=no"]
        ssh_command = command(self.attachment, [*mode, *options, "-M", "-N", "-f"], socket=self.socket)
        exit_status, output = self._run(ssh_command, askpass)
        if exit_status:
            if "exchange_identification" in output or "banner" in output:  # only -v prints what the server sent
                output = self._run([ssh_command[0], "-v", "-o", "LogLevel=DEBUG1", *ssh_command[1:]], None)[1]
            raise explain_ssh_error(self.attachment, output)

    def _run(self, ssh_command: Sequence[str], askpass: Askpass | None) -> tuple[int, str]:
        import tempfile  # noqa: PLC0415 - slow to import, and not needed for an open connection

        # Use a file: older ssh versions keep stderr open in the background, so reading a pipe would block.
        with tempfile.TemporaryFile() as stderr:
            try:
                process = subprocess.Popen(
                    ssh_command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    env=environment(askpass.environment() if askpass else None),
                    cwd="/"
                    if SUPPORTS_MULTIPLEXING
                    else None,  # ssh keeps running and must not block unmounting a project's disk
                    start_new_session=True,  # no terminal, so no prompts and no Ctrl-C
                )
                exit_status = process.wait(OPEN_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise Unreachable(
                    f"{self.attachment.identity} did not accept the login within {OPEN_TIMEOUT:.0f} s"
                ) from None
            except OSError as error:
                raise HostError(f"cannot start {ssh_command[0]}: {error.strerror}") from error
            stderr.seek(0)
            return exit_status, stderr.read(256 * 1024).decode(errors="replace")

    def _control(self, action: str) -> None:
        if self.socket is None:
            return
        try:
            subprocess.run(
                command(self.attachment, [f"-O{action}"], socket=self.socket),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=environment(),
                timeout=2,
                check=False,
            )
        except (subprocess.TimeoutExpired, OSError):
            pass  # the master no longer listens

    def _lock_timeout(self) -> HostError:
        return HostError(f"timed out while another command was connecting to {self.attachment.identity}")


def _record_failure(lock: int, error: Unreachable) -> None:
    """Record a failure for commands that are waiting for the lock, so that they need not try again."""
    record = json.dumps({"time": time.time(), "message": error.message, "hint": error.hint})
    os.ftruncate(lock, 0)
    os.pwrite(lock, record.encode(), 0)


def _raise_recent_failure(lock: int, requested: float) -> None:
    """Raise the failure that another command recorded while this one was waiting for the lock, if any."""
    try:
        record = parse_json(os.pread(lock, 65536, 0))
        is_recent = requested <= float(record["time"]) <= time.time()
    except (OSError, ValueError, KeyError, TypeError):
        return
    if is_recent:
        raise Unreachable(str(record["message"]), record["hint"])


def runtime_folder() -> Path:
    """Return the private folder for sockets and locks, which has a short path."""
    return _choose_folder(create=True)


def find_runtime_folder() -> Path:
    """Return the folder for sockets and locks without creating it."""
    return _choose_folder(create=False)


def _choose_folder(create: bool) -> Path:
    runtime_dir = os.environ.get("XDG_RUNTIME_DIR")
    candidates = [Path(runtime_dir) / "mlw"] if runtime_dir else []
    candidates.append(Path("/tmp") / f"mlw-{os.getuid()}" if SUPPORTS_MULTIPLEXING else _windows_folder())
    for folder in candidates:
        if len(str(folder)) + 17 > _MAX_SOCKET_PATH and SUPPORTS_MULTIPLEXING:
            continue
        try:
            if create:
                folder.mkdir(mode=0o700, exist_ok=True)
            elif not os.path.lexists(folder):
                if os.access(folder.parent, os.W_OK | os.X_OK):
                    return folder
                continue
            if not SUPPORTS_MULTIPLEXING or _is_private(folder):
                return folder
        except OSError:
            continue
    raise HostError(
        f"{candidates[-1]} cannot be used for connections: it is not private to this user",
        "remove it, or set XDG_RUNTIME_DIR to a private folder whose path is shorter than"
        f" {_MAX_SOCKET_PATH - 21} characters",
    )


def _windows_folder() -> Path:
    import tempfile  # noqa: PLC0415 - slow to import

    return Path(tempfile.gettempdir()) / "mlw"


def _is_private(folder: Path) -> bool:
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077
