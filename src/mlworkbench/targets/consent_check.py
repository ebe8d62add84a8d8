"""Compare what a project needs from a machine with what this user allowed there, before anything is sent."""

from __future__ import annotations

import os
import posixpath
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..consents import (
    FREE_NETWORKS,
    MOUNT,
    NETWORK,
    Consent,
    conflict,
    is_below,
    merge,
    of_kind,
    refusal,
    resolved_prefixes,
)
from ..errors import ConfigError, HostError, UsageError
from ..failure import Failure
from ..hosts.host import Host
from ..hosts.replies import Reply, printable, printable_failure
from ..model import Compute
from ..remote.mounts import translate
from .container import mounts
from .types import is_elsewhere

if TYPE_CHECKING:
    from .ground import Ground

_ORIGINAL = "/.azureml/share"  # in the home: the original's default for shared folders


@dataclass(frozen=True)
class Places:
    """What a machine answered: where its standard folders and the asked paths lead."""

    places: Mapping[str, str]
    reals: Mapping[str, str]
    problems: Mapping[str, Failure]


def ask_places(host: Host, paths: Iterable[str] = ()) -> Places:
    """Resolve paths on the machine itself."""
    reply = Reply(host.identity, host.ask({"do": "mounts", "paths": list(paths)}))
    reply.require_ok(f"cannot resolve folder paths on {host.identity}")
    places, found = reply.mapping("places"), reply.mapping("paths")
    answers = {path: one for path, one in found.items() if isinstance(one, dict)}
    reals = {path: _path(host, one["real"]) for path, one in answers.items() if "real" in one}
    found_problems = ((path, printable_failure(one.get("failure"))) for path, one in answers.items())
    problems = {path: problem for path, problem in found_problems if problem}
    return Places({_path(host, path): _path(host, real) for path, real in places.items()}, reals, problems)


def _path(host: Host, path: object) -> str:
    """What a machine calls a path is shown and kept, so it must be one."""
    if not isinstance(path, str) or not os.path.isabs(path) or not path.isprintable():
        raise HostError(f"{host.identity} has a folder with an unsupported name: {printable(str(path))}")
    return path


def resolve_consents(
    host: Host, allowed: Iterable[Consent], asked: Iterable[Consent]
) -> tuple[tuple[Consent, ...], Mapping[str, str]]:
    """``allowed`` and ``asked`` together, and where the machine's folders lead.

    Each path is resolved once, when it is allowed. UsageError where ``asked`` cannot be granted.
    """
    asked = tuple(asked)
    every = merge(allowed, asked)
    answer = ask_places(host, [one.value for one in of_kind(every, MOUNT) if one.real is None])
    for one in of_kind(asked, MOUNT):
        if one.value in answer.problems:
            raise _not_granted(one, answer.problems[one.value])
    every = tuple(replace(one, real=one.real or answer.reals.get(one.value)) for one in every)
    reason = conflict(every, own_folders(answer.places, host.root.path)) if asked else None
    if reason:
        raise UsageError(reason.message, reason.hint)
    return every, answer.places


def _not_granted(consent: Consent, problem: Failure) -> UsageError:
    message = f"--allow-mount {consent.text}: {problem.message}"
    return UsageError(message, problem.hint or "use another folder", more=problem.explain, code=problem.code)


def own_folders(places: Mapping[str, str], root: str) -> tuple[str, ...]:
    """Folders of ML Workbench, with and without links. Where the home leads is known too, but it is the user's."""
    own = [pair for pair in places.items() if is_below(pair[0], root) or pair[0].endswith(_ORIGINAL)]
    return tuple(dict.fromkeys(path for pair in own for path in pair))


def with_consents(host: Host, ground: Ground, asked: tuple[Consent, ...]) -> Ground:
    """The machine with what was allowed for this run alone."""
    if not asked:
        return ground
    allowed = merge(ground.allowed, asked)
    if of_kind(asked, MOUNT):
        allowed, _ = resolve_consents(host, ground.allowed, asked)
    return replace(ground, allowed=allowed)


def refuse_unallowed(compute: Compute, ground: Ground, share: str, host: Host) -> None:
    """A project may name any folder and network of the machine; containers get only those that this user allowed.

    ``share``: the project's shared folder there.
    """
    own = own_folders(ground.places, host.root.path)
    wanted = [(source, mode) for source, _, mode in mounts(compute)]
    if not _is_standard(ground, host.root.path):
        wanted.append((share.rstrip("/"), "rw"))
    for source, mode in wanted:
        reason = refusal(source, mode, ground.allowed, own)
        if reason:
            option = f"--allow-mount {shlex.quote(source + (':ro' if mode == 'ro' else ''))}"
            hint = reason.hint or _command(compute, option)
            raise ConfigError(f"{compute.name}.compute: {reason.message}", hint)
    network = compute.network
    if network and network not in FREE_NETWORKS and Consent(NETWORK, network) not in ground.allowed:
        raise ConfigError(
            f"{compute.name}.compute: the network {network} lets a container reach more than its own network,"
            " and you have not allowed that",
            _command(compute, f"--allow-network {shlex.quote(network)}"),
        )
    if not host.distant:
        _look_here(compute, ground, host, [source for source, _ in wanted])


def _look_here(compute: Compute, ground: Ground, host: Host, sources: list[str]) -> None:
    """On this machine the folders are inspected here; on other machines right before the start."""
    resolved = resolved_prefixes(ground.allowed, ground.places)
    if sources:
        problems = ask_places(host, [translate(source, resolved) for source in sources]).problems
        for problem in problems.values():
            raise ConfigError(f"{compute.name}.compute: {problem.message}", problem.hint)


def _is_standard(ground: Ground, root: str) -> bool:
    """Whether the base of shared folders is our own or the original's default: only these need no consent."""
    standard = [posixpath.join(root, "share"), ground.home + _ORIGINAL]
    return ground.share in (*standard, *(ground.places.get(path, path) for path in standard))


def _command(compute: Compute, option: str) -> str:
    if not is_elsewhere(compute):
        return f"mlw submit {option} …"
    return f"mlw computetarget update {shlex.quote(compute.name)} {option}"
