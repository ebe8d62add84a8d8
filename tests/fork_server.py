"""`mlw` commands as forks of a process that has already imported mlw: real processes without Python startup.

The server is this file, run as a program. It forks one monitor process per command. The monitor waits for the command
and reports its exit status, even if the command was killed.
"""

from __future__ import annotations

import array
import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

_ROOT = Path(__file__).resolve().parents[1]
_LENGTH = 8  # size of a number in a message, in bytes
_NOT_IMPORTED = (
    *("mlworkbench.__main__", "mlworkbench.process_entry", "mlworkbench.remote", "mlworkbench.samples"),
    "mlworkbench.testing",  # no command imports this package
)
_UI = "mlworkbench.ui"
_LANG = "C.UTF-8"
_AT_START = ("PYTHON", "LD_", "LC_", "MALLOC_", "FAKETIME", "_MLW_COMPLETE")  # have an effect at startup
_LATER = {"PYTHON_KEYRING_BACKEND"}  # read later, by the keyring package, which the server does not import


Stream = int | IO[Any]


class ForkServer:
    """The fork server of this test process. ``ui``: whether the server also imports the UI."""

    def __init__(self, program: Path, env: dict[str, str], *, ui: bool = False) -> None:
        self._control, theirs = socket.socketpair()
        command = [sys.executable, __file__, str(theirs.fileno()), str(program), "ui" if ui else "cli"]
        self._process = subprocess.Popen(
            command, env=env, cwd="/", pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        theirs.close()

    def start(
        self, arguments: tuple[str, ...], cwd: Path, env: dict[str, str], streams: tuple[int, int, int]
    ) -> Forked:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"+"], [theirs.fileno()])
        request = json.dumps({"words": arguments, "cwd": str(cwd), "env": env}).encode("utf-8", "surrogateescape")
        socket.send_fds(ours, [len(request).to_bytes(_LENGTH, "big")], streams)
        ours.sendall(request)
        return Forked(ours, arguments, env)

    def stop(self) -> None:
        self._control.close()
        self._process.wait(20)


