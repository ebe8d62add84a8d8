"""What a plan needs to know of the machine that a run will be on: asked once, remembered, the same for all types."""

from __future__ import annotations

import json
import os
import posixpath
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..consents import normal
from ..errors import LaunchError
from ..failure import Failure
from ..model import Compute
from ..paths import UserPaths
from ..remote.shared.untrusted import parse_json
from .target import Target

if TYPE_CHECKING:  # what a run without a container need not wait for
    from ..attachments import Attachment
    from ..consents import Consent
    from ..hosts.facts import Facts
    from .container import Engine

_FRESH = 24 * 3600.0  # seconds that the facts of this machine serve; a new docker program makes them old at once


@dataclass(frozen=True)
class Ground:
    """The machine as a plan sees it."""

    home: str  # of the user there
    share: str  # base of the shared folders there
    uid: int = 0
    gid: int = 0
    user: str = ""
    memory: int | None = None
    engine: Engine | None = None  # where a container stands around the command
    allowed: tuple[Consent, ...] = ()  # what containers may have of the machine
    places: Mapping[str, str] = field(default_factory=dict)  # its standard folders, and where they lead
    facts: Mapping[str, Any] = field(default_factory=dict)  # as they were written down; none if nobody had to look


def survey(target: Target, compute: Compute, paths: UserPaths, *, closely: bool = False) -> Ground:
    """From what is known without asking another machine anew. ``closely``: facts are needed of this machine too."""
    root = target.host.root.path  # a machine that nobody attached refuses here
    attachment = target.host.attachment
    if attachment is not None:
        if target.type.contained and not attachment.places:  # of a version that did not look
            attachment = _with_places(attachment, target, paths)
        try:
            return _elsewhere(attachment, compute, root, target)
        except LaunchError:
            # What was there when it was attached need not be what is there now.
            from ..attachments import Attachments  # noqa: PLC0415

            fresh = replace(attachment, facts=asdict(target.host.facts()))
            return _elsewhere(Attachments(paths).save(fresh), compute, root, target)
    home = os.path.expanduser("~")
    ground = Ground(home, _share(compute, home, str(paths.share)))
    if not target.type.contained:
        return _known(ground, _facts_here(target, paths), compute, target) if closely else ground
    from .consent import ask_places  # noqa: PLC0415 - for containers only

    ground = _known(ground, _facts_here(target, paths), compute, target)
    return replace(ground, places=ask_places(target.host).places)


def _with_places(attachment: Attachment, target: Target, paths: UserPaths) -> Attachment:
    from ..attachments import Attachments  # noqa: PLC0415
    from .consent import resolve_consents  # noqa: PLC0415

    allowed, places = resolve_consents(target.host, attachment.allowed, ())
    return Attachments(paths).save(replace(attachment, allowed=allowed, places=places))


def _elsewhere(attachment: Attachment, compute: Compute, root: str, target: Target) -> Ground:
    home = _part(attachment.facts, "user").get("home") or posixpath.dirname(root)
    share = _share(compute, home, posixpath.join(root, "share"))
    ground = Ground(home, share, allowed=attachment.allowed, places=attachment.places)
    return _known(ground, attachment.facts, compute, target)


def _known(ground: Ground, facts: Mapping[str, Any], compute: Compute, target: Target) -> Ground:
    """``facts`` as they were written down; made a value of only where an engine is to be judged."""
    engine = None
    if target.type.contained:
        from ..hosts.facts import Facts  # noqa: PLC0415 - many classes, and slow to make for that

        engine = choose_engine(Facts.from_json(facts), compute)
    user, memory = _part(facts, "user"), _part(facts, "memory").get("total")
    known = replace(ground, memory=memory, engine=engine, facts=facts)
    return replace(known, uid=user.get("uid") or 0, gid=user.get("gid") or 0, user=user.get("name") or "user")


def _part(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = facts.get(name)
    return found if isinstance(found, Mapping) else {}


def _share(compute: Compute, home: str, otherwise: str) -> str:
    given = compute.native_shared_directory
    if not given:
        return otherwise
    given = home + given[1:] if given == "~" or given.startswith("~/") else given
    return normal(given) if given.startswith("/") else os.path.abspath(given)


def choose_engine(facts: Facts, compute: Compute) -> Engine:
    """Docker if it is there, else podman: which one it is must not depend on whether Docker runs at the moment."""
    from .check import engine_trouble  # noqa: PLC0415
    from .container import Engine  # noqa: PLC0415

    found = facts.docker or facts.podman
    if found is None:
        hint, page = "install Docker Engine or podman on the target", "docker-not-running"
        raise _unfit(compute, Failure(page, "neither docker nor podman is installed", hint, page))
    trouble = engine_trouble(found, gpus=compute.nvidia_docker)
    if trouble is not None:
        raise _unfit(compute, trouble)
    return Engine(str(found.path), found.program or "docker", bool(found.rootless), found.socket, bool(found.selinux))


def _unfit(compute: Compute, trouble: Failure) -> LaunchError:
    message = f"containers cannot run on {compute.name}: {trouble.message}"
    return LaunchError(message, trouble.hint, more=trouble.explain, code=trouble.code)


# -- this machine ----------------------------------------------------------------------------------


def _facts_here(target: Target, paths: UserPaths) -> Mapping[str, Any]:
    """Asking the engine takes a third of a second: remembered for as long as the programs are the same."""
    cache = paths.home / "cache" / "machine.json"
    marks = _marks()
    try:
        known = parse_json(cache.read_bytes())
        fresh = known["marks"] == marks and 0 <= time.time() - known["time"] < _FRESH
        if fresh and (not target.type.contained or _has_engine(known["facts"])):
            return dict(known["facts"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none yet, or damaged: it is only a cache
    facts = asdict(target.host.facts())
    part = f"{cache}.{os.urandom(4).hex()}.part"
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump({"marks": marks, "time": time.time(), "facts": facts}, file)
    os.replace(part, cache)
    return facts


def _has_engine(facts: Mapping[str, Any]) -> bool:
    """One that is down may be up again."""
    return any(facts.get(name) and not facts[name].get("error") for name in ("docker", "podman"))


def _marks(environ: Mapping[str, str] = os.environ) -> list[object]:
    marks: list[object] = [environ.get("DOCKER_HOST"), environ.get("DOCKER_CONTEXT"), environ.get("PATH")]
    for folder in environ.get("PATH", "").split(os.pathsep):
        for name in ("docker", "podman"):
            try:
                marks.append(os.stat(os.path.join(folder, name)).st_mtime_ns)
            except OSError:
                continue
    return marks
