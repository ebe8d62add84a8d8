"""Policy for ``${NAME}`` in project URLs.

A project must not send the user's variables to a host that it chooses. pip and uv replace such
names anywhere in a URL. mlw replaces them only in the user name and password of a URL, and only for
hosts that this user has allowed (``mlw settings add index-hosts``). Everything else is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote

from ..errors import ConfigError
from .credentials import PLAIN_URL, with_netrc
from .dependencies import Dependencies, Line

_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
# This pattern is stricter than URL parsers, which disagree about where the host begins (backslash, second @, tab).
# The host that is checked here must be the host that uv connects to.
_ADDRESS = re.compile(
    r"(?P<scheme>(?:git\+)?https?)://(?P<credentials>(?:[A-Za-z0-9._~%+!*:-]|\$\{[A-Z0-9_]+\})+)"
    r"@(?P<host>[A-Za-z0-9.-]+)(?::(?P<port>[0-9]{1,5}))?(?P<rest>(?:[/?#][^\s\\]*)?)"
)
_UNQUOTED = "%~!*+:"  # a value may already be percent-encoded, as pip expects, or be user:password


@dataclass(frozen=True)
class AllowedVariables:
    """The user's variables, and the hosts whose URLs may contain them."""

    environ: Mapping[str, str]
    hosts: frozenset[str] = frozenset()


def expand_credentials(dependencies: Dependencies, allowed: AllowedVariables) -> Dependencies:
    """Fill in user names and passwords; raise ConfigError for any other ``${NAME}`` in a URL."""
    for entry in (*dependencies.pip, *dependencies.constraints):
        refuse_variables(entry.path or "", entry)
    for package in dependencies.conda:
        refuse_variables(package.text, package)
    whole_file = Line("", dependencies.file, 0)
    return replace(
        dependencies,
        channels=tuple(_expand(entry, whole_file, allowed) for entry in dependencies.channels),
        options=tuple(replace(entry, value=_expand(entry.value, entry, allowed)) for entry in dependencies.options),
        pip=tuple(replace(entry, url=entry.url and _expand(entry.url, entry, allowed)) for entry in dependencies.pip),
        constraints=tuple(
            replace(entry, url=entry.url and _expand(entry.url, entry, allowed)) for entry in dependencies.constraints
        ),
    )


def refuse_variables(text: str, line: Line) -> None:
    """Raise ConfigError if uv would replace a variable in the string."""
    match = _VARIABLE.search(text)
    if match:
        raise ConfigError(
            f"variable {match[0]} is not expanded: a project cannot read your environment",
            "use the value itself; only the user and password in a URL can be variables",
            path=line.file,
            line=line.line,
        )


def _expand(address: str, line: Line, allowed: AllowedVariables) -> str:
    match = _VARIABLE.search(address)
    if not match:
        plain_url = PLAIN_URL.fullmatch(address)
        configured = plain_url is not None and bool(allowed.hosts.intersection(_host_names(plain_url)))
        return with_netrc(address, allowed.environ, configured=configured)
    parts = _ADDRESS.fullmatch(address)
    refuse_variables(parts["rest"] if parts else address, line)
    assert parts  # otherwise, an error was raised
    names = _host_names(parts)
    if not allowed.hosts.intersection(names):
        raise ConfigError(
            f"variable {match[0]} is not sent to {names[0]}: the host is not allowed",
            f"if you trust the host with your credentials, run: mlw settings add index-hosts {names[0]}",
            path=line.file,
            line=line.line,
        )
    start, end = parts.span("credentials")
    return address[:start] + _fill_credentials(parts["credentials"], line, allowed.environ) + address[end:]


def _host_names(parts: re.Match[str]) -> tuple[str, ...]:
    """Return the names under which settings may list a host. Only HTTPS on port 443 needs no port."""
    host = parts["host"].lower()
    secure = parts["scheme"].endswith("https")
    port = int(parts["port"] or (443 if secure else 80))
    return (host, f"{host}:{port}") if secure and port == 443 else (f"{host}:{port}",)


def _fill_credentials(credentials: str, line: Line, environ: Mapping[str, str]) -> str:
    """Replace variables with percent-encoded values, so that / or @ in a password cannot change the host."""

    def value(match: re.Match[str]) -> str:
        if not environ.get(match[1]):
            hint = f"export {match[1]}=…, or keep the password in ~/.netrc"
            raise ConfigError(f"variable {match[0]} is not set", hint, path=line.file, line=line.line)
        return quote(environ[match[1]], safe=_UNQUOTED)

    return _VARIABLE.sub(value, credentials)
