"""The kept connection: one ssh master per target, shared by all commands, ended ten minutes after the last.

Windows' ssh cannot share a connection: there every channel is a connection of its own (written, untested).
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
from ..remote.shared.untrusted import parse_json
from .openssh import MULTIPLEXES, command, environment, explain, write_config
from .slots import locked

if TYPE_CHECKING:
    from .askpass import Askpass

OPENING = 60.0  # seconds: ssh's own limits are shorter, but a jump host or a slow prompt may add to them
_LONGEST = 104 - 18  # of a socket's path, less what ssh appends while it makes one


class Master:
    """The connection to one target. ``socket`` is where its channels are opened."""

    def __init__(self, attachment: Attachment) -> None:
        self.attachment = attachment
        text = write_config(attachment).read_bytes()
        name = hashlib.sha256(os.fsencode(attachment.folder) + b"\0" + text).hexdigest()[:16]
        self.place = runtime_folder() / name
        self.socket = self.place if MULTIPLEXES else None

    def is_open(self) -> bool:
        """Whether a master listens; one that was killed leaves a socket where nobody does."""
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
        """Make sure that there is one; False if there was. Two commands never open two."""
        if self.socket is None or self.is_open():
            return False
        asked = time.time()
        lock = locked(self.place.with_suffix(".lock"), 2 * OPENING, self._tired)
        try:
            if self.is_open():
                return False
            _share_failure(lock, asked)
            try:
                self._start(askpass, options)
            except Unreachable as error:
                _note_failure(lock, error)
                raise
            failpoint("connected")
            return True
        finally:
            os.close(lock)

    def drop(self) -> None:
        """No new channels through this one; those that are open go on until they end."""
        self._tell("stop")
        if self.socket is not None:
            self.socket.unlink(missing_ok=True)  # it may be too far gone to do so itself

    def close(self) -> None:
        """The connection ends, with all its channels."""
        if self.is_open():
            self._tell("exit")

    def run(self, askpass: Askpass | None, options: Sequence[str], *words: str) -> tuple[int, str]:
        """One ssh of its own, not through the master; its exit code and what it said."""
        return self._run(command(self.attachment, options, *words), askpass)

    def _start(self, askpass: Askpass | None, options: Sequence[str]) -> None:
        assert self.socket is not None
        self.socket.unlink(missing_ok=True)
        mode = [] if askpass is None else ["BatchMode=no"]
        words = command(self.attachment, [*mode, *options, "-M", "-N", "-f"], socket=self.socket)
        code, said = self._run(words, askpass)
        if code:
            if "exchange_identification" in said or "banner" in said:  # what came instead is told by -v only
                said = self._run([words[0], "-v", "-o", "LogLevel=DEBUG1", *words[1:]], None)[1]
            raise explain(self.attachment, said)

    def _run(self, words: Sequence[str], askpass: Askpass | None) -> tuple[int, str]:
        import tempfile  # noqa: PLC0415 - slow to import, and a kept connection does without

        # Not a pipe: older versions keep it open in the background, and we would wait for its end.
        with tempfile.TemporaryFile() as said:
            try:
                process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    env=environment(askpass.environment() if askpass else None),
                    cwd="/" if MULTIPLEXES else None,  # it stays for minutes, and must not hold on to a project's disk
                    start_new_session=True,  # no terminal to ask at, and Ctrl-C is not for it
                )
                code = process.wait(OPENING)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise Unreachable(
                    f"{self.attachment.identity} did not accept the login within {OPENING:.0f} s"
                ) from None
            except OSError as error:
                raise HostError(f"cannot start {words[0]}: {error.strerror}") from error
            said.seek(0)
            return code, said.read(256 * 1024).decode(errors="replace")

    def _tell(self, what: str) -> None:
        if self.socket is None:
            return
        try:
            subprocess.run(
                command(self.attachment, [f"-O{what}"], socket=self.socket),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=environment(),
                timeout=2,
                check=False,
            )
        except (subprocess.TimeoutExpired, OSError):
            pass  # it does not listen any more

    def _tired(self) -> HostError:
        return HostError(f"timed out while another command was connecting to {self.attachment.identity}")


def _note_failure(lock: int, error: Unreachable) -> None:
    """For those who wait for the lock: each would else find out by itself, one after the other."""
    words = json.dumps({"time": time.time(), "message": error.message, "hint": error.hint})
    os.ftruncate(lock, 0)
    os.pwrite(lock, words.encode(), 0)


def _share_failure(lock: int, asked: float) -> None:
    """Another command has tried since we asked, in vain."""
    try:
        noted = parse_json(os.pread(lock, 65536, 0))
        fresh = asked <= float(noted["time"]) <= time.time()
    except (OSError, ValueError, KeyError, TypeError):
        return
    if fresh:
        raise Unreachable(str(noted["message"]), noted["hint"])


def runtime_folder() -> Path:
    """Where sockets and locks are: private, and with a short name."""
    return _runtime(make=True)


def usable_folder() -> Path:
    """Where they are, or would be; nothing is made."""
    return _runtime(make=False)


def _runtime(make: bool) -> Path:
    given = os.environ.get("XDG_RUNTIME_DIR")
    places = [Path(given) / "mlw"] if given else []
    places.append(Path("/tmp") / f"mlw-{os.getuid()}" if MULTIPLEXES else _windows_folder())
    for place in places:
        if len(str(place)) + 17 > _LONGEST and MULTIPLEXES:
            continue
        try:
            if make:
                place.mkdir(mode=0o700, exist_ok=True)
            elif not os.path.lexists(place):
                if os.access(place.parent, os.W_OK | os.X_OK):
                    return place
                continue
            if not MULTIPLEXES or _is_private(place):
                return place
        except OSError:
            continue
    raise HostError(
        f"{places[-1]} cannot be used for connections: it is not private to this user",
        f"remove it, or set XDG_RUNTIME_DIR to a private folder whose path is shorter than {_LONGEST - 21} characters",
    )


def _windows_folder() -> Path:
    import tempfile  # noqa: PLC0415 - slow to import

    return Path(tempfile.gettempdir()) / "mlw"


def _is_private(place: Path) -> bool:
    found = place.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077
