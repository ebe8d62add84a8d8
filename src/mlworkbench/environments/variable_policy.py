"""``${NAME}`` in addresses that a project names: a project must not send the user's variables to a place it chooses.

pip and uv replace such names wherever an address occurs. Here only the user and password of an address are replaced,
and only for hosts that this user has named (``mlw settings add index-hosts``). Everything else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote

from ..errors import ConfigError
from .credentials import PLAIN, with_netrc
from .dependencies import Dependencies, Line

_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
# Narrower than any URL parser. Parsers disagree about where the host begins (a backslash, a second @, a tab), and
# the host that is checked here must be the host that uv connects to.
_ADDRESS = re.compile(
    r"(?P<scheme>(?:git\+)?https?)://(?P<credentials>(?:[A-Za-z0-9._~%+!*:-]|\$\{[A-Z0-9_]+\})+)"
    r"@(?P<host>[A-Za-z0-9.-]+)(?::(?P<port>[0-9]{1,5}))?(?P<rest>(?:[/?#][^\s\\]*)?)"
)
_KEPT = "%~!*+:"  # a value may be percent-encoded already, as pip wants it, or be user:password


@dataclass(frozen=True)
class Allowed:
    """What may be replaced: this user's variables, in addresses of these hosts."""

    environ: Mapping[str, str]
    hosts: frozenset[str] = frozenset()


def expand_credentials(dependencies: Dependencies, allowed: Allowed) -> Dependencies:
    """The same with users and passwords filled in; raises ConfigError for any other ``${NAME}`` in an address."""
    for one in (*dependencies.pip, *dependencies.constraints):
        refuse_variables(one.path or "", one)
    for package in dependencies.conda:
        refuse_variables(package.text, package)
    at = Line("", dependencies.file, 0)
    return replace(
        dependencies,
        channels=tuple(_expand(one, at, allowed) for one in dependencies.channels),
        options=tuple(replace(one, value=_expand(one.value, one, allowed)) for one in dependencies.options),
        pip=tuple(replace(one, url=one.url and _expand(one.url, one, allowed)) for one in dependencies.pip),
        constraints=tuple(
            replace(one, url=one.url and _expand(one.url, one, allowed)) for one in dependencies.constraints
        ),
    )


def refuse_variables(text: str, at: Line) -> None:
    """Raise ConfigError if uv would replace something in it."""
    found = _VARIABLE.search(text)
    if found:
        raise ConfigError(
            f"variable {found[0]} is not expanded: a project cannot read your environment",
            "use the value itself; only the user and password in a URL can be variables",
            path=at.file,
            line=at.line,
        )


def _expand(address: str, at: Line, allowed: Allowed) -> str:
    found = _VARIABLE.search(address)
    if not found:
        plain = PLAIN.fullmatch(address)
        named = plain is not None and bool(allowed.hosts.intersection(_places(plain)))
        return with_netrc(address, allowed.environ, named=named)
    parts = _ADDRESS.fullmatch(address)
    refuse_variables(parts["rest"] if parts else address, at)
    assert parts  # for an address of any other form the line above has raised
    places = _places(parts)
    if not allowed.hosts.intersection(places):
        raise ConfigError(
            f"variable {found[0]} is not sent to {places[0]}: the host is not allowed",
            f"if you trust the host with your credentials, run: mlw settings add index-hosts {places[0]}",
            path=at.file,
            line=at.line,
        )
    start, end = parts.span("credentials")
    return address[:start] + _filled(parts["credentials"], at, allowed.environ) + address[end:]


def _places(parts: re.Match[str]) -> tuple[str, ...]:
    """The host as settings name it: without a port only for HTTPS at its standard port."""
    host = parts["host"].lower()
    secure = parts["scheme"].endswith("https")
    port = int(parts["port"] or (443 if secure else 80))
    return (host, f"{host}:{port}") if secure and port == 443 else (f"{host}:{port}",)


def _filled(credentials: str, at: Line, environ: Mapping[str, str]) -> str:
    """Values are quoted: a / or @ in a password must not move the host."""

    def value(found: re.Match[str]) -> str:
        if not environ.get(found[1]):
            hint = f"export {found[1]}=…, or keep the password in ~/.netrc"
            raise ConfigError(f"variable {found[0]} is not set", hint, path=at.file, line=at.line)
        return quote(environ[found[1]], safe=_KEPT)

    return _VARIABLE.sub(value, credentials)
