"""Channel to an agent on a remote machine: the ssh process and the messages that pass through it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from ..errors import HostError, Unreachable
from ..remote.shared.message_frames import ConnectionClosed, ConnectionTimeout, FrameError, Pipe, inflate
from ..remote.shared.protocol_versions import PROTOCOL
from .bootstrap import AGENT, NEEDS_BUNDLE, NO_PYTHON, SHELL
from .openssh import environment
from .replies import printable

MAX_NOISE = 256 * 1024
_PIPE_SIZE = 1024 * 1024  # bytes; a larger buffer needs fewer context switches for long answers
_F_SETPIPE_SZ = 1031  # not defined before Python 3.10; supported only on Linux
ANSWER_TIMEOUT = 60.0  # seconds without data before a request fails
SEND_TIMEOUT = 300.0  # seconds without progress; the remote disk may be slow, or the file is already being uploaded
SHELL_TIMEOUT = 30.0  # Maximum seconds for the startup files of a login shell
EXIT_TIMEOUT = 2.0
_MAX_EMPTY_MESSAGES = 8  # Maximum messages without content per answer; a correct agent sends at most two


class AgentNotStarted(HostError):
    """Error for an agent that did not start. ``output`` is what the remote machine printed instead."""

    def __init__(self, output: str, exit_status: int | None) -> None:
        super().__init__(output)
        self.output = output
        self.exit_status = exit_status


class Channel:
    """A channel to an agent, started with ``command``.

    ``command`` is an ssh command whose remote side becomes an agent that prints the nonce. ``client``
    identifies this client; the agent records it.
    """

    def __init__(self, command: Sequence[str], nonce: str, client: Mapping[str, str] | None = None) -> None:
        self._nonce = nonce
        self._client = client
        self._hello_sent = False
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment(),
                start_new_session=True,  # Ctrl-C in the terminal must not reach ssh
                bufsize=0,
            )
        except OSError as error:
            raise HostError(f"cannot start {command[0]}: {error.strerror}") from error
        assert self._process.stdin and self._process.stdout and self._process.stderr
        for pipe in (self._process.stdin, self._process.stdout):
            _enlarge_buffer(pipe)
        if os.name != "nt":
            os.set_blocking(self._process.stdin.fileno(), False)  # otherwise a frozen ssh would block this process
        self._stderr = _StderrTail(self._process.stderr)
        self.pipe = Pipe(self._process.stdout.fileno(), self._process.stdin.fileno())
        self.hello: dict[str, Any] = {}

    def handshake(self, timeout: float, bundle: bytes | None = None, upcoming: Sequence[str] = ()) -> None:
        """Do the handshake, skipping the login shell's output up to the agent's marker.

        If ``bundle`` is set, run the bootstrap script first.
        """
        if bundle is None:
            self.send_hello(upcoming, timeout)
            self._wait_for(AGENT, timeout)
        else:
            self._bootstrap(self._wait_for_shell(min(timeout, SHELL_TIMEOUT)), bundle, timeout)
            self.send_hello(upcoming, timeout)
        self.hello = self._receive(timeout)[0]
        _check_protocol(self.hello.get("protocol", PROTOCOL))
        if not self.hello.get("ok"):
            raise HostError(f"the target cannot be used: {printable(str(self.hello.get('problem')))}")

    def send_hello(self, upcoming: Sequence[str], timeout: float) -> None:
        """Send the first message, but only once. Sending it before the agent's marker saves a round trip."""
        if not self._hello_sent:
            self._hello_sent = True
            with contextlib.suppress(ConnectionClosed):  # the caller finds the cause in the machine's output
                hello = {"do": "hello", "protocol": PROTOCOL, "soon": list(upcoming), "client": self._client}
                self.pipe.send(hello, b"", timeout)

    def _bootstrap(self, noise: str, bundle: bytes, timeout: float) -> None:
        """Respond to the bootstrap script's markers, and send the bundle when requested."""
        line, _ = self.pipe.skip_to(b"\n", 200, timeout)
        for _ in range(3):
            mark = line.decode("ascii", "replace")
            if mark == f"{AGENT[4:]} {self._nonce}":
                return
            if mark == f"{NO_PYTHON[4:]} {self._nonce}":
                raise AgentNotStarted(NO_PYTHON, None)
            if mark == f"{NEEDS_BUNDLE[4:]} {self._nonce}":
                self.pipe.write(b"%08d" % len(bundle) + bundle, SEND_TIMEOUT)
            elif mark != f"{SHELL[4:]} {self._nonce}":
                break
            noise = self._wait_for("MLW-", timeout)
            line, _ = self.pipe.skip_to(b"\n", 200, timeout)
        raise AgentNotStarted(noise + line.decode(errors="replace"), self._exit_status())

    def _wait_for_shell(self, timeout: float) -> str:
        """Wait for the first marker. Raise AgentNotStarted if a startup file started another program instead."""
        try:
            return self._wait_for("MLW-", timeout)
        except ConnectionTimeout:
            raise AgentNotStarted(self._stderr.text(), None) from None

    def _wait_for(self, marker: str, timeout: float) -> str:
        pattern = f"\n{marker}" if marker == "MLW-" else f"\n{marker} {self._nonce}\n"
        noise, found = self.pipe.skip_to(pattern.encode(), MAX_NOISE, timeout)
        text = noise.decode(errors="replace")
        if not found:
            exit_status = self._exit_status()
            raise AgentNotStarted(f"{text}\n{self._stderr.text()}".strip(), exit_status)
        return text

    def ask(self, request: Mapping[str, Any], body: bytes, timeout: float) -> tuple[dict[str, Any], bytes]:
        """Send a request and return its answer."""
        self.send(request, body)
        return self._receive(timeout)

    def send(self, request: Mapping[str, Any], body: bytes = b"") -> None:
        self.pipe.send(dict(request), body, SEND_TIMEOUT)

    def stream(self, timeout: float, max_bytes: int) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Yield the messages of a multi-part answer, up to ``max_bytes``; the last has no "more".

        To prevent endless answers, size, duration, and number of empty messages are limited.
        """
        since, count, empty = self.pipe.wait_time, 0, 0
        while True:
            message, body = self._receive(timeout)
            if not message.get("more"):
                yield message, body
                return
            count, empty = count + len(body), empty + (not body)
            if count > max_bytes or empty > _MAX_EMPTY_MESSAGES:
                raise FrameError("a response larger than requested")
            self.pipe.check_rate(timeout, since, count)
            yield message, body

    def _receive(self, timeout: float) -> tuple[dict[str, Any], bytes]:
        message, body = self.pipe.receive(timeout)
        return message, inflate(body) if message.get("packed") else body

    def stderr_text(self) -> str:
        """Return what ssh and the remote side wrote to stderr."""
        self._exit_status()
        return self._stderr.text()

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End the agent by closing its stdin, then end ssh."""
        assert self._process.stdin and self._process.stdout
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.text()

    def _exit_status(self) -> int | None:
        try:
            return self._process.wait(EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            return None


def _check_protocol(version: object) -> None:
    """Raise an error, before anything else is sent, if the agent uses another protocol version."""
    if version == PROTOCOL:
        return
    newer = isinstance(version, int) and version > PROTOCOL
    raise HostError(
        f"the agent on the target uses protocol {printable(str(version), 20)}, but this mlw uses protocol {PROTOCOL}",
        "upgrade mlw on this machine"
        if newer
        else "delete ~/.mlw/lib on the target and try again: the agent of this mlw is then installed there",
    )


def as_unreachable(name: str, error: FrameError, stderr: str) -> Unreachable:
    last = printable((stderr.strip().splitlines() or [""])[-1])
    if isinstance(error, ConnectionTimeout):
        return Unreachable(f"{name} does not respond")
    if isinstance(error, ConnectionClosed):
        return Unreachable(f"lost the connection to {name}" + (f": {last}" if last else ""))
    return Unreachable(f"{name} sent an invalid message: {error}")


class _StderrTail:
    """Last bytes of a pipe, read by a thread so that the writer never blocks."""

    MAX_BYTES = 64 * 1024

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._tail = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def text(self) -> str:
        self._thread.join(0.2)
        return self._tail.decode(errors="replace")

    def _read(self) -> None:
        with self._pipe:
            while True:
                try:
                    part = os.read(self._pipe.fileno(), 65536)
                except OSError:
                    return
                if not part:
                    return
                self._tail = (self._tail + part)[-self.MAX_BYTES :]


def _enlarge_buffer(pipe: IO[bytes]) -> None:
    try:
        import fcntl  # noqa: PLC0415 - not on Windows

        fcntl.fcntl(pipe.fileno(), _F_SETPIPE_SZ, _PIPE_SIZE)
    except (ImportError, OSError):
        pass
