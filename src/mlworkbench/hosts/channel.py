"""One channel to an agent on another machine: the ssh process, and the messages through it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from ..errors import HostError, Unreachable
from ..remote.shared.frames import Closed, FrameError, Pipe, Silent, inflate
from ..remote.shared.versions import PROTOCOL
from .loader import AGENT, NEEDS, NO_PYTHON, SHELL
from .openssh import environment
from .replies import printable

MOST_NOISE = 256 * 1024
_PIPE = 1024 * 1024  # of room in a pipe: fewer changes between processes for long answers
_SETPIPE = 1031  # F_SETPIPE_SZ; Python before 3.10 has no name for it, and other systems have no such thing
ANSWER = 60.0  # seconds without a word after which a request is given up
SENDING = 300.0  # seconds in which nothing is taken: a slow disk there, or another upload of the same file
STARTING = 30.0  # seconds that the startup files of a login shell may take
ENDING = 2.0
_MOST_EMPTY = 8  # messages without content before the end of an answer; an honest agent sends two at most


class NotGreeted(HostError):
    """The agent did not come. ``said`` is what came instead; ``lost`` if the connection broke."""

    def __init__(self, said: str, code: int | None) -> None:
        super().__init__(said)
        self.said = said
        self.exit_status = code


class Channel:
    """``words`` is the ssh command whose far end becomes an agent that says the nonce.

    ``client``: who connects, which the agent records.
    """

    def __init__(self, words: Sequence[str], nonce: str, client: Mapping[str, str] | None = None) -> None:
        self._nonce = nonce
        self._client = client
        self._said_hello = False
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment(),
                start_new_session=True,  # Ctrl-C in our terminal is not for it
                bufsize=0,
            )
        except OSError as error:
            raise HostError(f"cannot start {words[0]}: {error.strerror}") from error
        assert self._process.stdin and self._process.stdout and self._process.stderr
        for pipe in (self._process.stdin, self._process.stdout):
            _widen(pipe)
        if os.name != "nt":
            os.set_blocking(self._process.stdin.fileno(), False)  # else a frozen ssh would freeze us
        self._errors = _Tail(self._process.stderr)
        self.pipe = Pipe(self._process.stdout.fileno(), self._process.stdin.fileno())
        self.hello: dict[str, Any] = {}

    def greet(self, patience: float, library: bytes | None = None, soon: Sequence[str] = ()) -> None:
        """Read past what the login shell says, up to the agent's mark. With ``library`` a loader is asked first."""
        if library is None:
            self.say_hello(soon, patience)
            self._await(AGENT, patience)
        else:
            self._load(self._await_shell(min(patience, STARTING)), library, patience)
            self.say_hello(soon, patience)
        self.hello = self._receive(patience)[0]
        _check_protocol(self.hello.get("protocol", PROTOCOL))
        if not self.hello.get("ok"):
            raise HostError(f"the target cannot be used: {printable(str(self.hello.get('problem')))}")

    def say_hello(self, soon: Sequence[str], patience: float) -> None:
        """May be said before the agent's mark has come, which saves a journey there and back; but once only."""
        if not self._said_hello:
            self._said_hello = True
            with contextlib.suppress(Closed):  # what came instead is read next
                hello = {"do": "hello", "protocol": PROTOCOL, "soon": list(soon), "client": self._client}
                self.pipe.send(hello, b"", patience)

    def _load(self, noise: str, library: bytes, patience: float) -> None:
        """Which of the loader's words it was; bring the library if that is what it asks for."""
        word, _ = self.pipe.skip_to(b"\n", 200, patience)
        for _ in range(3):
            mark = word.decode("ascii", "replace")
            if mark == f"{AGENT[4:]} {self._nonce}":
                return
            if mark == f"{NO_PYTHON[4:]} {self._nonce}":
                raise NotGreeted(NO_PYTHON, None)
            if mark == f"{NEEDS[4:]} {self._nonce}":
                self.pipe.write(b"%08d" % len(library) + library, SENDING)
            elif mark != f"{SHELL[4:]} {self._nonce}":
                break
            noise = self._await("MLW-", patience)
            word, _ = self.pipe.skip_to(b"\n", 200, patience)
        raise NotGreeted(noise + word.decode(errors="replace"), self._code())

    def _await_shell(self, patience: float) -> str:
        """The loader's first word; a startup file may have started another program in its place."""
        try:
            return self._await("MLW-", patience)
        except Silent:
            raise NotGreeted(self._errors.text(), None) from None

    def _await(self, word: str, patience: float) -> str:
        mark = f"\n{word}" if word == "MLW-" else f"\n{word} {self._nonce}\n"
        noise, found = self.pipe.skip_to(mark.encode(), MOST_NOISE, patience)
        text = noise.decode(errors="replace")
        if not found:
            code = self._code()
            raise NotGreeted(f"{text}\n{self._errors.text()}".strip(), code)
        return text

    def ask(self, request: Mapping[str, Any], body: bytes, patience: float) -> tuple[dict[str, Any], bytes]:
        """One question, one answer."""
        self.send(request, body)
        return self._receive(patience)

    def send(self, request: Mapping[str, Any], body: bytes = b"") -> None:
        self.pipe.send(dict(request), body, SENDING)

    def stream(self, patience: float, most: int) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Messages of an answer in several parts, with ``most`` bytes; the last one has no "more".

        An answer must come to its end: bytes, messages without any, and the time for both are limited.
        """
        since, count, empty = self.pipe.waited, 0, 0
        while True:
            message, body = self._receive(patience)
            if not message.get("more"):
                yield message, body
                return
            count, empty = count + len(body), empty + (not body)
            if count > most or empty > _MOST_EMPTY:
                raise FrameError("a response larger than requested")
            self.pipe.check_pace(patience, since, count)
            yield message, body

    def _receive(self, patience: float) -> tuple[dict[str, Any], bytes]:
        message, body = self.pipe.receive(patience)
        return message, inflate(body) if message.get("packed") else body

    def words(self) -> str:
        """What ssh and the far end complained of."""
        self._code()
        return self._errors.text()

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End the agent by closing its stdin; one that does not go is left to ssh."""
        assert self._process.stdin and self._process.stdout
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(ENDING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.text()

    def _code(self) -> int | None:
        try:
            return self._process.wait(ENDING)
        except subprocess.TimeoutExpired:
            return None


def _check_protocol(theirs: object) -> None:
    """Stop before anything else is said to an agent of another protocol."""
    if theirs == PROTOCOL:
        return
    newer = isinstance(theirs, int) and theirs > PROTOCOL
    raise HostError(
        f"the agent on the target uses protocol {printable(str(theirs), 20)}, but this mlw uses protocol {PROTOCOL}",
        "upgrade mlw on this machine"
        if newer
        else "delete ~/.mlw/lib on the target and try again: the agent of this mlw is then installed there",
    )


def as_unreachable(name: str, error: FrameError, said: str) -> Unreachable:
    last = printable((said.strip().splitlines() or [""])[-1])
    if isinstance(error, Silent):
        return Unreachable(f"{name} does not respond")
    if isinstance(error, Closed):
        return Unreachable(f"lost the connection to {name}" + (f": {last}" if last else ""))
    return Unreachable(f"{name} sent an invalid message: {error}")


class _Tail:
    """The last words on a pipe, read by a thread so that nobody ever waits for us."""

    MOST = 64 * 1024

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._kept = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def text(self) -> str:
        self._thread.join(0.2)
        return self._kept.decode(errors="replace")

    def _read(self) -> None:
        with self._pipe:
            while True:
                try:
                    part = os.read(self._pipe.fileno(), 65536)
                except OSError:
                    return
                if not part:
                    return
                self._kept = (self._kept + part)[-self.MOST :]


def _widen(pipe: IO[bytes]) -> None:
    try:
        import fcntl  # noqa: PLC0415 - not on Windows

        fcntl.fcntl(pipe.fileno(), _SETPIPE, _PIPE)
    except (ImportError, OSError):
        pass
