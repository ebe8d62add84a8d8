"""The user's mirrors for builds on targets: of uv's Pythons, and the package indexes that source builds use.

Their addresses travel beside the lock, outside its digest, and without credentials: a build script on the target must
not read a password. An address with a variable, a query, or a fragment does not travel: each of them may be a secret.
A Python behind a password is fetched here and sent, as packages are. The settings are those of the user's environment
and of pip's files; nothing of a project, and nothing of a recorded lock, sets them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from socket import inet_aton
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from ..errors import NotFetched, SolveError
from ..model import JsonDict
from ..remote.shared.untrusted import parse_json
from .channels import expanded, is_remote, mask, may_travel, user_indexes, without_secret
from .credentials import Credentials, credentials_in, headers_for, origin_of, with_netrc

LIST, MIRROR = "UV_PYTHON_DOWNLOADS_JSON_URL", "UV_PYTHON_INSTALL_MIRROR"
PATIENCE = 60.0
_LARGEST_LIST = 1 << 26  # bytes; the list of uv itself has two million
# What uv reads of an entry of its list, but for the address.
_FACTS = ("name", "arch", "os", "libc", "major", "minor", "patch", "prerelease", "variant", "build", "sha256")


def with_mirrors(lock: JsonDict, environ: Mapping[str, str], root: Path, *, here: bool = False) -> JsonDict:
    """The lock with the addresses of the user's mirrors. Relative folders are those of ``root``, the project.

    ``here``: the build runs on this machine, outside a container, so that it reaches servers at localhost.
    """
    indexes = user_indexes(environ, root, fill=False)
    found: dict[str, Any] = {
        "pythons": _public([environ.get(MIRROR, "")], here),
        "index": _public([indexes.index_url or ""], here),
        "extra": _public(indexes.extra, here),
        "links": _public(indexes.find_links, here),
    }
    mirrors = {name: addresses for name, addresses in found.items() if addresses}
    kept = {name: value for name, value in lock.items() if name != "mirrors"}
    return {**kept, "mirrors": mirrors} if mirrors else kept


def _public(addresses: Iterable[str], here: bool) -> list[str]:
    """Those on servers that the target may reach, without user and password, unless more of it may be secret."""
    remote = (one for one in addresses if is_remote(one) and may_travel(one))
    return [without_secret(one)[0] for one in remote if here or not _is_loopback(one)]


def _is_loopback(address: str) -> bool:
    """Whether the address means whatever machine it is used on."""
    origin = origin_of(address)
    host = origin[1].rstrip(".") if origin else ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        found = (
            ip_address(host) if ":" in host else IPv4Address(inet_aton(host))
        )  # also 127.1, which ip_address refuses
    except (ValueError, OSError):
        return False  # a name
    found = getattr(found, "ipv4_mapped", None) or found
    return found.is_loopback or found.is_unspecified


def mirror_credentials(environ: Mapping[str, str]) -> Credentials:
    """Users and passwords for the mirrors of Pythons."""
    named = [expanded(environ.get(name, ""), environ) for name in (LIST, MIRROR)]
    return credentials_in(with_netrc(one, environ, named=True) for one in named if is_remote(one))


def is_own_address(url: str, environ: Mapping[str, str]) -> bool:
    """Whether the user's settings name a Python at this address, so that it may be a file of this machine."""
    mirror = environ.get(MIRROR)
    if mirror and url.startswith(f"{mirror.rstrip('/')}/"):
        return True
    return any(one.get("url") == url for one in python_list(environ).values()) if environ.get(LIST) else False


def python_list(environ: Mapping[str, str], patience: float = PATIENCE) -> dict[str, JsonDict]:
    """The user's own list of Pythons, by key; empty if the settings name none. Raises SolveError or NotFetched.

    ``patience``: seconds that the server may take to answer.
    """
    place = environ.get(LIST, "")
    if not place:
        return {}
    shown = mask(place)
    try:
        found = parse_json(_read(expanded(place, environ), environ, patience))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise SolveError(f"{shown}, set in {LIST}, is not a list of Python versions", "use a JSON object")
    return {str(key): one for key, one in found.items() if isinstance(one, dict)}


def listed(entry: Mapping[str, Any]) -> JsonDict:
    """What a target needs of an entry of the list: uv there does not read the list."""
    return {name: entry.get(name) for name in _FACTS}


def _read(place: str, environ: Mapping[str, str], patience: float) -> bytes:
    from ..remote.environments import tools  # noqa: PLC0415 - slow to import, and few have such a list

    if not is_remote(place):
        path = Path(url2pathname(urlsplit(place).path) if place.startswith("file://") else place)
        try:
            with path.open("rb") as file:
                return file.read(_LARGEST_LIST)
        except OSError as error:
            raise SolveError(f"cannot read {path}, set in {LIST}: {error.strerror}") from None
    address = without_secret(place)[0]
    headers = headers_for(address, mirror_credentials(environ), environ)
    with tempfile.TemporaryDirectory(prefix="mlw-pythons-") as folder:
        path = Path(folder) / "list.json"
        try:
            tools.fetch(address, str(path), headers, _LARGEST_LIST, patience=patience)
        except tools.NoEnvironment as error:
            why = getattr(error, "why", None) or str(error)
            raise NotFetched(
                f"cannot fetch the list of Python versions from {address}: {why}",
                f"check {LIST}, and try again",
                more="index-not-reached",
            ) from None
        return path.read_bytes()
