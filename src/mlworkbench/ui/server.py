"""The server: its sockets, its files, its beginning and its end."""

from __future__ import annotations

import asyncio
import errno
import html
import os
import secrets
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..paths import UserPaths
from ..remote.shared.files import read_json, write_whole
from . import peer
from .address import Style, known_address, new_address
from .admission import Door
from .connections import Connections, raise_limits
from .gate import App, Gate
from .login import Login, Password
from .running import note
from .server_log import log_to
from .sessions import CODE_SECONDS, Sessions

PORT = 8521
_HIGH = range(20_000, 65_536)
_TRIES = 30
_LOOPBACK = ("127.0.0.1", "::1")
_EVERYWHERE = ("0.0.0.0", "::", "")
_NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_NOT_OURS = (errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM)
_SOCKET_LARGEST = 4 * 1024 * 1024


@dataclass(frozen=True)
class Places:
    """The files of the server, all of them its user's alone."""

    folder: Path

    @property
    def sessions(self) -> Path:
        return self.folder / "sessions.json"

    @property
    def running(self) -> Path:
        return self.folder / "server.json"

    @property
    def address(self) -> Path:
        return self.folder / "address.json"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def opener(self) -> Path:
        return self.folder / f"open-{os.getpid()}.html"


def places(paths: UserPaths) -> Places:
    folder = paths.home / "ui"
    folder.mkdir(mode=0o700, exist_ok=True)
    return Places(folder)


@dataclass(frozen=True)
class Listening:
    """Where the server can be reached."""

    sockets: tuple[socket.socket, ...]
    host: str  # for people: 127.0.0.1, or the name that was asked for
    port: int

    @property
    def everywhere(self) -> bool:
        return self.host in _EVERYWHERE

    @property
    def this_machine_only(self) -> bool:
        return all(peer.is_loopback(one.getsockname()[:2]) for one in self.sockets)

    @property
    def address(self) -> str:
        """The numeric one, for programs; that for browsers is secret."""
        return f"http://{_bracketed(_own_address() if self.everywhere else self.host)}:{self.port}"


def listen(host: str | None, port: int | None, random_port: bool = False) -> Listening:
    """On the loopback interface, unless another one is asked for; on the next free port, or one that nobody can guess,
    unless one is asked for."""
    if port is not None:
        wanted = [port]
    elif random_port:
        wanted = [*(secrets.choice(_HIGH) for _ in range(_TRIES)), 0]
    else:
        wanted = [*range(PORT, PORT + _TRIES), 0]
    for number in wanted:
        try:
            sockets = _bind(_hosts(host), number)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and number != wanted[-1]:
                continue
            if error.errno == errno.EADDRINUSE:
                raise UsageError(
                    f"port {number} is already in use", "omit --port to let mlw ui choose a free port"
                ) from error
            if isinstance(error, socket.gaierror) or error.errno in _NOT_OURS:
                raise UsageError(
                    f"cannot listen on {host or 'this machine'}, port {number}: {error.strerror}"
                ) from error
            raise
        return Listening(tuple(sockets), host or _LOOPBACK[0], sockets[0].getsockname()[1])
    raise AssertionError("no free port found")


def _hosts(host: str | None) -> tuple[str, ...]:
    """What is left out here, another user could listen on, and browsers may try it first."""
    if not host or _is_localhost(host):
        return _LOOPBACK
    return ("::", "0.0.0.0") if host == "::" else (host,)


def _is_localhost(host: str) -> bool:
    return host.lower().rstrip(".") == "localhost"


