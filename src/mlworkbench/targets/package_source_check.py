"""Findings for the check of a compute target: which machine downloads packages and Pythons, and from where."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from ..environments.credentials import origin_of
from ..environments.index_variables import SecretVariables
from ..environments.mirrors import LIST_VARIABLE, MIRROR_VARIABLE, mirror_credentials
from ..environments.package_sources import Indexes, index_host, is_remote, strip_secret, user_indexes
from ..environments.selection import is_managed
from ..hosts.host_facts import Facts, Reach
from ..model import Compute
from .machine_check import OK, Finding
from .types import is_elsewhere, type_of

_SENT = "downloaded by this machine and sent to the target"


def package_findings(facts: Facts, compute: Compute, environ: Mapping[str, str]) -> list[Finding]:
    """Return findings about packages and Python downloads.

    The findings are based on the user's settings and the machine's internet access. If a project names
    another index, its builds apply the same rules to that index.
    """
    elsewhere = is_elsewhere(compute)
    if not is_managed(compute):
        if not elsewhere:
            return []
        owner = "image" if type_of(compute).contained else "machine"
        return [Finding("packages", OK, f"the {owner}'s own packages; mlw installs none (userManagedEnvironment)")]
    indexes, place = user_indexes(environ, Path()), index_host(environ)
    source = f"{place} (your settings)" if place else "the default package index"
    how = _packages(indexes, place, source, facts.reach) if elsewhere else f"downloaded by this machine from {source}"
    if elsewhere and SecretVariables.from_environ(environ).origins & {origin_of(indexes.index_url or "")}:
        stays = f"the address of {source} may contain a secret and stays on this machine"
        how = f"{_SENT}: {stays}; builds of source packages do not use it"
    return [Finding("packages", OK, how), *_pythons(environ, elsewhere=elsewhere)]


def _packages(indexes: Indexes, place: str | None, source: str, reach: Reach | None) -> str:
    if indexes.no_index or (indexes.index_url and not is_remote(indexes.index_url)):
        return "sent from local folders of this machine (your settings)"
    if indexes.index_url and strip_secret(indexes.index_url)[1]:
        return f"{_SENT}: {source} needs a password, which stays on this machine"
    if reach is None:
        return f"downloaded by the target from {source} if reachable, else {_SENT}"
    if reach.proxy and not reach.way:
        return f"downloaded by the target from {source}, through the target's proxy"
    if not reach.way:
        return f"{_SENT}: the target cannot reach {source}"
    if place is None:  # only a well-known host was tested, not the index
        return f"downloaded by the target from {source} if reachable, else {_SENT}"
    return f"downloaded by the target from {source}"


def _pythons(environ: Mapping[str, str], *, elsewhere: bool) -> list[Finding]:
    """Return the source of uv's Python downloads if the user's settings name a mirror.

    Each build decides which machine downloads them.
    """
    name = LIST_VARIABLE if environ.get(LIST_VARIABLE) else MIRROR_VARIABLE
    address = environ.get(name, "")
    if not address:
        return []
    if not is_remote(address):
        return [Finding("pythons", OK, f"{'sent from' if elsewhere else 'from'} this machine's {address} ({name})")]
    public = strip_secret(address)[0]
    source = f"{urlsplit(public).netloc} ({name})"
    if not elsewhere:
        return [Finding("pythons", OK, f"downloaded by this machine from {source}")]
    if origin_of(public) in mirror_credentials(environ):
        return [Finding("pythons", OK, f"{_SENT}: {source} needs a password, which stays on this machine")]
    return [Finding("pythons", OK, f"downloaded by the target from {source} if reachable, else {_SENT}")]
