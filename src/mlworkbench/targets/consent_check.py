"""Compare what a project needs from a machine with what the user allowed, before sending anything."""

from __future__ import annotations

import os
import posixpath
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..container_consents import (
    FREE_NETWORKS,
    MOUNT,
    NETWORK,
    Consent,
    conflict,
    is_below,
    merge,
    mount_refusal,
    of_kind,
    resolved_prefixes,
)
from ..errors import ConfigError, HostError, UsageError
from ..failure import Failure
from ..hosts.host import Host
from ..hosts.replies import Reply, printable, printable_failure
from ..model import Compute
from ..remote.bind_mounts import translate
from .container_plan import mounts
from .types import is_elsewhere

if TYPE_CHECKING:
    from .target_facts import TargetFacts

_ORIGINAL = "/.azureml/share"  # default of Azure ML Workbench, below the home folder


@dataclass(frozen=True)
class Places:
    """Resolved paths on a machine: its standard folders and the requested ones."""

    places: Mapping[str, str]
    reals: Mapping[str, str]
    problems: Mapping[str, Failure]


def ask_places(host: Host, paths: Iterable[str] = ()) -> Places:
    """Resolve paths on the machine itself."""
    reply = Reply(host.identity, host.ask({"do": "mounts", "paths": list(paths)}))
    reply.require_ok(f"cannot resolve folder paths on {host.identity}")
    places, found = reply.mapping("places"), reply.mapping("paths")
    answers = {path: answer for path, answer in found.items() if isinstance(answer, dict)}
    reals = {path: _path(host, answer["real"]) for path, answer in answers.items() if "real" in answer}
    found_problems = ((path, printable_failure(answer.get("failure"))) for path, answer in answers.items())
    problems = {path: problem for path, problem in found_problems if problem}
    return Places({_path(host, path): _path(host, real) for path, real in places.items()}, reals, problems)


def _path(host: Host, path: object) -> str:
    """Validate a path that a machine reported, because it is displayed and stored."""
    if not isinstance(path, str) or not os.path.isabs(path) or not path.isprintable():
        raise HostError(f"{host.identity} has a folder with an unsupported name: {printable(str(path))}")
    return path


def resolve_consents(
    host: Host, allowed: Iterable[Consent], requested: Iterable[Consent]
) -> tuple[tuple[Consent, ...], Mapping[str, str]]:
    """Return ``allowed`` and ``requested`` combined, and the resolved folders of the machine.

    Each path is resolved once, when it is allowed. Raises ``UsageError`` if ``requested`` must be refused.
    """
    requested = tuple(requested)
    every = merge(allowed, requested)
    answer = ask_places(host, [consent.value for consent in of_kind(every, MOUNT) if consent.real is None])
    for consent in of_kind(requested, MOUNT):
        if consent.value in answer.problems:
            raise _not_granted(consent, answer.problems[consent.value])
    every = tuple(replace(consent, real=consent.real or answer.reals.get(consent.value)) for consent in every)
    reason = conflict(every, own_folders(answer.places, host.root.path)) if requested else None
    if reason:
        raise UsageError(reason.message, reason.hint)
    return every, answer.places


def _not_granted(consent: Consent, problem: Failure) -> UsageError:
    message = f"--allow-mount {consent.text}: {problem.message}"
    return UsageError(message, problem.hint or "use another folder", more=problem.explain, code=problem.code)


def own_folders(places: Mapping[str, str], root: str) -> tuple[str, ...]:
    """Return the ML Workbench folders, as named and as resolved, without the user's home folder."""
    pairs = [pair for pair in places.items() if is_below(pair[0], root) or pair[0].endswith(_ORIGINAL)]
    return tuple(dict.fromkeys(path for pair in pairs for path in pair))


def with_consents(host: Host, target_facts: TargetFacts, requested: tuple[Consent, ...]) -> TargetFacts:
    """Return ``target_facts`` with the consents given for this run only."""
    if not requested:
        return target_facts
    allowed = merge(target_facts.allowed, requested)
    if of_kind(requested, MOUNT):
        allowed, _ = resolve_consents(host, target_facts.allowed, requested)
    return replace(target_facts, allowed=allowed)


def refuse_unallowed(compute: Compute, target_facts: TargetFacts, share: str, host: Host) -> None:
    """Raise ``ConfigError`` if the project requests a mount or network that the user has not allowed.

    ``share``: the project's shared folder on the target.
    """
    own_paths = own_folders(target_facts.places, host.root.path)
    requested = [(source, mode) for source, _, mode in mounts(compute)]
    if not _is_standard(target_facts, host.root.path):
        requested.append((share.rstrip("/"), "rw"))
    for source, mode in requested:
        reason = mount_refusal(source, mode, target_facts.allowed, own_paths)
        if reason:
            option = f"--allow-mount {shlex.quote(source + (':ro' if mode == 'ro' else ''))}"
            hint = reason.hint or _command(compute, option)
            raise ConfigError(f"{compute.name}.compute: {reason.message}", hint)
    network = compute.network
    if network and network not in FREE_NETWORKS and Consent(NETWORK, network) not in target_facts.allowed:
        raise ConfigError(
            f"{compute.name}.compute: the network {network} lets a container reach more than its own network,"
            " and you have not allowed that",
            _command(compute, f"--allow-network {shlex.quote(network)}"),
        )
    if not host.is_remote:
        _check_mount_sources(compute, target_facts, host, [source for source, _ in requested])


def _check_mount_sources(compute: Compute, target_facts: TargetFacts, host: Host, sources: list[str]) -> None:
    """Check folders on this machine now. Other machines check theirs right before the run starts."""
    resolved = resolved_prefixes(target_facts.allowed, target_facts.places)
    if sources:
        problems = ask_places(host, [translate(source, resolved) for source in sources]).problems
        for problem in problems.values():
            raise ConfigError(f"{compute.name}.compute: {problem.message}", problem.hint)


def _is_standard(target_facts: TargetFacts, root: str) -> bool:
    """Return whether the base of shared folders is a default, which needs no consent.

    Defaults are those of mlw and of Azure ML Workbench.
    """
    standard = [posixpath.join(root, "share"), target_facts.home + _ORIGINAL]
    return target_facts.share in (*standard, *(target_facts.places.get(path, path) for path in standard))


def _command(compute: Compute, option: str) -> str:
    if not is_elsewhere(compute):
        return f"mlw submit {option} …"
    return f"mlw computetarget update {shlex.quote(compute.name)} {option}"
