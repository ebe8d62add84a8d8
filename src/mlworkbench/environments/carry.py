"""Packages that travel from this machine: files of it, those that want a password, or all for a target without a way.

They lie in the cache by their SHA-256, as they will on the target.
"""

from __future__ import annotations

import base64
import netrc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import SolveError
from ..model import JsonDict
from ..remote.folder import Root
from ..remote.tools import NoEnvironment, fetch, get
from .channels import indexes_of
from .dependencies import Dependencies
from .solve import Solved

_AT_ONCE = 8


def carry(
    solved: Solved,
    dependencies: Dependencies,
    cache: Path,
    environ: Mapping[str, str],
    *,
    everything: bool = False,
    lacking: Callable[[Iterable[str]], Iterable[str]] = lambda digests: digests,
) -> tuple[JsonDict, dict[str, Path]]:
    """The lock, and what to send with it: digest → path here. ``everything``: the target cannot fetch by itself.

    ``lacking`` may ask the target which of these digests it has not; others are not fetched.
    """
    root = Root(str(cache / "packages"))
    lock = dict(solved.lock)
    if everything and lock["python"]["source"] == "uv":
        lock["python"] = _with_archive(lock["python"], root)
    wanted = {str(one["sha256"]): one for one in _entries(lock) if one.get("private") or everything}
    missing = set(lacking([*wanted, *solved.files]))
    keys = _keys(dependencies, environ)
    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            fetched = pool.map(
                lambda one: get(root, one, _headers(str(one.get("url")), keys)),
                [one for sha256, one in wanted.items() if sha256 in missing and sha256 not in solved.files],
            )
            found = {Path(path).name: Path(path) for path in fetched}
    except NoEnvironment as error:
        message, _, hint = str(error).partition("; hint: ")
        raise SolveError(message.replace("here ", "from this machine "), hint.split(", or submit")[0]) from None
    return lock, {**found, **{sha256: path for sha256, path in solved.files.items() if sha256 in missing}}


def _entries(lock: JsonDict) -> Iterator[JsonDict]:
    for one in (*lock["conda"], *lock["pip"], *lock.get("tools", ())):
        if one.get("sha256"):
            yield one
    if lock["python"].get("sha256"):
        yield {**lock["python"], "name": "python"}


def _with_archive(python: JsonDict, root: Root) -> JsonDict:
    """uv tells where its Pythons are and keeps their digests to itself: fetched here, it is known."""
    note = Path(root.packages) / "pythons" / str(python["key"])
    if note.is_file() and os.path.isfile(root.package(note.read_text())):
        return {**python, "sha256": note.read_text()}
    note.parent.mkdir(parents=True, exist_ok=True)
    part = f"{note}.{os.urandom(4).hex()}.part"
    sha256 = fetch(str(python["url"]), part)
    os.replace(part, root.package(sha256))
    note.write_text(sha256)
    return {**python, "sha256": sha256}


def _keys(dependencies: Dependencies, environ: Mapping[str, str]) -> dict[str, str]:
    """Host → user:password, from the addresses that the project and the user's settings name."""
    indexes = indexes_of(dependencies, environ)
    addresses = [indexes.index_url or "", *indexes.extra, *indexes.find_links, *dependencies.channels]
    found = {}
    for one in addresses:
        parts = urlsplit(one)
        user, at, host = parts.netloc.rpartition("@")
        if at:
            found[host] = unquote(user)
    return found


def _headers(url: str, keys: Mapping[str, str]) -> dict[str, str]:
    host = urlsplit(url).netloc
    key = keys.get(host) or _from_netrc(urlsplit(url).hostname or "")
    return {"Authorization": "Basic " + base64.b64encode(key.encode()).decode()} if key else {}


def _from_netrc(host: str) -> str | None:
    try:
        known = netrc.netrc(os.environ.get("NETRC")).authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return None
    return f"{known[0]}:{known[2]}" if known else None
