"""Facts about a target for planning: collected once, cached, and uniform across compute types."""

from __future__ import annotations

import json
import os
import posixpath
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..container_consents import normal
from ..errors import LaunchError
from ..failure import Failure
from ..model import Compute
from ..paths import UserPaths
from ..remote.shared.untrusted_json import parse_json
from .target import Target

if TYPE_CHECKING:  # not imported for runs without a container
    from ..attachments import Attachment
    from ..container_consents import Consent
    from ..hosts.host_facts import Facts
    from .container_plan import Engine

_CACHE_SECONDS = 24 * 3600.0  # seconds to cache facts about this machine; a changed docker program invalidates them


@dataclass(frozen=True)
class TargetFacts:
    """Facts about the machine that a plan uses."""

    home: str  # the user's home on the target
    share: str  # base of shared folders there
    uid: int = 0
    gid: int = 0
    user: str = ""
    memory: int | None = None
    engine: Engine | None = None  # for runs in containers
    allowed: tuple[Consent, ...] = ()  # what containers may use on the machine
    places: Mapping[str, str] = field(default_factory=dict)  # standard folders → resolved paths
    facts: Mapping[str, Any] = field(default_factory=dict)  # as stored; empty if not needed


def collect_target_facts(target: Target, compute: Compute, paths: UserPaths, *, detailed: bool = False) -> TargetFacts:
    """Return the facts. Another machine is queried only if its stored facts are incomplete or outdated.

    ``detailed``: collect facts about this machine even if runs use no container.
    """
    root = target.host.root.path  # raises an error for a machine that is not attached
    attachment = target.host.attachment
    if attachment is not None:
        if target.type.contained and not attachment.places:  # attached with an older version of mlw
            attachment = _with_places(attachment, target, paths)
        try:
            return _remote_facts(attachment, compute, root, target)
        except LaunchError:
            # The facts stored when the machine was attached may be outdated.
            from ..attachments import Attachments  # noqa: PLC0415

            fresh = replace(attachment, facts=asdict(target.host.facts()))
            return _remote_facts(Attachments(paths).save(fresh), compute, root, target)
    home = os.path.expanduser("~")
    target_facts = TargetFacts(home, _share(compute, home, str(paths.share)))
    if not target.type.contained:
        return (
            _with_machine_facts(target_facts, _local_facts(target, paths), compute, target)
            if detailed
            else target_facts
        )
    from .consent_check import ask_places  # noqa: PLC0415 - for containers only

    target_facts = _with_machine_facts(target_facts, _local_facts(target, paths), compute, target)
    return replace(target_facts, places=ask_places(target.host).places)


def _with_places(attachment: Attachment, target: Target, paths: UserPaths) -> Attachment:
    from ..attachments import Attachments  # noqa: PLC0415
    from .consent_check import resolve_consents  # noqa: PLC0415

    allowed, places = resolve_consents(target.host, attachment.allowed, ())
    return Attachments(paths).save(replace(attachment, allowed=allowed, places=places))


def _remote_facts(attachment: Attachment, compute: Compute, root: str, target: Target) -> TargetFacts:
    home = _part(attachment.facts, "user").get("home") or posixpath.dirname(root)
    share = _share(compute, home, posixpath.join(root, "share"))
    target_facts = TargetFacts(home, share, allowed=attachment.allowed, places=attachment.places)
    return _with_machine_facts(target_facts, attachment.facts, compute, target)


def _with_machine_facts(
    target_facts: TargetFacts, facts: Mapping[str, Any], compute: Compute, target: Target
) -> TargetFacts:
    """Add the user, memory, and engine from ``facts``, which are parsed only if a container is needed."""
    engine = None
    if target.type.contained:
        from ..hosts.host_facts import Facts  # noqa: PLC0415 - many classes, and slow to make for that

        engine = choose_engine(Facts.from_json(facts), compute)
    user, memory = _part(facts, "user"), _part(facts, "memory").get("total")
    facts_now = replace(target_facts, memory=memory, engine=engine, facts=facts)
    return replace(facts_now, uid=user.get("uid") or 0, gid=user.get("gid") or 0, user=user.get("name") or "user")


def _part(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = facts.get(name)
    return part if isinstance(part, Mapping) else {}


def _share(compute: Compute, home: str, otherwise: str) -> str:
    given = compute.native_shared_directory
    if not given:
        return otherwise
    given = home + given[1:] if given == "~" or given.startswith("~/") else given
    return normal(given) if given.startswith("/") else os.path.abspath(given)


def choose_engine(facts: Facts, compute: Compute) -> Engine:
    """Return Docker if installed, otherwise Podman. Raise an error if the engine cannot be used."""
    from .container_plan import Engine  # noqa: PLC0415
    from .machine_check import engine_error  # noqa: PLC0415

    engine = facts.docker or facts.podman
    if engine is None:
        hint, page = "install Docker Engine or podman on the target", "docker-not-running"
        raise _unfit(compute, Failure(page, "neither docker nor podman is installed", hint, page))
    trouble = engine_error(engine, gpus=compute.nvidia_docker)
    if trouble is not None:
        raise _unfit(compute, trouble)
    return Engine(
        str(engine.path), engine.program or "docker", bool(engine.rootless), engine.socket, bool(engine.selinux)
    )


def _unfit(compute: Compute, trouble: Failure) -> LaunchError:
    message = f"containers cannot run on {compute.name}: {trouble.message}"
    return LaunchError(message, trouble.hint, more=trouble.explain, code=trouble.code)


# -- this machine ----------------------------------------------------------------------------------


def _local_facts(target: Target, paths: UserPaths) -> Mapping[str, Any]:
    """Return facts about this machine, from a cache if possible: querying a container engine takes about 0.3 s.

    The cache is valid for a day, unless the engine programs, ``PATH``, or the Docker variables change. For
    containers, cached facts without a working engine are ignored.
    """
    cache = paths.home / "cache" / "machine.json"
    fingerprint = _engine_fingerprint()
    try:
        cached = parse_json(cache.read_bytes())
        fresh = cached["marks"] == fingerprint and 0 <= time.time() - cached["time"] < _CACHE_SECONDS
        if fresh and (not target.type.contained or _has_engine(cached["facts"])):
            return dict(cached["facts"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # the cache is missing or damaged
    facts = asdict(target.host.facts())
    part = f"{cache}.{os.urandom(4).hex()}.part"
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump({"marks": fingerprint, "time": time.time(), "facts": facts}, file)
    os.replace(part, cache)
    return facts


def _has_engine(facts: Mapping[str, Any]) -> bool:
    """Return whether an engine works. Otherwise, the cache is not used: an engine may have been started since."""
    return any(facts.get(name) and not facts[name].get("error") for name in ("docker", "podman"))


def _engine_fingerprint(environ: Mapping[str, str] = os.environ) -> list[object]:
    fingerprint: list[object] = [environ.get("DOCKER_HOST"), environ.get("DOCKER_CONTEXT"), environ.get("PATH")]
    for folder in environ.get("PATH", "").split(os.pathsep):
        for name in ("docker", "podman"):
            try:
                fingerprint.append(os.stat(os.path.join(folder, name)).st_mtime_ns)
            except OSError:
                continue
    return fingerprint
