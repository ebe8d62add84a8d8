"""UI server: its sockets and files, and how it starts and stops."""

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
from ..remote.shared.atomic_files import read_json, write_atomic
from . import peer_user
from .auth_middleware import App, AuthMiddleware
from .connection_limits import Connections, raise_limits
from .cookie_isolation import Style, create_address, load_address
from .login import Login, Password
from .request_policy import AccessPolicy
from .server_discovery import server_record
from .server_log import configure_logging
from .sessions import CODE_SECONDS, Sessions

PORT = 8521
_RANDOM_PORTS = range(20_000, 65_536)
_MAX_ATTEMPTS = 30
_LOOPBACK = ("127.0.0.1", "::1")
_ALL_INTERFACES = ("0.0.0.0", "::", "")
_NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_BIND_ERRORS = (errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM)
_MAX_MESSAGE = 4 * 1024 * 1024


@dataclass(frozen=True)
class ServerFiles:
    """Files of the server, which only its user can read."""

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


def server_files(paths: UserPaths) -> ServerFiles:
    folder = paths.home / "ui"
    folder.mkdir(mode=0o700, exist_ok=True)
    return ServerFiles(folder)


@dataclass(frozen=True)
class Listening:
    """Sockets on which the server listens."""

    sockets: tuple[socket.socket, ...]
    host: str  # for display: 127.0.0.1, or the requested name
    port: int

    @property
    def all_interfaces(self) -> bool:
        return self.host in _ALL_INTERFACES

    @property
    def this_machine_only(self) -> bool:
        return all(peer_user.is_loopback(sock.getsockname()[:2]) for sock in self.sockets)

    @property
    def address(self) -> str:
        """Numeric URL for programs. The URL for browsers is secret."""
        return f"http://{_bracketed(_lan_address() if self.all_interfaces else self.host)}:{self.port}"


def listen(host: str | None, port: int | None, random_port: bool = False) -> Listening:
    """Listen on the loopback interface, or on ``host``.

    Without ``port``, use the next free port or, with ``random_port``, a port that cannot be guessed.
    """
    if port is not None:
        ports = [port]
    elif random_port:
        ports = [*(secrets.choice(_RANDOM_PORTS) for _ in range(_MAX_ATTEMPTS)), 0]
    else:
        ports = [*range(PORT, PORT + _MAX_ATTEMPTS), 0]
    for candidate in ports:
        try:
            sockets = _bind(_hosts(host), candidate)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and candidate != ports[-1]:
                continue
            if error.errno == errno.EADDRINUSE:
                raise UsageError(
                    f"port {candidate} is already in use", "omit --port to let mlw ui choose a free port"
                ) from error
            if isinstance(error, socket.gaierror) or error.errno in _BIND_ERRORS:
                raise UsageError(
                    f"cannot listen on {host or 'this machine'}, port {candidate}: {error.strerror}"
                ) from error
            raise
        return Listening(tuple(sockets), host or _LOOPBACK[0], sockets[0].getsockname()[1])
    raise AssertionError("no free port found")


def _hosts(host: str | None) -> tuple[str, ...]:
    """Return all addresses to listen on.

    Another user could listen on an omitted address, and browsers may try that one first.
    """
    if not host or _is_localhost(host):
        return _LOOPBACK
    return ("::", "0.0.0.0") if host == "::" else (host,)


def _is_localhost(host: str) -> bool:
    return host.lower().rstrip(".") == "localhost"


