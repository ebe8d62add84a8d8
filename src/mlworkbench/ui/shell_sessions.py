"""Command prompts: shells of this user behind pseudo-terminals. They outlive the page, and end with the server."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UsageError
from ..remote.shared.programs import safe_path

AVAILABLE = os.name == "posix"
KEPT = 256 * 1024  # bytes of what was said that a page which comes back sees again
_MOST = 16
_CHUNK = 64 * 1024
_WAITING = 4 * 1024 * 1024  # bytes of what is typed
_SIZES = range(2, 1000)
# A shell needs the terminal as its own before it starts; no code of ours may run between fork and exec in a
# process that has threads.
_OWN_TERMINAL = (
    "import fcntl, os, sys, termios\nfcntl.ioctl(0, termios.TIOCSCTTY, 0)\nos.execvp(sys.argv[1], sys.argv[1:])\n"
)
_BASH = Path(__file__).with_name("bash.rc")
_START_UP = ("ENV", "BASH_ENV", "ZDOTDIR", "INPUTRC", "XDG_CONFIG_HOME")  # name files that shells read first


class Shell:
    """One of them. What it says is kept up to a bound, and counted from its beginning."""

    def __init__(self, project: str, number: int, first: str) -> None:
        self.id = secrets.token_hex(8)
        self.project = project
        self.number = number
        self.began = time.time()
        self.ended = False
        self._said = bytearray(first.encode())
        self._start = 0  # where in all that was said the kept part begins
        self._news = asyncio.Event()
        self._views: dict[str, int] = {}  # where each page has read to
        self._paused = False
        self._typed = bytearray()  # what is not written yet
        self._master = -1
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self, words: list[str], cwd: Path, environment: Mapping[str, str]) -> None:
        self._master, self._process = await asyncio.to_thread(_spawned, words, cwd, environment)
        if self.ended:  # it was closed meanwhile
            self.ended = False
            self.close()
            return
        os.set_blocking(self._master, False)
        asyncio.get_running_loop().add_reader(self._master, self._hear)

    # -- what it says ------------------------------------------------------------------------------

    @property
    def said(self) -> int:
        return self._start + len(self._said)

    def since(self, place: int) -> tuple[bytes, int]:
        """Some of what was said from this place on, as far as it is kept, and the place behind it."""
        first = max(place, self._start)
        data = bytes(self._said[first - self._start : first - self._start + _CHUNK])
        return data, first + len(data)

    async def news(self) -> None:
        """Until more is said, or it ends."""
        self._news.clear()
        await self._news.wait()

    def read_to(self, view: str, place: int) -> None:
        """A page has shown all up to here. While one lags far behind, the shell waits for it."""
        self._views[view] = place
        self._go_on()

    def leave(self, view: str) -> None:
        self._views.pop(view, None)
        self._go_on()

    def _hear(self) -> None:
        try:
            data = os.read(self._master, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # what Linux says when the last program has closed it
            data = b""
        if not data:
            self._end()
            return
        self._said += data
        if len(self._said) > 2 * KEPT:
            self._start += len(self._said) - KEPT
            del self._said[: len(self._said) - KEPT]
        self._news.set()
        if self._views and self.said - min(self._views.values()) > KEPT:
            self._paused = True
            asyncio.get_running_loop().remove_reader(self._master)

    def _go_on(self) -> None:
        behind = self.said - min(self._views.values()) if self._views else 0
        if self._paused and behind <= KEPT and not self.ended:
            self._paused = False
            asyncio.get_running_loop().add_reader(self._master, self._hear)

    # -- what it is told ---------------------------------------------------------------------------

    def type(self, text: str) -> None:
        """What a program does not read yet waits for it, up to a bound; what is beyond is lost."""
        if self.ended or self._master < 0:
            return
        is_waiting = bool(self._typed)
        self._typed += text.encode("utf-8", "replace")[: _WAITING - len(self._typed)]
        if not is_waiting:
            self._write()

    def _write(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            del self._typed[: os.write(self._master, self._typed)]
        except BlockingIOError:
            pass
        except OSError:
            self._typed.clear()  # nobody is there to read it; the reader will notice the end
        if self._typed:
            loop.add_writer(self._master, self._write)
        else:
            loop.remove_writer(self._master)

    def resize(self, columns: int, rows: int) -> None:
        if self.ended or self._master < 0 or columns not in _SIZES or rows not in _SIZES:
            return
        import fcntl  # noqa: PLC0415 - not on Windows
        import struct  # noqa: PLC0415
        import termios  # noqa: PLC0415

        with suppress(OSError):
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    # -- its end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """What runs in it is told that the terminal is gone."""
        if self._process is not None and self._process.poll() is None:
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGHUP)
                os.killpg(self._process.pid, signal.SIGCONT)
        self._end()

    def _end(self) -> None:
        if self.ended:
            return
        self.ended = True
        if self._master < 0:
            return  # it is only just being started
        with suppress(RuntimeError, ValueError):  # no loop any more, at the end of the server
            asyncio.get_running_loop().remove_reader(self._master)
            asyncio.get_running_loop().remove_writer(self._master)
        os.close(self._master)
        if self._process is not None and self._process.poll() is None:
            # Collect its exit status without holding up the event loop.
            threading.Thread(target=self._process.wait, daemon=True).start()
        self._said += b"\r\n(the shell has ended)\r\n"
        self._news.set()


def _spawned(words: list[str], cwd: Path, environment: Mapping[str, str]) -> tuple[int, subprocess.Popen[bytes]]:
    """Our end of its terminal, and the process."""
    master, slave = os.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _OWN_TERMINAL, *words],
            cwd=cwd,
            env=dict(environment),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
    except OSError as error:
        os.close(master)
        raise UsageError(f"cannot start a shell: {error.strerror}") from None
    finally:
        os.close(slave)
    return master, process


@dataclass
class Shells:
    """Those of this server."""

    _known: dict[str, Shell] = field(default_factory=dict)

    def of(self, project: str) -> list[Shell]:
        return [one for one in self._known.values() if one.project == project]

    def get(self, project: str, name: str) -> Shell | None:
        found = self._known.get(name)
        return found if found is not None and found.project == project else None

    async def start(self, project: str, cwd: Path, folders: list[str], first: str) -> Shell:
        """The user's shell in a folder; ``folders`` go before PATH, ``first`` is said before all else."""
        if not AVAILABLE:
            raise UsageError("the terminal is not available on Windows", "use a Windows terminal")
        for ended in [one for one in self._known.values() if one.ended]:
            del self._known[ended.id]
        if len(self._known) >= _MOST:
            raise UsageError(f"at most {_MOST} terminals can be open", "close a terminal first")
        taken = {one.number for one in self.of(project)}
        number = next(number for number in range(1, _MOST + 2) if number not in taken)
        shell = Shell(project, number, first)
        words, environment = _shell(folders)
        self._known[shell.id] = shell
        try:
            await shell.start(words, cwd, environment)
        except BaseException:
            self._known.pop(shell.id, None)
            raise
        return shell

    def end(self, shell: Shell) -> None:
        shell.close()
        self._known.pop(shell.id, None)

    def close(self) -> None:
        for shell in list(self._known.values()):
            self.end(shell)