class Forked:
    """A command that the server started, with the parts of subprocess.Popen that tests use."""

    def __init__(self, connection: socket.socket, arguments: tuple[str, ...], env: dict[str, str]) -> None:
        self.args = arguments
        self.env = env
        self.returncode: int | None = None
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        self._connection = connection
        self.pid = self._number()
        _started.append(self)

    def _number(self) -> int:
        data = b""
        while len(data) < _LENGTH:
            piece = self._connection.recv(_LENGTH - len(data))
            assert piece, f"the fork server ended before {self.args}"
            data += piece
        return int.from_bytes(data, "big", signed=True)

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self.returncode = self._number()
            self._connection.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not select.select([self._connection], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def end(self) -> None:
        """Kill the command if it is running, and close its pipes."""
        self.kill()
        self.wait(60)
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Wait for the command and return its output. After a timeout, kill the process; its output is lost."""
        end = None if timeout is None else time.monotonic() + timeout
        texts = [b"", b""]
        readers = []
        for index, stream in enumerate((self.stdout, self.stderr)):
            if stream is not None:
                readers.append(threading.Thread(target=_read, args=(stream, texts, index), daemon=True))
                readers[-1].start()
        for reader in readers:
            reader.join(None if end is None else max(0.0, end - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(None if end is None else max(0.0, end - time.monotonic()))
        return texts[0], texts[1]


_servers: dict[bool, ForkServer] = {}
_started: list[Forked] = []


def forked(mark: str) -> list[Forked]:
    """Return the commands whose variables contain the mark. /proc does not show the variables of a fork."""
    return [command for command in list(_started) if any(mark in value for value in command.env.values())]


def end_forked(mark: str) -> None:
    for command in forked(mark):
        _started.remove(command)
        command.end()


def is_forkable(env: dict[str, str]) -> bool:
    """Return whether a fork can run with these variables: none of them affects the startup of Python."""
    return env.get("LANG") == _LANG and not any(name.startswith(_AT_START) for name in {*env} - _LATER)


def start_forked(
    program: Path,
    arguments: tuple[str, ...],
    cwd: Path,
    env: dict[str, str],
    *,
    stdin: Stream,
    stdout: Stream,
    stderr: Stream,
) -> Forked:
    """Start mlw with these arguments, like subprocess.Popen."""
    pipes: list[IO[bytes] | None] = []
    fds, ours = [], []
    for stream, mode in ((stdin, os.O_RDONLY), (stdout, os.O_WRONLY), (stderr, os.O_WRONLY)):
        pipes.append(None)
        if stream == subprocess.PIPE:
            reading, writing = os.pipe()
            pipes[-1] = open(reading, "rb")
            ours.append(writing)
            fds.append(writing)
        elif stream == subprocess.DEVNULL:
            ours.append(os.open(os.devnull, mode))
            fds.append(ours[-1])
        elif stream == subprocess.STDOUT:
            fds.append(fds[1])
        else:
            fds.append(stream if isinstance(stream, int) else stream.fileno())
    try:
        process = _server(program, ui=arguments[:1] == ("ui",)).start(arguments, cwd, env, (fds[0], fds[1], fds[2]))
    finally:
        for fd in ours:
            os.close(fd)
    _, process.stdout, process.stderr = pipes
    return process


def run_forked(
    program: Path, arguments: tuple[str, ...], cwd: Path, env: dict[str, str], stdin: Stream, timeout: float
) -> tuple[int, bytes, bytes]:
    """Run a command and return its exit code, stdout, and stderr."""
    process = start_forked(program, arguments, cwd, env, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        output = process.communicate(timeout)
    except BaseException:
        process.kill()
        raise
    return process.wait(), *output


def _server(program: Path, *, ui: bool) -> ForkServer:
    if ui not in _servers:
        env = {"PATH": os.environ.get("PATH", os.defpath), "LANG": _LANG, "HOME": "/"}
        _servers[ui] = ForkServer(program, env, ui=ui)
        atexit.register(_servers[ui].stop)
    return _servers[ui]


def _read(stream: IO[bytes], texts: list[bytes], index: int) -> None:
    with stream:
        texts[index] = stream.read()


# -- server process --------------------------------------------------------------------------------------------------


def _serve(control: socket.socket, program: str, ui: bool) -> dict[str, Any] | None:
    """Fork for each connection. Return the request in each command's process, and None when the server stops."""
    _import_all(ui)
    gc.collect()
    gc.freeze()  # a garbage collection in a command would copy every page that contains an object
    sys.path[0] = os.path.dirname(program)  # as in the installed program
    while True:
        message, ancillary, _, _ = control.recvmsg(1, socket.CMSG_LEN(4))
        if not message:
            return None
        connection = socket.socket(fileno=_fds(ancillary)[0])
        if os.fork() == 0:
            control.close()
            return _command(connection, program)
        connection.close()
        _reap()


def _command(connection: socket.socket, program: str) -> dict[str, Any]:
    """Fork the command's process, and return the request in it. The calling process waits and never returns."""
    size, ancillary, _, _ = connection.recvmsg(_LENGTH, socket.CMSG_LEN(12))
    streams = _fds(ancillary)
    request = json.loads(_exactly(connection, int.from_bytes(size, "big")).decode("utf-8", "surrogateescape"))
    pid = os.fork()
    if pid:
        for fd in streams:
            os.close(fd)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the process group is for the command
        connection.sendall(pid.to_bytes(_LENGTH, "big"))
        status = os.waitpid(pid, 0)[1]
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(_LENGTH, "big", signed=True))
        os._exit(0)
    connection.close()
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    return {**request, "program": program}


def _fds(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    descriptors = array.array("i")
    for _, _, data in ancillary:
        descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return list(descriptors)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            os._exit(1)  # the test process has ended
        data += piece
    return data


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _import_all(ui: bool) -> None:
    """Import all modules that commands may need, except ``_NOT_IMPORTED`` and, without ``ui``, the UI."""
    import mlworkbench

    source = Path(mlworkbench.__file__).parent
    skipped = _NOT_IMPORTED if ui else (*_NOT_IMPORTED, _UI)
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        if not name.startswith(skipped):
            importlib.import_module(name)
    assert ui or not {"rattler", "nicegui"} & {*sys.modules}, "see cli/main.py"
    assert "keyring" not in sys.modules, "it reads a variable when it is imported"


def _become(request: dict[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    time.tzset()
    sys.argv = [request["program"], *request["words"]]


def _leave(end: SystemExit) -> None:
    """Exit like an interpreter, but without unloading all modules, which takes most of the time of a short command.
    Return if the output cannot be written, so that the interpreter reports the error.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for connection in sys.modules["apsw"].connections():
        connection.close()  # otherwise the next process has to recover SQLite's journal
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except OSError:
        return
    if isinstance(end.code, int):
        os._exit(end.code)


if __name__ == "__main__":
    asked = _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], sys.argv[3] == "ui")
    if asked is not None:
        _become(asked)
        from mlworkbench.cli.main import main

        try:
            main()
        except SystemExit as end:
            _leave(end)
            raise
