"""Attach: connect, check, and only then write."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from ..attachments import Attachment, Attachments, through
from ..config.files import create_target
from ..config.place import FOLDER, GPU_PACKAGES
from ..config.project import Project
from ..consents import Consent
from ..environments.choose import is_managed
from ..errors import LaunchError
from ..hosts import contact
from ..hosts.facts import Facts
from ..hosts.replies import Reply
from ..hosts.ssh import SshHost
from ..model import Compute
from ..paths import UserPaths
from ..remote.shared.failpoint import failpoint
from ..targets.check import ERROR, WARNING, Finding, judge
from ..targets.consent import resolve_consents
from ..targets.remote import look
from ..targets.sparkcheck import spark_findings
from ..targets.types import MASTER, Feature, compute_type, type_of
from . import login
from .attached import Attached
from .attempt import Attempt, bury, key_in_words
from .here import attach_here, compute_of
from .wish import Talk, Wish, complete, confirm_way


def attach(project: Project, wish: Wish, paths: UserPaths, talk: Talk, size: Callable[[float], str]) -> Attached:
    """Make a machine a target of the project. A failure changes nothing, here or there."""
    typed = wish
    wish, there = complete(project, wish)
    assert wish.kind
    if wish.address is None:
        return attach_here(project, wish, paths, there)
    who = contact.resolve(wish.address, wish.username, wish.port, wish.jump)
    attachments = Attachments(paths)
    old = attachments.find(wish.address, who.username, who.port, wish.jump)
    if old is None:  # one that this user attached before, by this way, needs no second word
        confirm_way(typed, wish, through(who.identity, wish.jump or who.default_way), talk)
    old = old and _called(old, project, wish.name)
    dead = bury(attachments)
    draft = attachments.draft(
        who.identity,
        address=wish.address,
        username=who.username,
        port=who.port,
        jump=wish.jump,
        default_port=who.default_port,
        default_way=who.default_way,
    )
    attempt = Attempt(draft, paths, talk, old)
    files = _Files(project, wish.name)
    try:
        attempt.draft, methods = login.meet(draft, wish.host_key, talk, old)
        if not login.as_before(attempt, wish):
            login.get_in(attempt, wish, methods)
        findings, compute = _look(attempt, wish, size, _brings_packages(project), old.allowed if old else ())
        failpoint("attaching")
        settings = {} if there else _packages(project, attempt, compute, wish.replace)
        written = () if there else create_target(project.folder, compute, settings, force=wish.replace)
        failpoint("files-written")
        unused = attempt.unused(dead)
        contact.forget(attempt.draft)  # its connection is known by the draft's folder
        saved = attachments.save(_kept(attempt.draft, old, (str(project.root), wish.name)))
    except BaseException:
        attempt.undo()
        files.restore()
        raise
    attempt.tidy(saved, unused, dead)
    return Attached(
        tuple(str(path) for path in written),
        tuple(findings),
        wish.kind,
        saved.where,
        key_in_words(saved),
        saved.host_key,
    )


class _Files:
    """The target's two files as they are before, to be put back."""

    def __init__(self, project: Project, name: str) -> None:
        self._before: dict[Path, bytes | str | None] = {}  # str: a link, which may lead to a file of the user's
        for suffix in (".compute", ".runconfig"):
            path = project.folder / (name + suffix)
            if path.is_symlink():
                self._before[path] = os.readlink(path)
            else:
                self._before[path] = path.read_bytes() if path.is_file() else None

    def restore(self) -> None:
        for path, data in self._before.items():
            if data is None:
                path.unlink(missing_ok=True)
            elif isinstance(data, str):
                if not path.is_symlink():
                    path.unlink(missing_ok=True)
                    path.symlink_to(data)
            elif path.read_bytes() != data:
                path.write_bytes(data)


