"""Host for a remote machine: sends requests to an agent over a shared OpenSSH connection."""

from __future__ import annotations

import os
import posixpath
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from ..attachments import Attachment, Attachments
from ..client_identity import client_of
from ..errors import HostError, Unreachable
from ..paths import UserPaths
from ..remote.shared.layout import Root
from ..remote.shared.message_frames import CHUNK, ConnectionClosed, ConnectionTimeout, FrameError
from ..remote.shared.starter_names import DETACHED
from . import bootstrap, bundle
from .agent_start_failures import explain_start_failure, no_response_error
from .channel import ANSWER_TIMEOUT, AgentNotStarted, Channel, as_unreachable
from .channel_slots import ChannelSlots
from .host import NEWS_FLAGS, News
from .openssh import HostKeyChanged, LoginRefused, command, explain_ssh_error
from .replies import Reply, printable
from .snapshot_upload import Progress, Upload
from .ssh_connection import SshConnection

if TYPE_CHECKING:
    from .host_facts import Facts
    from .package_upload import Package

KEPT_TIMEOUT, NEW_TIMEOUT, UPLOAD_TIMEOUT = 3.0, 30.0, 120.0  # seconds: kept connection, new connection, upload
MAX_WAIT = 1.0  # seconds; a longer wait would block other requests on the channel
_BATCH_SIZE = 2000  # maximum output files per request
_SLOW_RATE = 4 * 1024 * 1024  # bytes per second; below this rate, the target compresses data
_SAMPLE_SIZE = 128 * 1024
REFUSED_DELAY = 300.0  # seconds before retrying a refused login: servers count failed logins
_MAX_PARTS, _MAX_BYTES = 20000, 128 * 1024 * 1024  # maximum per answer; a correct agent sends at most half of this
_MAX_PATH = 4096
T = TypeVar("T")


