"""Who fetches the packages of an environment, and from where: the target by itself, or this machine for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from ..environments.channels import Indexes, index_place, is_remote, user_indexes, without_secret
from ..environments.choose import is_managed
from ..environments.credentials import origin_of
from ..environments.mirrors import LIST, MIRROR, mirror_credentials
from ..environments.named_secrets import NamedSecrets
from ..hosts.facts import Facts, Reach
from ..model import Compute
from .check import OK, Finding
from .types import is_elsewhere, type_of

_SENT = "downloaded by this machine and sent to the target"


def package_source(facts: Facts, compute: Compute, environ: Mapping[str, str]) -> list[Finding]:
    """Findings about packages and Pythons, by the user's settings and by what the machine reaches.

    A project may name another index; then each build decides by the same rules.
    """
    elsewhere = is_elsewhere(compute)
    if not is_managed(compute):
        if not elsewhere:
            return []
        owner = "image" if type_of(compute).contained else "machine"
        return [Finding("packages", OK, f"the {owner}'s own packages; mlw installs none (userManagedEnvironment)")]
    indexes, place = user_indexes(environ, Path()), index_place(environ)
    source = f"{place} (your settings)" if place else "the default package index"
    how = _packages(indexes, place, source, facts.reach) if elsewhere else f"downloaded by this machine from {source}"
    if elsewhere and NamedSecrets.of(environ).origins & {origin_of(indexes.index_url or "")}:
        stays = f"the address of {source} may contain a secret and stays on this machine"
        how = f"{_SENT}: {stays}; builds of source packages do not use it"
    return [Finding("packages", OK, how), *_pythons(environ, elsewhere=elsewhere)]


def _packages(indexes: Indexes, place: str | None, source: str, reach: Reach | None) -> str:
    if indexes.no_index or (indexes.index_url and not is_remote(indexes.index_url)):
        return "sent from local folders of this machine (your settings)"
    if indexes.index_url and without_secret(indexes.index_url)[1]:
        return f"{_SENT}: {source} needs a password, which stays on this machine"
    if reach is None:
        return f"downloaded by the target from {source} if reachable, else {_SENT}"
    if reach.proxy and not reach.way:
        return f"downloaded by the target from {source}, through the target's proxy"
    if not reach.way:
        return f"{_SENT}: the target cannot reach {source}"
    if place is None:  # what was tried stands for the index and is not it
        return f"downloaded by the target from {source} if reachable, else {_SENT}"
    return f"downloaded by the target from {source}"


def _pythons(environ: Mapping[str, str], *, elsewhere: bool) -> list[Finding]:
    """Where Pythons of uv come from, if the user's settings name a mirror; each build decides who fetches them."""
    name = LIST if environ.get(LIST) else MIRROR
    address = environ.get(name, "")
    if not address:
        return []
    if not is_remote(address):
        return [Finding("pythons", OK, f"{'sent from' if elsewhere else 'from'} this machine's {address} ({name})")]
    public = without_secret(address)[0]
    source = f"{urlsplit(public).netloc} ({name})"
    if not elsewhere:
        return [Finding("pythons", OK, f"downloaded by this machine from {source}")]
    if origin_of(public) in mirror_credentials(environ):
        return [Finding("pythons", OK, f"{_SENT}: {source} needs a password, which stays on this machine")]
    return [Finding("pythons", OK, f"downloaded by the target from {source} if reachable, else {_SENT}")]
