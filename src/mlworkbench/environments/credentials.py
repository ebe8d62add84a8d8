"""Which address gets which user and password: credentials belong to one scheme, host, and port.

A server that is reached over plain HTTP, or at another port of the same host, is another server: it gets no
credentials that were configured for the index. ``.netrc`` knows hosts only. Its passwords are for HTTPS at the standard
port, and for addresses that the user has named: in the settings of pip or uv, or with ``index-hosts``. The passwords of
a keyring are for addresses that name their user: over HTTPS, or in the user's own settings.
"""

from __future__ import annotations

import base64
import netrc
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from ..remote.shared.programs import safe_path, which

_PORTS = {"http": 80, "https": 443}
# Narrower than any URL parser: the host that is looked up must be the host that uv connects to.
PLAIN = re.compile(r"(?P<scheme>https?)://(?P<host>[A-Za-z0-9.-]+)(?::(?P<port>[0-9]{1,5}))?(?:[/?#][^\s\\@]*)?")
_WITH_USER = re.compile(
    r"(?P<scheme>https?)://(?P<user>[A-Za-z0-9._~%+-]+)@(?P<place>[A-Za-z0-9.-]+(?::[0-9]{1,5})?)(?P<rest>(?:[/?#][^\s\\@]*)?)"
)
_KEYRING_TIMEOUT = 60.0  # seconds; the user may have to unlock it

Origin = tuple[str, str, int]
Credentials = Mapping[Origin, str]  # values are user:password


def origin_of(address: str) -> Origin | None:
    """Scheme, host, and port of an address; None if it is not on a server."""
    try:
        parts = urlsplit(address)
        scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
    except ValueError:
        return None
    return (scheme, host, port or _PORTS[scheme]) if host and scheme in _PORTS else None


def credentials_in(addresses: Iterable[str]) -> dict[Origin, str]:
    """The users and passwords that addresses contain."""
    found = {}
    for address in addresses:
        origin = origin_of(address)
        user, at, _ = urlsplit(address).netloc.rpartition("@") if origin else ("", "", "")
        if origin and at:
            found[origin] = unquote(user)
    return found


def headers_for(url: str, known: Credentials, environ: Mapping[str, str]) -> dict[str, str]:
    """The header that a request for an address needs. It must not follow a redirect."""
    origin = origin_of(url)
    key = (known.get(origin) or _standard(origin, environ)) if origin else None
    return {"Authorization": "Basic " + base64.b64encode(key.encode()).decode()} if key else {}


def with_netrc(address: str, environ: Mapping[str, str], *, named: bool) -> str:
    """The address with the user and password that ``.netrc`` has for it. ``named``: by the user.

    uv does not read the file itself: it would send a password over plain HTTP, and to any port.
    """
    origin = origin_of(address) if PLAIN.fullmatch(address) else None
    if origin is None:
        return address
    key = _in_netrc(origin[1], environ) if named else _standard(origin, environ)
    if not key:
        return address
    user, _, password = key.partition(":")
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{parts.netloc}"))


def withheld(addresses: Iterable[str], environ: Mapping[str, str]) -> str | None:
    """The first host and port for which ``.netrc`` has a password that is not sent there."""
    for address in addresses:
        origin = origin_of(address) if PLAIN.fullmatch(address) else None
        if origin and not _standard(origin, environ) and _in_netrc(origin[1], environ):
            return f"{origin[1]}:{origin[2]}"
    return None


def with_keyring(address: str, environ: Mapping[str, str], *, named: bool) -> str:
    """The address with the password that the keyring has for the user in it. ``named``: by the user's settings.

    uv does not ask the keyring itself: it would do so for any link of an index, and send the password over plain HTTP.
    """
    parts = _WITH_USER.fullmatch(address)
    if parts is None or environ.get("UV_KEYRING_PROVIDER") != "subprocess":
        return address
    program = which("keyring", safe_path(environ.get("PATH")))
    if program is None or not (named or parts["scheme"] == "https"):
        return address
    for service in (f"{parts['scheme']}://{parts['place']}{parts['rest']}", parts["place"]):  # as uv asks
        password = _in_keyring([program, "get", service, unquote(parts["user"])], environ)
        if password:
            secret = quote(password, safe="")
            return f"{parts['scheme']}://{parts['user']}:{secret}@{parts['place']}{parts['rest']}"
    return address


def _in_keyring(command: list[str], environ: Mapping[str, str]) -> str | None:
    try:
        done = subprocess.run(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_KEYRING_TIMEOUT,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None  # the index answers that it wants a password
    return done.stdout.rstrip("\r\n") if done.returncode == 0 else None


def _standard(origin: Origin, environ: Mapping[str, str]) -> str | None:
    return _in_netrc(origin[1], environ) if (origin[0], origin[2]) == ("https", 443) else None


def _in_netrc(host: str, environ: Mapping[str, str]) -> str | None:
    """``user:password`` that the user keeps for a host where curl and pip look too."""
    path = environ.get("NETRC") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".netrc")
    try:
        known = netrc.netrc(path).hosts.get(host)  # not the entry ``default``, which would be for every server
    except (OSError, UnicodeDecodeError, netrc.NetrcParseError):
        return None
    return f"{known[0]}:{known[2]}" if known and known[2] else None