def _shell(folders: list[str]) -> tuple[list[str], dict[str, str]]:
    """The words that start it, and its environment.

    The user's start-up files run with a PATH that has nothing of a project. ``folders`` come first after them; where a
    shell has no way for that, they come last.
    """
    program = os.environ.get("SHELL") or "/bin/sh"
    if not os.path.isabs(program) or not os.access(program, os.X_OK):
        program = "/bin/sh"
    more = os.pathsep.join(folders)
    environment = {**os.environ, "PATH": safe_path(), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    for name in ("NO_COLOR", "PYTHONUNBUFFERED", "COLUMNS", "LINES"):
        environment.pop(name, None)
    for name in _START_UP:
        if not os.path.isabs(environment.get(name, os.sep)):
            del environment[name]  # a file in the project, by chance or not
    kind = os.path.basename(program)
    if kind == "bash":
        return [program, "--rcfile", str(_BASH), "-i"], {**environment, "MLW_TERMINAL_PATH": more}
    if kind == "fish":
        extend = 'test -n "$MLW_TERMINAL_PATH"; and set -gx PATH (string split : $MLW_TERMINAL_PATH) $PATH'
        return [program, "-C", extend], {**environment, "MLW_TERMINAL_PATH": more}
    return [program, "-i"], {**environment, "PATH": os.pathsep.join(filter(None, (environment["PATH"], more)))}
