"""Terminal sessions: the user's shells on pseudo-terminals.

They keep running after the page is closed, and end with the server.
"""

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
from ..remote.shared.program_lookup import safe_path

AVAILABLE = os.name == "posix"
MAX_KEPT = 256 * 1024  # maximum bytes of output to show in a reopened page
_MAX_SHELLS = 16
_CHUNK = 64 * 1024
_MAX_PENDING = 4 * 1024 * 1024  # maximum bytes of pending input
_SIZES = range(2, 1000)
# A shell needs a controlling terminal before it starts. In a process with threads, none of our code may run
# between fork and exec.
_SET_CONTROLLING_TERMINAL = (
    "import fcntl, os, sys, termios\nfcntl.ioctl(0, termios.TIOCSCTTY, 0)\nos.execvp(sys.argv[1], sys.argv[1:])\n"
)
_BASH = Path(__file__).with_name("bash.rc")
_START_UP = ("ENV", "BASH_ENV", "ZDOTDIR", "INPUTRC", "XDG_CONFIG_HOME")  # variables that determine startup files


class Shell:
    """Shell on a pseudo-terminal.

    Its output is kept up to a maximum size. Positions count from the start of the output.
    """

    def __init__(self, project: str, number: int, first: str) -> None:
        self.id = secrets.token_hex(8)
        self.project = project
        self.number = number
        self.started = time.time()
        self.ended = False
        self._output = bytearray(first.encode())
        self._start = 0  # position of the first kept byte
        self._output_event = asyncio.Event()
        self._views: dict[str, int] = {}  # last position read by each page
        self._paused = False
        self._pending_input = bytearray()  # input not yet written
        self._master = -1
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self, arguments: list[str], cwd: Path, environment: Mapping[str, str]) -> None:
        self._master, self._process = await asyncio.to_thread(_spawn, arguments, cwd, environment)
        if self.ended:  # closed in the meantime
            self.ended = False
            self.close()
            return
        os.set_blocking(self._master, False)
        asyncio.get_running_loop().add_reader(self._master, self._on_readable)

    # -- output ------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        return self._start + len(self._output)

    def read(self, position: int) -> tuple[bytes, int]:
        """Return part of the kept output, starting at ``position``, and the position after it."""
        first = max(position, self._start)
        data = bytes(self._output[first - self._start : first - self._start + _CHUNK])
        return data, first + len(data)

    async def wait_for_output(self) -> None:
        """Wait for more output or for the shell to end."""
        self._output_event.clear()
        await self._output_event.wait()

    def acknowledge(self, view: str, position: int) -> None:
        """Record that a page has shown the output up to ``position``.

        If a page falls far behind, reading from the shell pauses until the page catches up.
        """
        self._views[view] = position
        self._resume()

    def detach(self, view: str) -> None:
        self._views.pop(view, None)
        self._resume()

    def _on_readable(self) -> None:
        try:
            data = os.read(self._master, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # raised on Linux when the last program has closed the terminal
            data = b""
        if not data:
            self._end()
            return
        self._output += data
        if len(self._output) > 2 * MAX_KEPT:
            self._start += len(self._output) - MAX_KEPT
            del self._output[: len(self._output) - MAX_KEPT]
        self._output_event.set()
        if self._views and self.position - min(self._views.values()) > MAX_KEPT:
            self._paused = True
            asyncio.get_running_loop().remove_reader(self._master)

    def _resume(self) -> None:
        behind = self.position - min(self._views.values()) if self._views else 0
        if self._paused and behind <= MAX_KEPT and not self.ended:
            self._paused = False
            asyncio.get_running_loop().add_reader(self._master, self._on_readable)

    # -- input ---------------------------------------------------------------------------

    def write(self, text: str) -> None:
        """Send input. Unread input is kept up to a maximum size; the rest is lost."""
        if self.ended or self._master < 0:
            return
        is_waiting = bool(self._pending_input)
        self._pending_input += text.encode("utf-8", "replace")[: _MAX_PENDING - len(self._pending_input)]
        if not is_waiting:
            self._flush_input()

    def _flush_input(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            del self._pending_input[: os.write(self._master, self._pending_input)]
        except BlockingIOError:
            pass
        except OSError:
            self._pending_input.clear()  # there is no reader anymore; _on_readable detects the end
        if self._pending_input:
            loop.add_writer(self._master, self._flush_input)
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

    # -- end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the terminal; programs in it receive SIGHUP."""
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
            return  # still starting; start() closes it
        with suppress(RuntimeError, ValueError):  # no event loop at server shutdown
            asyncio.get_running_loop().remove_reader(self._master)
            asyncio.get_running_loop().remove_writer(self._master)
        os.close(self._master)
        if self._process is not None and self._process.poll() is None:
            # Collect its exit status without blocking the event loop.
            threading.Thread(target=self._process.wait, daemon=True).start()
        self._output += b"\r\n(the shell has ended)\r\n"
        self._output_event.set()


def _spawn(arguments: list[str], cwd: Path, environment: Mapping[str, str]) -> tuple[int, subprocess.Popen[bytes]]:
    """Start a process on a new pseudo-terminal, and return the master descriptor and the process."""
    master, slave = os.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SET_CONTROLLING_TERMINAL, *arguments],
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
class ShellSessions:
    """All terminal sessions of this server."""

    _shells: dict[str, Shell] = field(default_factory=dict)

    def for_project(self, project: str) -> list[Shell]:
        return [shell for shell in self._shells.values() if shell.project == project]

    def get(self, project: str, name: str) -> Shell | None:
        shell = self._shells.get(name)
        return shell if shell is not None and shell.project == project else None

    async def start(self, project: str, cwd: Path, folders: list[str], first: str) -> Shell:
        """Start the user's shell in ``cwd``.

        ``folders`` are prepended to PATH. ``first`` is printed at the start.
        """
        if not AVAILABLE:
            raise UsageError("the terminal is not available on Windows", "use a Windows terminal")
        for ended in [shell for shell in self._shells.values() if shell.ended]:
            del self._shells[ended.id]
        if len(self._shells) >= _MAX_SHELLS:
            raise UsageError(f"at most {_MAX_SHELLS} terminals can be open", "close a terminal first")
        taken = {shell.number for shell in self.for_project(project)}
        number = next(number for number in range(1, _MAX_SHELLS + 2) if number not in taken)
        shell = Shell(project, number, first)
        arguments, environment = _shell_command(folders)
        self._shells[shell.id] = shell
        try:
            await shell.start(arguments, cwd, environment)
        except BaseException:
            self._shells.pop(shell.id, None)
            raise
        return shell

    def end(self, shell: Shell) -> None:
        shell.close()
        self._shells.pop(shell.id, None)

    def close(self) -> None:
        for shell in list(self._shells.values()):
            self.end(shell)


def _shell_command(folders: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the command line of the user's shell and its environment.

    The user's startup files run with a PATH that contains no project folders. ``folders`` are prepended
    afterward or, if the shell does not support this, appended.
    """
    program = os.environ.get("SHELL") or "/bin/sh"
    if not os.path.isabs(program) or not os.access(program, os.X_OK):
        program = "/bin/sh"
    extra_path = os.pathsep.join(folders)
    environment = {**os.environ, "PATH": safe_path(), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    for name in ("NO_COLOR", "PYTHONUNBUFFERED", "COLUMNS", "LINES"):
        environment.pop(name, None)
    for name in _START_UP:
        if not os.path.isabs(environment.get(name, os.sep)):
            del environment[name]  # a relative path could be a file in the project
    kind = os.path.basename(program)
    if kind == "bash":
        return [program, "--rcfile", str(_BASH), "-i"], {**environment, "MLW_TERMINAL_PATH": extra_path}
    if kind == "fish":
        extend = 'test -n "$MLW_TERMINAL_PATH"; and set -gx PATH (string split : $MLW_TERMINAL_PATH) $PATH'
        return [program, "-C", extend], {**environment, "MLW_TERMINAL_PATH": extra_path}
    return [program, "-i"], {**environment, "PATH": os.pathsep.join(filter(None, (environment["PATH"], extra_path)))}
