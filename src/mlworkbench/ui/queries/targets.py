"""The compute targets of a project: what their files say, what this user knows of the machines, what uses them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

from ...attach.attempt import key_in_words
from ...attachments import Attachment
from ...config.place import FOLDER
from ...config.project import Project
from ...consents import MOUNT, NETWORK, of_kind
from ...environments.existing import look_at_python
from ...errors import ConfigError, MlwError, UnknownName
from ...history.store import History
from ...hosts.facts import Facts
from ...model import Compute, Interpreter
from ...paths import UserPaths
from ...report import units
from ...targets.check import Finding, judge
from ...targets.remote import find_attachment, machine_of, not_attached
from ...targets.types import is_elsewhere, type_of


@dataclass(frozen=True)
class Attached:
    """What this user knows of a machine elsewhere."""

    identity: str
    key: str  # how one gets in, in words
    host_key: str
    made: bool  # the key is ours, and can be made anew
    mounts: tuple[str, ...]
    networks: tuple[str, ...]
    checked: float | None  # when the facts were seen


@dataclass(frozen=True)
class Use:
    """A run configuration that uses a target, and its file."""

    name: str
    file: str


@dataclass(frozen=True)
class Card:
    """One target. ``trouble``: why its file cannot be read, or why nobody can get there, and what to do."""

    name: str
    file: str
    type: str | None = None
    address: str | None = None
    image: str | None = None
    elsewhere: bool = False
    contained: bool = False
    attached: Attached | None = None
    findings: tuple[Finding, ...] = ()
    uses: tuple[Use, ...] = ()
    trouble: str | None = None
    hint: str | None = None
    compute: Compute | None = None


def cards(history: History, project: Project) -> list[Card]:
    """All of them, by name. Nobody is asked: what is said of machines is what was seen last."""
    uses = _uses(project)
    return [_card(project, name, history.paths, uses.get(name, ())) for name in project.computes()]


def card(history: History, project: Project, name: str) -> Card:
    if name not in project.computes():
        raise UnknownName("compute target", name, project.computes())
    return _card(project, name, history.paths, _uses(project).get(name, ()))


def compute_of(history: History, project: Project, name: str) -> Compute:
    return project.compute(name)


def findings_here(history: History, project: Project, name: str, look: Callable[[], Facts]) -> list[Finding]:
    """Of a target on this machine, which is asked now."""
    compute = project.compute(name)
    return judge(look(), compute, _python(project, compute, history.paths), units.size)


def _python(project: Project, compute: Compute, paths: UserPaths) -> Interpreter | MlwError | None:
    if type_of(compute).contained:
        return None  # the image's own
    try:
        return look_at_python(compute.python_location, os.environ, project.root, paths.interpreters)
    except ConfigError as error:
        return error


def _uses(project: Project) -> dict[str, tuple[Use, ...]]:
    found: dict[str, tuple[Use, ...]] = {}
    for name in project.runconfigs():
        try:
            target = project.runconfig(name).target
        except ConfigError:
            continue  # the page Files says what is wrong with it
        use = Use(name, f"{FOLDER}/{project.runconfig_file(name).name}")
        found[target] = (*found.get(target, ()), use)
    return found


def _card(project: Project, name: str, paths: UserPaths, uses: tuple[Use, ...]) -> Card:
    file = f"{FOLDER}/{name}.compute"
    try:
        compute = project.compute(name)
    except MlwError as error:
        return Card(name, file, uses=uses, trouble=error.message, hint=error.hint)
    elsewhere, contained = is_elsewhere(compute), type_of(compute).contained
    attachment = find_attachment(compute, paths) if elsewhere else None
    refusal = not_attached(compute) if elsewhere and attachment is None and compute.address else None
    facts = Facts.from_json(attachment.facts) if attachment and attachment.facts else None
    return Card(
        name=name,
        file=file,
        type=compute.type,
        address=machine_of(compute) if compute.address else None,
        image=compute.base_docker_image if contained else None,
        elsewhere=elsewhere,
        contained=contained,
        attached=_attached(attachment, facts) if attachment else None,
        findings=tuple(judge(facts, compute, None, units.size)) if facts else (),
        uses=uses,
        trouble=refusal.message if refusal else None,
        hint=refusal.hint if refusal else None,
        compute=compute,
    )


def _attached(found: Attachment, facts: Facts | None) -> Attached:
    return Attached(
        identity=found.where,
        key=key_in_words(found),
        host_key=found.host_key,
        made=found.key == "mlw",
        mounts=tuple(one.text for one in of_kind(found.allowed, MOUNT)),
        networks=tuple(one.text for one in of_kind(found.allowed, NETWORK)),
        checked=facts.time if facts and isinstance(facts.time, (int, float)) else None,
    )


def file_address(key: str, path: str) -> str:
    """Of the page that shows a file of a project."""
    return f"/p/{key}/files?path={quote(path, safe='')}"