class SshHost:
    """A remote machine. It connects on first use, and reconnects after a lost connection.

    Every request can safely be sent twice: a run is claimed only once, and other requests are idempotent.
    """

    is_remote = True

    def __init__(
        self, attachment: Attachment, paths: UserPaths, contained: bool = False, starter: str = DETACHED
    ) -> None:
        self.attachment = attachment
        self.identity = attachment.where
        self._paths = paths
        self._connection = SshConnection(attachment)
        self._slots = ChannelSlots(self._connection.path)
        self._channel: Channel | None = None
        self._started: Channel | None = None  # channel whose agent was started, but whose handshake is pending
        self._lock = threading.RLock()
        self._compress = False
        self._pipelined: dict[str, Any] | None = None  # request sent in advance; its answer arrives next
        self._login_error: tuple[float, HostError] | None = None
        self._contained, self._starter = contained, starter
        self._upcoming: tuple[str, ...] = ()  # requests announced to the agent, so that it can prepare
        self.hello: dict[str, Any] = {}  # the agent's reply in the handshake: time, identity, python

    @property
    def root(self) -> Root:
        if not self.attachment.root:
            self.connect()
        return Root(self.attachment.root)

    def inrun(self) -> str:
        return posixpath.join(self.root.lib, bundle.digest(self._starter), "remote", "inrun")

    # -- requests ----------------------------------------------------------------------------------

    def call(self, verb: str, run_id: str, arguments: Sequence[str], message: Mapping[str, Any]) -> dict[str, Any]:
        return self.ask({"do": verb, "run": run_id, "words": list(arguments), "message": dict(message)})

    def ask(self, request: Mapping[str, Any], body: bytes = b"", timeout: float = ANSWER_TIMEOUT) -> dict[str, Any]:
        """Send a request and return its response, which is a single message."""
        return self._with_retry(lambda channel: channel.ask(request, body, timeout)[0])

    def news(self, run_id: str, offsets: Mapping[str, int], limit: int, wait: float = 0.0) -> News:
        with self._lock:
            release = self._channel is not None and self._slots.is_contended()
            wait = 0.0 if release else min(wait, MAX_WAIT)
            request = {"do": "news", "run": run_id, "offsets": dict(offsets), "limit": min(limit, CHUNK), "wait": wait}
            news = self._with_retry(lambda channel: self._ask_news(channel, request), accepts_pipelined=True)
            if release and not any(news.parts.values()):
                self._release()
            return news

    def _ask_news(self, channel: Channel, request: dict[str, Any]) -> News:
        """Request news. If the answer is full, request more immediately, so that both ends work in parallel."""
        pipelined, self._pipelined = self._pipelined, None
        if pipelined is not None and (pipelined["run"], pipelined["offsets"]) != (request["run"], request["offsets"]):
            for _ in channel.stream(ANSWER_TIMEOUT, _MAX_BYTES):
                pass
            pipelined = None
        if pipelined is None:
            channel.send({**request, "pack": self._compress})
        news = self._read_news(channel, request, request["offsets"])
        filled = [name for name, data in news.parts.items() if data]
        if len(filled) == 1 and len(news.parts[filled[0]]) == request["limit"]:
            next_offset = request["offsets"].get(filled[0], 0) + request["limit"]
            self._pipelined = {**request, "offsets": {**request["offsets"], filled[0]: next_offset}, "wait": 0.0}
            channel.send({**self._pipelined, "pack": self._compress})
        return news

    def _read_news(self, channel: Channel, request: Mapping[str, Any], offsets: Mapping[str, int]) -> News:
        parts = dict.fromkeys(offsets, b"")
        started, before = time.monotonic(), channel.pipe.read_bytes
        for message, body in channel.stream(ANSWER_TIMEOUT, _MAX_BYTES):
            received = channel.pipe.read_bytes - before
            if received >= _SAMPLE_SIZE and not request["wait"]:
                # On a slow connection, compression pays off: text shrinks to a fraction of its size.
                self._compress = received / (time.monotonic() - started + 1e-6) < _SLOW_RATE
            if not message.get("more"):
                reply = self._check(message)
                status = {name: reply.flag(name) for name in NEWS_FLAGS}
                return News(parts, **status, unwritten_reason=printable(reply.text("unwritten")))
            name = str(message.get("name"))
            if (name not in offsets and not _is_metrics(name)) or len(parts) > _MAX_PARTS:
                raise FrameError(f"an unrequested file: {name[:80]!a}")
            parts[name] = body
        raise ConnectionClosed("incomplete response")

    def read_file(self, run_id: str, name: str, offset: int, limit: int) -> bytes:
        limit = min(limit, CHUNK)
        request = {"do": "file", "run": run_id, "name": name, "offset": offset, "limit": limit}

        def read(channel: Channel) -> bytes:
            channel.send(request)
            data = b""
            for message, body in channel.stream(ANSWER_TIMEOUT, limit):
                data += body
                if not message.get("more"):
                    self._check(message)
            return data

        return self._with_retry(read)

    def outputs(self, run_id: str, files: Sequence[tuple[str, int, int]]) -> Iterator[tuple[int, bytes]]:
        """Yield output data. There is no retry after a lost connection: the caller tracks the offset of each file."""
        for first in range(0, len(files), _BATCH_SIZE):
            batch = [list(file) for file in files[first : first + _BATCH_SIZE]]
            yield from self._stream_outputs({"do": "outputs", "run": run_id, "files": batch}, first)

    def _stream_outputs(self, request: Mapping[str, Any], first: int) -> Iterator[tuple[int, bytes]]:
        count = len(request["files"])
        max_bytes = sum(max(0, size - offset) for _, offset, size in request["files"])
        with self._lock:
            channel = self._open_channel()
            is_complete = False
            try:
                channel.send({**request, "pack": self._compress})
                for message, body in channel.stream(ANSWER_TIMEOUT, max_bytes):
                    if not message.get("more"):
                        self._check(message)
                        is_complete = True
                    elif type(message.get("file")) is int and 0 <= message["file"] < count:
                        yield first + message["file"], body
                    else:
                        raise FrameError("data of an unrequested file")
            except FrameError as error:
                raise as_unreachable(self.identity, error, channel.stderr_text()) from None
            finally:
                if not is_complete:  # the remaining data would be mistaken for the next answer
                    self._drop_channel()

    def facts(self) -> Facts:
        from .host_facts import Facts  # noqa: PLC0415 - most commands do not need it

        return Facts.from_json(self._check(self.ask({"do": "facts"}, timeout=2 * ANSWER_TIMEOUT)).mapping("facts"))

    def send_code(self, digest: str, store: Root, progress: Progress | None = None) -> None:
        """Upload the missing parts of a snapshot, resuming an interrupted upload."""
        sent_list = self.attachment.folder / "sent"
        self._with_retry(lambda channel: Upload(channel, store, sent_list, progress).send(digest))

    def send_packages(self, packages: Mapping[str, Package], progress: Progress | None = None) -> None:
        from .package_upload import PackageStore  # noqa: PLC0415 - rarely needed

        with PackageStore(packages) as store:
            self._with_retry(lambda channel: Upload(channel, store, None, progress).send(store.digest))
            self._check(self.ask({"do": "packages", "digest": store.digest, "files": store.files}))

    def _check(self, message: Mapping[str, Any]) -> Reply:
        return Reply(self.identity, message).require_ok("the target reported an error")

    # -- the connection ----------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Start connecting in the background. The next request waits for the connection and reports its errors."""
        self._upcoming = ("start", "container") if self._contained else ("start",)

        def connect() -> None:
            try:
                self.connect()
            except HostError:
                return  # the next request fails the same way and reports the error

        if not self._start_early():
            threading.Thread(target=connect, daemon=True).start()

    def _start_early(self) -> bool:
        """Start an agent over an open connection, but do the handshake later so that no thread waits."""
        with self._lock:
            command_line, nonce = self._warm_command()
            if command_line is None or self._channel or not self._connection.is_open() or not self._slots.acquire_now():
                return False
            try:
                self._started = self._start_channel(command_line, nonce)
            except HostError:
                self._slots.release()
                return False
            self._started.send_hello(self._upcoming, KEPT_TIMEOUT)
            return True

    def connect(self) -> None:
        """Connect to the agent now."""
        with self._lock:
            self._open_channel()

    def close(self) -> None:
        """Close the channel; keep the connection for the next command."""
        with self._lock:
            self._release()

    def disconnect(self) -> None:
        """Close the channel and the connection."""
        with self._lock:
            self._release()
            self._connection.close()

    def _with_retry(self, action: Callable[[Channel], T], accepts_pipelined: bool = False) -> T:
        """Run ``action``, and retry once if the connection breaks. Only ``_ask_news`` accepts pipelined requests."""
        with self._lock:
            for last in (False, True):
                channel = self._reopen(accepts_pipelined) if last else self._open_channel(accepts_pipelined)
                try:
                    return action(channel)
                except FrameError as error:
                    stderr = channel.stderr_text() if isinstance(error, ConnectionClosed) else ""
                    self._drop_channel()
                    if isinstance(error, ConnectionTimeout):
                        self._connection.retire()  # open, but the other end no longer responds
                    if last or not isinstance(error, (ConnectionClosed, ConnectionTimeout)):
                        raise as_unreachable(self.identity, error, stderr) from None
                except BaseException:
                    # Ctrl-C or a local error in the middle of an answer: the rest must not be read as the next one.
                    self._drop_channel()
                    raise
            raise AssertionError

    def _reopen(self, accepts_pipelined: bool) -> Channel:
        """Open a new channel after the connection broke during a request."""
        try:
            return self._open_channel(accepts_pipelined)
        except Unreachable as error:
            if not isinstance(error, HostKeyChanged):
                error.message = f"the connection was lost: {error.message}"
            raise

    def _release(self) -> None:
        self._drop_channel()
        self._slots.release()

    def _drop_channel(self) -> None:
        for channel in (self._channel, self._started):
            if channel is not None:
                channel.close()
        self._channel = self._started = self._pipelined = None

    def _open_channel(self, accepts_pipelined: bool = False) -> Channel:
        if self._channel is not None:
            if self._channel.is_alive() and (accepts_pipelined or self._pipelined is None):
                return self._channel
            self._drop_channel()
        if self._login_error and time.monotonic() < self._login_error[0]:
            raise self._login_error[1]
        self._slots.acquire()
        try:
            self._channel = self._connect_agent()
        except BaseException as error:
            self._slots.release()
            if isinstance(error, (LoginRefused, HostKeyChanged)):
                self._login_error = time.monotonic() + REFUSED_DELAY, error
            raise
        self.hello = self._channel.hello
        self._update_attachment(self._channel.hello)
        return self._channel

    def _update_attachment(self, hello: Mapping[str, Any]) -> None:
        """Save the target's root folder and Python interpreter, which speeds up the next connection."""
        attachment = replace(self.attachment, root=str(hello.get("root")), python=str(hello.get("python") or ""))
        if not attachment.root.startswith("/") or not (_is_path(attachment.root) and _is_path(attachment.python)):
            raise HostError(f"{self.identity} reported an invalid folder: {printable(attachment.root)}")
        if attachment != self.attachment:
            self.attachment = attachment
            if (attachment.folder / "attachment.json").exists():
                Attachments(self._paths).save(attachment)

    def _connect_agent(self) -> Channel:
        started, self._started = self._started, None
        is_new = started is None and self._open_connection()
        try:
            return self._start_agent(NEW_TIMEOUT if is_new else KEPT_TIMEOUT, started)
        except ConnectionTimeout:
            if is_new:
                raise no_response_error(self.identity) from None
        except Unreachable:
            if is_new:
                raise
        # The kept connection does not respond: opening a new one is faster than waiting for a timeout.
        self._connection.retire()
        self._open_connection()
        try:
            return self._start_agent(NEW_TIMEOUT)
        except ConnectionTimeout:
            raise no_response_error(self.identity) from None

    def _open_connection(self) -> bool:
        if not self.attachment.password or self._connection.is_open():
            return self._connection.open() or self._connection.socket is None
        from ..secret_sources import stored  # noqa: PLC0415 - slow to import, and most targets use keys

        password = stored(self.attachment.keyring_name)
        if password is None:
            raise HostError(
                f"the password for {self.identity} is no longer in the keyring",
                "attach the target again",
                more="permission-denied",
            )
        from .askpass import Askpass, answer_password_once  # noqa: PLC0415

        with Askpass(answer_password_once(password, login_names(self.attachment))) as askpass:
            return self._connection.open(askpass)

    def _start_agent(self, timeout: float, started: Channel | None = None) -> Channel:
        agent_command, nonce = self._warm_command()
        if started or agent_command:
            try:
                return self._handshake(started or self._start_channel(agent_command or "", nonce), timeout, None)
            except AgentNotStarted as error:
                if error.exit_status == 255:
                    raise explain_ssh_error(self.attachment, error.output) from None
        try:
            channel = self._start_channel(bootstrap.cold_command(bundle.digest(self._starter), nonce), nonce)
            return self._handshake(channel, max(timeout, UPLOAD_TIMEOUT), bundle.pack(self._starter))
        except AgentNotStarted as error:
            raise explain_start_failure(self.attachment, error) from None

    def _warm_command(self) -> tuple[str | None, str]:
        """Return the command that starts a known target's agent (or None), and the agent's nonce."""
        nonce = os.urandom(8).hex()
        if not self.attachment.root or not self.attachment.python:
            return None, nonce
        agent = posixpath.join(self.attachment.root, "lib", bundle.digest(self._starter), "remote", "agent.py")
        return bootstrap.warm_command(self.attachment.python, agent, nonce), nonce

    def _start_channel(self, remote_command: str, nonce: str) -> Channel:
        client = client_of(self._paths).registration
        return Channel(command(self.attachment, [], remote_command, socket=self._connection.socket), nonce, client)

    def _handshake(self, channel: Channel, timeout: float, bundle_data: bytes | None) -> Channel:
        try:
            channel.handshake(timeout, bundle_data, self._upcoming)
        except ConnectionTimeout:
            channel.close()
            raise
        except FrameError as error:
            stderr = channel.stderr_text()
            channel.close()
            raise as_unreachable(self.identity, error, stderr) from None
        except BaseException:
            channel.close()
            raise
        return channel


def login_names(attachment: Attachment) -> tuple[str, ...]:
    """Return the names that ssh may use for the target in password prompts."""
    host = attachment.identity.rpartition(":")[0].partition("@")[2] if "@" in attachment.identity else ""
    return tuple({f"{attachment.username}@{name}" for name in (attachment.address, host) if name})


def _is_path(path: str) -> bool:
    return len(path) < _MAX_PATH and path.isprintable()


def _is_metrics(name: str) -> bool:
    folder, _, rest = name.partition("/")
    return folder == "metrics" and bool(rest) and "/" not in rest and rest not in (".", "..") and "\0" not in rest
