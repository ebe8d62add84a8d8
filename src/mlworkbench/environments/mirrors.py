"""User mirrors for builds on targets: Python downloads, and package indexes for source builds.

Their URLs are sent with the lock, but outside its digest and without credentials, because a build
script on the target must not be able to read a password. A URL with a variable, query, or fragment
is not sent, because each may contain a secret. If a Python download requires a password, mlw downloads
it on this machine and uploads it, as it does for packages. The settings come from the user's
environment and pip files; neither a project nor a recorded lock can set them.
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
from ..remote.shared.untrusted_json import parse_json
from .credentials import Credentials, credentials_in, headers_for, origin_of, with_netrc
from .package_sources import expand_variables, is_remote, is_safe_to_send, mask, strip_secret, user_indexes

LIST_VARIABLE, MIRROR_VARIABLE = "UV_PYTHON_DOWNLOADS_JSON_URL", "UV_PYTHON_INSTALL_MIRROR"
TIMEOUT = 60.0
_MAX_LIST_BYTES = 1 << 26  # uv's own list has about 2 MB
# Fields that uv reads from an entry in its list, except the URL.
_LIST_FIELDS = ("name", "arch", "os", "libc", "major", "minor", "patch", "prerelease", "variant", "build", "sha256")


def with_mirrors(lock: JsonDict, environ: Mapping[str, str], root: Path, *, is_local: bool = False) -> JsonDict:
    """Return the lock with the URLs of the user's mirrors.

    Relative folders are relative to ``root``, the project. ``is_local`` is true if the build runs
    on this machine, outside a container, so that it can use servers on localhost.
    """
    indexes = user_indexes(environ, root, fill=False)
    settings: dict[str, Any] = {
        "pythons": _shareable([environ.get(MIRROR_VARIABLE, "")], is_local),
        "index": _shareable([indexes.index_url or ""], is_local),
        "extra": _shareable(indexes.extra, is_local),
        "links": _shareable(indexes.find_links, is_local),
    }
    mirrors = {name: addresses for name, addresses in settings.items() if addresses}
    other = {name: value for name, value in lock.items() if name != "mirrors"}
    return {**other, "mirrors": mirrors} if mirrors else other


def _shareable(addresses: Iterable[str], is_local: bool) -> list[str]:
    """Return the URLs that the target may access, without credentials.

    URLs that may contain other secrets are omitted.
    """
    remote = (address for address in addresses if is_remote(address) and is_safe_to_send(address))
    return [strip_secret(address)[0] for address in remote if is_local or not _is_loopback(address)]


def _is_loopback(address: str) -> bool:
    """Return whether the URL refers to the machine on which it is used."""
    origin = origin_of(address)
    host = origin[1].rstrip(".") if origin else ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        # inet_aton also accepts 127.1, which ip_address rejects.
        ip = ip_address(host) if ":" in host else IPv4Address(inet_aton(host))
    except (ValueError, OSError):
        return False  # a host name
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return ip.is_loopback or ip.is_unspecified


def mirror_credentials(environ: Mapping[str, str]) -> Credentials:
    """Return the credentials for the Python mirrors."""
    addresses = [expand_variables(environ.get(name, ""), environ) for name in (LIST_VARIABLE, MIRROR_VARIABLE)]
    return credentials_in(with_netrc(address, environ, configured=True) for address in addresses if is_remote(address))


def is_user_address(url: str, environ: Mapping[str, str]) -> bool:
    """Return whether the user's settings contain this Python URL, which may then be a local file."""
    mirror = environ.get(MIRROR_VARIABLE)
    if mirror and url.startswith(f"{mirror.rstrip('/')}/"):
        return True
    return (
        any(entry.get("url") == url for entry in load_python_list(environ).values())
        if environ.get(LIST_VARIABLE)
        else False
    )


def load_python_list(environ: Mapping[str, str], timeout: float = TIMEOUT) -> dict[str, JsonDict]:
    """Return the user's list of Python versions by key, or an empty mapping if none is configured.

    ``timeout`` is the number of seconds to wait for the server. Raises SolveError or NotFetched.
    """
    address = environ.get(LIST_VARIABLE, "")
    if not address:
        return {}
    masked = mask(address)
    try:
        entries = parse_json(_read_list(expand_variables(address, environ), environ, timeout))
    except ValueError:
        entries = None
    if not isinstance(entries, dict):
        raise SolveError(f"{masked}, set in {LIST_VARIABLE}, is not a list of Python versions", "use a JSON object")
    return {str(key): entry for key, entry in entries.items() if isinstance(entry, dict)}


def select_list_fields(entry: Mapping[str, Any]) -> JsonDict:
    """Return the fields of a list entry that a target needs. On the target, uv does not read the list."""
    return {name: entry.get(name) for name in _LIST_FIELDS}


def _read_list(location: str, environ: Mapping[str, str], timeout: float) -> bytes:
    from ..remote.environments import build_tools  # noqa: PLC0415 - slow to import, and few have such a list

    if not is_remote(location):
        path = Path(url2pathname(urlsplit(location).path) if location.startswith("file://") else location)
        try:
            with path.open("rb") as file:
                return file.read(_MAX_LIST_BYTES)
        except OSError as error:
            raise SolveError(f"cannot read {path}, set in {LIST_VARIABLE}: {error.strerror}") from None
    address = strip_secret(location)[0]
    headers = headers_for(address, mirror_credentials(environ), environ)
    with tempfile.TemporaryDirectory(prefix="mlw-pythons-") as folder:
        path = Path(folder) / "list.json"
        try:
            build_tools.fetch(address, str(path), headers, _MAX_LIST_BYTES, timeout=timeout)
        except build_tools.NoEnvironment as error:
            why = getattr(error, "why", None) or str(error)
            raise NotFetched(
                f"cannot fetch the list of Python versions from {address}: {why}",
                f"check {LIST_VARIABLE}, and try again",
                more="index-not-reached",
            ) from None
        return path.read_bytes()