def _bind(hosts: tuple[str, ...], port: int) -> list[socket.socket]:
    """The same port on all addresses of all of them. A machine without IPv6 does without it."""
    sockets: list[socket.socket] = []
    found = [one for host in hosts for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    try:
        for family, address in dict.fromkeys((one[0], one[4]) for one in found):
            try:
                sockets.append(_bound(family, (address[0], port, *address[2:])))
            except OSError as error:
                # Whatever else keeps us from ::1, somebody could listen there, and browsers may try it first.
                if not sockets or address[0] != _LOOPBACK[1] or error.errno not in _NO_IPV6:
                    raise
                continue
            port = sockets[-1].getsockname()[1]
            sockets[-1].listen(128)  # from now on a browser waits, and is not refused
        return sockets
    except BaseException:
        for one in sockets:
            one.close()
        raise


def _bound(family: int, address: tuple[object, ...]) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
    except BaseException:
        one.close()
        raise
    return one


def door_of(listening: Listening, secret: str) -> Door:
    here = listening.host in _LOOPBACK or _is_localhost(listening.host)
    names = {listening.host, *(("localhost", *_LOOPBACK) if here else ())}
    if listening.everywhere:
        names |= {"localhost", *_LOOPBACK, socket.gethostname(), socket.getfqdn()}
    hosts = frozenset(f"{_bracketed(name).lower()}:{listening.port}" for name in names if name)
    return Door(hosts, f"mlw_{listening.port}", listening.everywhere, secret)


def _own_address() -> str:
    """The one by which others most likely reach this machine. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))
            return str(one.getsockname()[0])
        except OSError:
            return socket.gethostname()


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class Server:
    """One server of this user, from its sockets on."""

    def __init__(
        self,
        listening: Listening,
        files: Places,
        style: Style,
        password: str | None = None,
        any_local_user: bool = False,
        keep_address: bool = False,
    ) -> None:
        self.listening = listening
        # A server that listens to other machines is for other people, too: whoever has the password.
        own_user_only = peer.SUPPORTED and listening.this_machine_only and not any_local_user
        self._only_user = os.getuid() if own_user_only else None
        self._table = peer.open_table(required=own_user_only)
        self._files = files
        self._style = style
        if not keep_address:  # before anybody can come in: sessions of the last server may be known to others
            files.sessions.unlink(missing_ok=True)
        self._secret = (known_address(files.address) if keep_address else None) or new_address(files.address)
        self._door = door_of(listening, self._secret.text)
        self._password = password
        self.sessions = Sessions(files.sessions, self._door.cookie)
        self._note()

    def link(self) -> str:
        """An address that lets one browser in, once."""
        return self._secret.link(self._style, self.listening.address, self.sessions.new_code())

    def serve(self, app: App) -> None:
        """Until it is stopped by Ctrl-C or SIGTERM."""
        import uvicorn  # noqa: PLC0415 - slow to load

        from .limited_server import ACCEPTED_AT_ONCE, LimitedServer, protocol_for  # noqa: PLC0415 - the same

        log_to(self._files.log)
        connections = Connections(raise_limits(), self._table, self._only_user)
        login = Login(self.sessions, self._door.prefix, Password(self._password) if self._password else None)
        server = LimitedServer(
            uvicorn.Config(
                Gate(app, self._door, self.sessions, login),
                http=protocol_for(connections),
                backlog=ACCEPTED_AT_ONCE,
                log_config=None,
                access_log=False,  # it would hold the codes of links
                server_header=False,
                proxy_headers=False,
                ws_max_size=_SOCKET_LARGEST,
                timeout_graceful_shutdown=2,
            )
        )
        # uvicorn ends in order on both signals, and then hands them on to us.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            with suppress(KeyboardInterrupt):
                asyncio.run(server.serve(sockets=list(self.listening.sockets)))
        finally:
            self._forget()

    def _note(self) -> None:
        """So that a second `mlw ui` finds this one, and programs of this user get in."""
        write_whole(str(self._files.running), note(self.listening.address, self.sessions.token))

    def _forget(self) -> None:
        known = read_json(str(self._files.running)) or {}
        if known.get("token") == self.sessions.token:
            self._files.running.unlink(missing_ok=True)
        self._files.opener.unlink(missing_ok=True)


def opener_file(files: Places, link: str) -> str:
    """A page that leads to the link: given to the browser in its place, for other users can see command lines."""
    address = html.escape(link)
    page = f'<!doctype html><title>ML Workbench</title><meta http-equiv="refresh" content="0;url={address}">'
    _remove_old_openers(files.folder)
    path = files.opener
    part = path.with_suffix(f".{secrets.token_hex(4)}")
    with open(part, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(page)
    os.replace(part, path)
    return path.as_uri()


def _remove_old_openers(folder: Path) -> None:
    """Those of processes that only asked a server for a link; their codes have expired."""
    for path in folder.glob("open-*"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > CODE_SECONDS:
                path.unlink()
