"""Decide which URL gets which credentials. Credentials are valid for one scheme, host, and port.

Plain HTTP, or another port on the same host, counts as a different server and does not get the
credentials of the index. ``.netrc`` lists hosts only. Its passwords are sent over HTTPS on the
standard port, and to URLs that the user configured in the pip or uv settings or with
``index-hosts``. Keyring passwords are used for URLs that contain a user name, either over HTTPS or
in the user's settings.
"""

from __future__ import annotations

import base64
import netrc
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from ..remote.shared.program_lookup import safe_path, which

_PORTS = {"http": 80, "https": 443}
# Stricter than URL parsers: the host looked up here must be the host that uv connects to.
PLAIN_URL = re.compile(r"(?P<scheme>https?)://(?P<host>[A-Za-z0-9.-]+)(?::(?P<port>[0-9]{1,5}))?(?:[/?#][^\s\\@]*)?")
_WITH_USER = re.compile(
    r"(?P<scheme>https?)://(?P<user>[A-Za-z0-9._~%+-]+)@(?P<netloc>[A-Za-z0-9.-]+(?::[0-9]{1,5})?)(?P<rest>(?:[/?#][^\s\\@]*)?)"
)
_KEYRING_TIMEOUT = 60.0  # seconds; the user may need to unlock the keyring

Origin = tuple[str, str, int]
Credentials = Mapping[Origin, str]  # values are user:password


def origin_of(address: str) -> Origin | None:
    """Return the scheme, host, and port of a URL, or None if it does not refer to a server."""
    try:
        parts = urlsplit(address)
        scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
    except ValueError:
        return None
    return (scheme, host, port or _PORTS[scheme]) if host and scheme in _PORTS else None


def credentials_in(addresses: Iterable[str]) -> dict[Origin, str]:
    """Return the credentials that the URLs contain."""
    credentials = {}
    for address in addresses:
        origin = origin_of(address)
        user, at, _ = urlsplit(address).netloc.rpartition("@") if origin else ("", "", "")
        if origin and at:
            credentials[origin] = unquote(user)
    return credentials


def headers_for(url: str, credentials: Credentials, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the authorization header for a request. It must not be sent after a redirect."""
    origin = origin_of(url)
    secret = (credentials.get(origin) or _netrc_for_https(origin, environ)) if origin else None
    return {"Authorization": "Basic " + base64.b64encode(secret.encode()).decode()} if secret else {}


def with_netrc(address: str, environ: Mapping[str, str], *, configured: bool) -> str:
    """Add the credentials from ``.netrc`` to a URL.

    ``configured`` is true if the URL is in the user's settings. uv must not read ``.netrc`` itself: it would
    send passwords over plain HTTP and to any port.
    """
    origin = origin_of(address) if PLAIN_URL.fullmatch(address) else None
    if origin is None:
        return address
    secret = _read_netrc(origin[1], environ) if configured else _netrc_for_https(origin, environ)
    if not secret:
        return address
    user, _, password = secret.partition(":")
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{parts.netloc}"))


def withheld_host(addresses: Iterable[str], environ: Mapping[str, str]) -> str | None:
    """Return the first host and port for which ``.netrc`` has a password that mlw does not send."""
    for address in addresses:
        origin = origin_of(address) if PLAIN_URL.fullmatch(address) else None
        if origin and not _netrc_for_https(origin, environ) and _read_netrc(origin[1], environ):
            return f"{origin[1]}:{origin[2]}"
    return None


def with_keyring(address: str, environ: Mapping[str, str], *, configured: bool) -> str:
    """Add the keyring password for the user name in a URL.

    ``configured`` is true if the URL is in the user's settings. uv must not query the keyring
    itself: it would do so for any link on an index and send passwords over plain HTTP.
    """
    parts = _WITH_USER.fullmatch(address)
    if parts is None or environ.get("UV_KEYRING_PROVIDER") != "subprocess":
        return address
    program = which("keyring", safe_path(environ.get("PATH")))
    if program is None or not (configured or parts["scheme"] == "https"):
        return address
    for service in (f"{parts['scheme']}://{parts['netloc']}{parts['rest']}", parts["netloc"]):  # same order as in uv
        password = _query_keyring([program, "get", service, unquote(parts["user"])], environ)
        if password:
            secret = quote(password, safe="")
            return f"{parts['scheme']}://{parts['user']}:{secret}@{parts['netloc']}{parts['rest']}"
    return address


def _query_keyring(command: list[str], environ: Mapping[str, str]) -> str | None:
    try:
        result = subprocess.run(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_KEYRING_TIMEOUT,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None  # the index will report a missing password
    return result.stdout.rstrip("\r\n") if result.returncode == 0 else None


def _netrc_for_https(origin: Origin, environ: Mapping[str, str]) -> str | None:
    return _read_netrc(origin[1], environ) if (origin[0], origin[2]) == ("https", 443) else None


def _read_netrc(host: str, environ: Mapping[str, str]) -> str | None:
    """Return ``user:password`` for a host from the user's ``.netrc``, as curl and pip do."""
    path = environ.get("NETRC") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".netrc")
    try:
        login = netrc.netrc(path).hosts.get(host)  # ignores the ``default`` entry, which would match any server
    except (OSError, UnicodeDecodeError, netrc.NetrcParseError):
        return None
    return f"{login[0]}:{login[2]}" if login and login[2] else None
