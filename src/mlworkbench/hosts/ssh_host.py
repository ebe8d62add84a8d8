"""Another machine as a host: an agent of ours at the far end of a kept OpenSSH connection."""

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
from ..remote.shared.frames import CHUNK, Closed, FrameError, Silent
from ..remote.shared.layout import Root
from ..remote.shared.starter_names import DETACHED
from . import library, loader
from .channel import ANSWER, Channel, NotGreeted, as_unreachable
from .host import News
from .master import Master
from .openssh import HostKeyChanged, LoginRefused, command, explain
from .replies import Reply, printable
from .slots import Slots
from .unfit import silent, unfit
from .upload import Progress, Upload

if TYPE_CHECKING:
    from .facts import Facts
    from .parcel import Package

KEPT, NEW, BRINGING = 3.0, 30.0, 120.0  # seconds for the agent's first word: kept or new connection, with the library
LONGEST_WAIT = 1.0  # a question for news that is kept longer would keep others from the channel
_BATCH = 2000  # names of outputs in one question
_SLOW = 4 * 1024 * 1024  # bytes a second below which the target packs what it sends
_SAMPLE = 128 * 1024
REFUSED = 300.0  # seconds until a login that was refused is tried again: servers count them
_MOST_PARTS, _MOST_BYTES = 20000, 128 * 1024 * 1024  # in one answer; an honest agent sends half of that at most
_LONGEST_PATH = 4096
T = TypeVar("T")