def _bind(hosts: tuple[str, ...], port: int) -> list[socket.socket]:
    """Bind the same port on all addresses of the hosts. IPv6 is optional."""
    sockets: list[socket.socket] = []
    infos = [info for host in hosts for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    try:
        for family, address in dict.fromkeys((info[0], info[4]) for info in infos):
            try:
                sockets.append(_bound(family, (address[0], port, *address[2:])))
            except OSError as error:
                # Skip ::1 only if there is no IPv6. Otherwise, another user could listen there, and browsers may
                # try that address first.
                if not sockets or address[0] != _LOOPBACK[1] or error.errno not in _NO_IPV6:
                    raise
                continue
            port = sockets[-1].getsockname()[1]
            sockets[-1].listen(128)  # from now on, connections are queued instead of refused
        return sockets
    except BaseException:
        for sock in sockets:
            sock.close()
        raise


def _bound(family: int, address: tuple[object, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


def access_policy(listening: Listening, secret: str) -> AccessPolicy:
    is_loopback = listening.host in _LOOPBACK or _is_localhost(listening.host)
    names = {listening.host, *(("localhost", *_LOOPBACK) if is_loopback else ())}
    if listening.all_interfaces:
        names |= {"localhost", *_LOOPBACK, socket.gethostname(), socket.getfqdn()}
    hosts = frozenset(f"{_bracketed(name).lower()}:{listening.port}" for name in names if name)
    return AccessPolicy(hosts, f"mlw_{listening.port}", listening.all_interfaces, secret)


def _lan_address() -> str:
    """Return the address at which other machines can most likely reach this one. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))
            return str(sock.getsockname()[0])
        except OSError:
            return socket.gethostname()


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class Server:
    """UI server on sockets that are already bound."""

    def __init__(
        self,
        listening: Listening,
        files: ServerFiles,
        style: Style,
        password: str | None = None,
        any_local_user: bool = False,
        keep_address: bool = False,
    ) -> None:
        self.listening = listening
        # A server that other machines can reach accepts everyone who has the password.
        own_user_only = peer_user.SUPPORTED and listening.this_machine_only and not any_local_user
        self._only_user = os.getuid() if own_user_only else None
        self._table = peer_user.open_table(required=own_user_only)
        self._files = files
        self._style = style
        if not keep_address:  # other users may have obtained cookies of the last server
            files.sessions.unlink(missing_ok=True)
        self._secret = (load_address(files.address) if keep_address else None) or create_address(files.address)
        self._policy = access_policy(listening, self._secret.text)
        self._password = password
        self.sessions = Sessions(files.sessions, self._policy.cookie)
        self._write_server_file()

    def link(self) -> str:
        """Return a new single-use login link."""
        return self._secret.link(self._style, self.listening.address, self.sessions.new_code())

    def serve(self, app: App) -> None:
        """Serve until Ctrl-C or SIGTERM is received."""
        import uvicorn  # noqa: PLC0415 - slow to load

        from .limited_server import ACCEPTED_AT_ONCE, LimitedServer, protocol_for  # noqa: PLC0415 - the same

        configure_logging(self._files.log)
        connections = Connections(raise_limits(), self._table, self._only_user)
        login = Login(self.sessions, self._policy.prefix, Password(self._password) if self._password else None)
        server = LimitedServer(
            uvicorn.Config(
                AuthMiddleware(app, self._policy, self.sessions, login),
                http=protocol_for(connections),
                backlog=ACCEPTED_AT_ONCE,
                log_config=None,
                access_log=False,  # the log would contain link codes
                server_header=False,
                proxy_headers=False,
                ws_max_size=_MAX_MESSAGE,
                timeout_graceful_shutdown=2,
            )
        )
        # uvicorn raises SIGINT or SIGTERM again after shutting down. Both must lead to the cleanup below.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            with suppress(KeyboardInterrupt):
                asyncio.run(server.serve(sockets=list(self.listening.sockets)))
        finally:
            self._clean_up()

    def _write_server_file(self) -> None:
        """Write ``server.json``.

        Another ``mlw ui`` and the user's programs use it to find this server.
        """
        write_atomic(str(self._files.running), server_record(self.listening.address, self.sessions.token))

    def _clean_up(self) -> None:
        record = read_json(str(self._files.running)) or {}
        if record.get("token") == self.sessions.token:
            self._files.running.unlink(missing_ok=True)
        self._files.opener.unlink(missing_ok=True)


def opener_file(files: ServerFiles, link: str) -> str:
    """Write a page that redirects to the link, and return its URL.

    The browser is started with this URL instead of the link, because other users can see command lines.
    """
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
    """Remove pages that earlier processes left behind. The login codes in them have expired."""
    for path in folder.glob("open-*"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > CODE_SECONDS:
                path.unlink()