def _look(
    attempt: Attempt, wish: Wish, size: Callable[[float], str], brings: bool, allowed: tuple[Consent, ...]
) -> tuple[list[Finding], Compute]:
    """What machine it is, and the target that is made of it; an error if runs could not be put there."""
    host = SshHost(attempt.draft, attempt.paths)
    attempt.connect(host)
    facts, link = look(host, "python3")
    location = None
    if _sees_to_sessions(host, facts, attempt):
        facts, link = look(host, "python3")
    if not (facts.script and facts.script.executable):  # then the one that our own program was started with
        location = facts.python.executable
        facts, link = look(host, location)
    allowed, places = resolve_consents(host, allowed, wish.consents)
    known = replace(host.attachment, facts=asdict(facts), linger=attempt.linger)
    attempt.draft = replace(known, allowed=allowed, places=places)
    compute = _compute(wish, attempt.draft, location, brings)
    findings = judge(facts, compute, None, size, link)
    if type_of(compute).has(Feature.SPARK):
        findings += spark_findings(compute, host.ask)
    host.close()
    wrong = [one for one in findings if one.state == ERROR]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        what = f"{host.identity} cannot be a target of type {wish.kind}: {wrong[0].found}{more}"
        raise LaunchError(what, wrong[0].hint, more=wrong[0].more or "unfit-target")
    return [one for one in findings if one.state == WARNING], compute


def _sees_to_sessions(host: SshHost, facts: Facts, attempt: Attempt) -> bool:
    """Where the end of a login ends all processes, the user is excepted from that, said aloud."""
    if not (facts.logind.running and facts.logind.kill_user_processes) or facts.logind.linger:
        return False
    attempt.linger = True
    reply = Reply(host.identity, host.ask({"do": "linger", "on": True}))
    if not reply.ok:
        attempt.linger = False
        raise LaunchError(
            f"{host.identity} ends all user processes at logout (KillUserProcesses), and lingering cannot be enabled:"
            f" {reply.problem}",
            f"ask its administrator to run: loginctl enable-linger {host.attachment.username}",
            more="logout-ends-runs",
        )
    attempt.talk.say("enabled lingering so that runs survive logout (loginctl enable-linger); detach reverts it")
    return True


def _brings_packages(project: Project) -> bool:
    """Whether its scripts get their packages from us on this machine, too: then they should not lack them elsewhere."""
    return "local" in project.computes() and project.compute("local").user_managed_environment is False


def _compute(wish: Wish, draft: Attachment, python: str | None, brings: bool) -> Compute:
    facts = Facts.from_json(draft.facts)
    row = compute_type(wish.kind or "")
    contained, usual = row.contained, row.has(Feature.MANAGED_ENVIRONMENTS)
    ours = usual or brings
    engine = facts.docker or facts.podman
    cluster = compute_of(wish) if row.asks(MASTER) else None
    return Compute(
        name=wish.name,
        type=row.name,
        address=wish.address,
        username=draft.username,
        port=draft.file_port,
        jump_host=draft.jump,
        base_docker_image=wish.image,
        shared_volumes=contained,
        nvidia_docker=bool(contained and facts.nvidia.driver and engine and engine.nvidia),
        user_managed_environment=None if usual else not brings,
        python_location=None if ours else python,
        spark_master=cluster.spark_master if cluster else None,
        yarn_deploy_mode=cluster.yarn_deploy_mode if cluster else None,
    )


def _packages(project: Project, attempt: Attempt, compute: Compute, anew: bool) -> dict[str, str]:
    """Where runs get GPUs, they get the project's packages for GPUs, if it has some. A file that is there stays."""
    if compute.name in project.runconfigs() and not anew:
        return {}
    facts = Facts.from_json(attempt.draft.facts)
    has_gpus = compute.nvidia_docker if type_of(compute).contained else bool(facts.nvidia.driver)
    if not has_gpus or not (project.folder / GPU_PACKAGES).is_file():
        return {}
    if is_managed(compute):
        attempt.talk.say(f"NVIDIA GPUs detected: runs use the packages in {FOLDER}/{GPU_PACKAGES}")
    return {"CondaDependenciesFile": f"{FOLDER}/{GPU_PACKAGES}"}


def _called(old: Attachment, project: Project, name: str) -> Attachment:
    """With its name in this project, if it has one here already."""
    return replace(old, called=name) if (str(project.root), name) in old.projects else old


def _kept(draft: Attachment, old: Attachment | None, project: tuple[str, str]) -> Attachment:
    """With what is known from an earlier attach of the same machine."""
    projects = dict.fromkeys((*(old.projects if old else ()), project))
    return replace(draft, projects=tuple(projects), linger=draft.linger or bool(old and old.linger))