class SshHost:
    """One machine by one user. The connection is made when first needed, and again when it was lost.

    Every request may be made twice: a run is claimed once, and the rest only reads or says what shall be.
    """

    distant = True

    def __init__(
        self, attachment: Attachment, paths: UserPaths, contained: bool = False, starter: str = DETACHED
    ) -> None:
        self.attachment = attachment
        self.identity = attachment.where
        self._paths = paths
        self._master = Master(attachment)
        self._slots = Slots(self._master.place)
        self._channel: Channel | None = None
        self._begun: Channel | None = None  # its agent was started, and nobody has waited for its first word yet
        self._lock = threading.RLock()
        self._pack = False
        self._ahead: dict[str, Any] | None = None  # a question that was put before its time: its answer comes next
        self._refused: tuple[float, HostError] | None = None
        self._contained, self._starter = contained, starter
        self._soon: tuple[str, ...] = ()  # what will be asked for, which the agent prepares while we do other things
        self.hello: dict[str, Any] = {}  # what the agent told of itself: time, identity, python

    @property
    def root(self) -> Root:
        if not self.attachment.root:
            self.connect()
        return Root(self.attachment.root)

    def inrun(self) -> str:
        return posixpath.join(self.root.lib, library.digest(self._starter), "remote", "inrun")

    # -- requests ----------------------------------------------------------------------------------

    def call(self, verb: str, run_id: str, words: Sequence[str], message: Mapping[str, Any]) -> dict[str, Any]:
        return self.ask({"do": verb, "run": run_id, "words": list(words), "message": dict(message)})

    def ask(self, request: Mapping[str, Any], body: bytes = b"", patience: float = ANSWER) -> dict[str, Any]:
        """Any request that has one answer."""
        return self._twice(lambda channel: channel.ask(request, body, patience)[0])

    def news(self, run_id: str, offsets: Mapping[str, int], limit: int, wait: float = 0.0) -> News:
        with self._lock:
            wanted = self._channel is not None and self._slots.wanted()
            kept = 0.0 if wanted else min(wait, LONGEST_WAIT)
            request = {"do": "news", "run": run_id, "offsets": dict(offsets), "limit": min(limit, CHUNK), "wait": kept}
            news = self._twice(lambda channel: self._ask_news(channel, request), ahead=True)
            if wanted and not any(news.parts.values()):
                self._let_go()
            return news

    def _ask_news(self, channel: Channel, request: dict[str, Any]) -> News:
        """Where one file has more than fits, the next question is put at once: both ends work at the same time."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and (ahead["run"], ahead["offsets"]) != (request["run"], request["offsets"]):
            for _ in channel.stream(ANSWER, _MOST_BYTES):
                pass
            ahead = None
        if ahead is None:
            channel.send({**request, "pack": self._pack})
        news = self._read_news(channel, request, request["offsets"])
        filled = [name for name, data in news.parts.items() if data]
        if len(filled) == 1 and len(news.parts[filled[0]]) == request["limit"]:
            there = request["offsets"].get(filled[0], 0) + request["limit"]
            self._ahead = {**request, "offsets": {**request["offsets"], filled[0]: there}, "wait": 0.0}
            channel.send({**self._ahead, "pack": self._pack})
        return news

    def _read_news(self, channel: Channel, request: Mapping[str, Any], offsets: Mapping[str, int]) -> News:
        parts = dict.fromkeys(offsets, b"")
        begun, before = time.monotonic(), channel.pipe.read_bytes
        for message, body in channel.stream(ANSWER, _MOST_BYTES):
            came = channel.pipe.read_bytes - before
            if came >= _SAMPLE and not request["wait"]:
                # Where the line is slower than packing: text shrinks to a fraction.
                self._pack = came / (time.monotonic() - begun + 1e-6) < _SLOW
            if not message.get("more"):
                told = self._checked(message)
                standing = {name: told.flag(name) for name in ("exists", "claimed", "supervised", "pending")}
                return News(parts, **standing, unwritten=printable(told.text("unwritten")))
            name = str(message.get("name"))
            if (name not in offsets and not _is_metrics(name)) or len(parts) > _MOST_PARTS:
                raise FrameError(f"an unrequested file: {name[:80]!a}")
            parts[name] = body
        raise Closed("incomplete response")

    def read_file(self, run_id: str, name: str, offset: int, limit: int) -> bytes:
        limit = min(limit, CHUNK)
        request = {"do": "file", "run": run_id, "name": name, "offset": offset, "limit": limit}

        def read(channel: Channel) -> bytes:
            channel.send(request)
            data = b""
            for message, body in channel.stream(ANSWER, limit):
                data += body
                if not message.get("more"):
                    self._checked(message)
            return data

        return self._twice(read)

    def outputs(self, run_id: str, files: Sequence[tuple[str, int, int]]) -> Iterator[tuple[int, bytes]]:
        """Not repeated by itself after a break: the caller knows how far each file has come."""
        for first in range(0, len(files), _BATCH):
            batch = [list(one) for one in files[first : first + _BATCH]]
            yield from self._stream_outputs({"do": "outputs", "run": run_id, "files": batch}, first)

    def _stream_outputs(self, request: Mapping[str, Any], first: int) -> Iterator[tuple[int, bytes]]:
        count = len(request["files"])
        most = sum(max(0, size - offset) for _, offset, size in request["files"])
        with self._lock:
            channel = self._open()
            whole = False
            try:
                channel.send({**request, "pack": self._pack})
                for message, body in channel.stream(ANSWER, most):
                    if not message.get("more"):
                        self._checked(message)
                        whole = True
                    elif type(message.get("file")) is int and 0 <= message["file"] < count:
                        yield first + message["file"], body
                    else:
                        raise FrameError("data of an unrequested file")
            except FrameError as error:
                raise as_unreachable(self.identity, error, channel.words()) from None
            finally:
                if not whole:  # broken off: what still comes would be taken for the answer to another question
                    self._drop_channel()

    def facts(self) -> Facts:
        from .facts import Facts  # noqa: PLC0415 - most commands do without

        return Facts.from_json(self._checked(self.ask({"do": "facts"}, patience=2 * ANSWER)).mapping("facts"))

    def send_code(self, digest: str, store: Root, progress: Progress | None = None) -> None:
        """Bring the target what it lacks of a snapshot; goes on where an earlier attempt was cut off."""
        memory = self.attachment.folder / "sent"
        self._twice(lambda channel: Upload(channel, store, memory, progress).send(digest))

    def send_packages(self, packages: Mapping[str, Package], progress: Progress | None = None) -> None:
        from .parcel import Parcel  # noqa: PLC0415 - few submits have something to send

        with Parcel(packages) as parcel:
            self._twice(lambda channel: Upload(channel, parcel, None, progress).send(parcel.digest))
            self._checked(self.ask({"do": "packages", "digest": parcel.digest, "files": parcel.files}))

    def _checked(self, message: Mapping[str, Any]) -> Reply:
        return Reply(self.identity, message).require_ok("the target reported an error")

    # -- the connection ----------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Begin to connect, for a start; whoever asks next waits for the rest. What goes wrong is told then."""
        self._soon = ("start", "container") if self._contained else ("start",)

        def connect() -> None:
            try:
                self.connect()
            except HostError:
                return  # the next request meets it again, where somebody listens

        if not self._begin():
            threading.Thread(target=connect, daemon=True).start()

    def _begin(self) -> bool:
        """Through a kept connection an agent is started at once and greeted later: no thread has to wait for it."""
        with self._lock:
            words, nonce = self._warm_words()
            if words is None or self._channel or not self._master.is_open() or not self._slots.acquire_now():
                return False
            try:
                self._begun = self._start(words, nonce)
            except HostError:
                self._slots.release()
                return False
            self._begun.say_hello(self._soon, KEPT)
            return True

    def connect(self) -> None:
        """Have an agent at the far end, now."""
        with self._lock:
            self._open()

    def close(self) -> None:
        """Let go of the channel; the connection is kept for the next command."""
        with self._lock:
            self._let_go()

    def disconnect(self) -> None:
        """End the connection too."""
        with self._lock:
            self._let_go()
            self._master.close()

    def _twice(self, talk: Callable[[Channel], T], ahead: bool = False) -> T:
        """``ahead``: it knows of a question that was put before its time."""
        with self._lock:
            for last in (False, True):
                channel = self._open_again(ahead) if last else self._open(ahead)
                try:
                    return talk(channel)
                except FrameError as error:
                    said = channel.words() if isinstance(error, Closed) else ""
                    self._drop_channel()
                    if isinstance(error, Silent):
                        self._master.drop()  # open, and nobody at the other end
                    if last or not isinstance(error, (Closed, Silent)):
                        raise as_unreachable(self.identity, error, said) from None
                except BaseException:
                    # Ctrl-C, or our own error, in the middle of an answer: the rest of it must not be met later.
                    self._drop_channel()
                    raise
            raise AssertionError

    def _open_again(self, ahead: bool) -> Channel:
        """After the connection broke in the middle of a request."""
        try:
            return self._open(ahead)
        except Unreachable as error:
            if not isinstance(error, HostKeyChanged):
                error.message = f"the connection was lost: {error.message}"
            raise

    def _let_go(self) -> None:
        self._drop_channel()
        self._slots.release()

    def _drop_channel(self) -> None:
        for channel in (self._channel, self._begun):
            if channel is not None:
                channel.close()
        self._channel = self._begun = self._ahead = None

    def _open(self, ahead: bool = False) -> Channel:
        if self._channel is not None:
            if self._channel.is_alive() and (ahead or self._ahead is None):
                return self._channel
            self._drop_channel()
        if self._refused and time.monotonic() < self._refused[0]:
            raise self._refused[1]
        self._slots.acquire()
        try:
            self._channel = self._greet()
        except BaseException as error:
            self._slots.release()
            if isinstance(error, (LoginRefused, HostKeyChanged)):
                self._refused = time.monotonic() + REFUSED, error
            raise
        self.hello = self._channel.hello
        self._learn(self._channel.hello)
        return self._channel

    def _learn(self, hello: Mapping[str, Any]) -> None:
        """Where things are there: the next connection is quicker for it."""
        found = replace(self.attachment, root=str(hello.get("root")), python=str(hello.get("python") or ""))
        if not found.root.startswith("/") or not (_is_path(found.root) and _is_path(found.python)):
            raise HostError(f"{self.identity} reported an invalid folder: {printable(found.root)}")
        if found != self.attachment:
            self.attachment = found
            if (found.folder / "attachment.json").exists():
                Attachments(self._paths).save(found)

    def _greet(self) -> Channel:
        begun, self._begun = self._begun, None
        new = begun is None and self._open_master()
        try:
            return self._start_agent(NEW if new else KEPT, begun)
        except Silent:
            if new:
                raise silent(self.identity) from None
        except Unreachable:
            if new:
                raise
        # A kept connection at whose other end is nobody: a new one is quicker than to wait for that one's end.
        self._master.drop()
        self._open_master()
        try:
            return self._start_agent(NEW)
        except Silent:
            raise silent(self.identity) from None

    def _open_master(self) -> bool:
        if not self.attachment.password or self._master.is_open():
            return self._master.open() or self._master.socket is None
        from ..secret import stored  # noqa: PLC0415 - slow to import, and most targets take keys

        password = stored(self.attachment.keyring_name)
        if password is None:
            raise HostError(
                f"the password for {self.identity} is no longer in the keyring",
                "attach the target again",
                more="permission-denied",
            )
        from .askpass import Askpass, once  # noqa: PLC0415

        with Askpass(once(password, names(self.attachment))) as askpass:
            return self._master.open(askpass)

    def _start_agent(self, patience: float, begun: Channel | None = None) -> Channel:
        words, nonce = self._warm_words()
        if begun or words:
            try:
                return self._greeted(begun or self._start(words or "", nonce), patience, None)
            except NotGreeted as error:
                if error.exit_status == 255:
                    raise explain(self.attachment, error.said) from None
        try:
            channel = self._start(loader.cold(library.digest(self._starter), nonce), nonce)
            return self._greeted(channel, max(patience, BRINGING), library.packed(self._starter))
        except NotGreeted as error:
            raise unfit(self.attachment, error) from None

    def _warm_words(self) -> tuple[str | None, str]:
        """For a machine that was met before: what starts the agent there, and the agent's first word."""
        nonce = os.urandom(8).hex()
        if not self.attachment.root or not self.attachment.python:
            return None, nonce
        agent = posixpath.join(self.attachment.root, "lib", library.digest(self._starter), "remote", "agent.py")
        return loader.warm(self.attachment.python, agent, nonce), nonce

    def _start(self, words: str, nonce: str) -> Channel:
        who = client_of(self._paths).card
        return Channel(command(self.attachment, [], words, socket=self._master.socket), nonce, who)

    def _greeted(self, channel: Channel, patience: float, brought: bytes | None) -> Channel:
        try:
            channel.greet(patience, brought, self._soon)
        except Silent:
            channel.close()
            raise
        except FrameError as error:
            said = channel.words()
            channel.close()
            raise as_unreachable(self.identity, error, said) from None
        except BaseException:
            channel.close()
            raise
        return channel


def names(attachment: Attachment) -> tuple[str, ...]:
    """How ssh may call the target when it asks for the password."""
    host = attachment.identity.rpartition(":")[0].partition("@")[2] if "@" in attachment.identity else ""
    return tuple({f"{attachment.username}@{one}" for one in (attachment.address, host) if one})


def _is_path(path: str) -> bool:
    return len(path) < _LONGEST_PATH and path.isprintable()


def _is_metrics(name: str) -> bool:
    folder, _, rest = name.partition("/")
    return folder == "metrics" and bool(rest) and "/" not in rest and rest not in (".", "..") and "\0" not in rest
