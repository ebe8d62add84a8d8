"""Attach a machine: connect, check, and only then write files."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from ..attachments import Attachment, Attachments, with_route
from ..config.config_files import create_target
from ..config.project_files import FOLDER, GPU_PACKAGES
from ..config.project_folder import Project
from ..container_consents import Consent
from ..environments.selection import is_managed
from ..errors import LaunchError
from ..hosts import first_contact
from ..hosts.host_facts import Facts
from ..hosts.replies import Reply
from ..hosts.ssh_host import SshHost
from ..model import Compute
from ..paths import UserPaths
from ..remote.shared.failpoint import failpoint
from ..targets.cluster_check import cluster_findings, scheduler_has_gpus
from ..targets.consent_check import resolve_consents
from ..targets.machine_check import ERROR, WARNING, Finding, machine_findings
from ..targets.machine_probe import probe_machine
from ..targets.types import Feature, compute_type, type_of
from . import ssh_login
from .attach_cluster import attach_local_cluster, compute_of
from .attach_report import AttachReport
from .attach_request import AttachRequest, Prompter, complete, confirm_route
from .attach_transaction import AttachTransaction, describe_key, remove_dead_drafts


def attach(
    project: Project, request: AttachRequest, paths: UserPaths, prompter: Prompter, size: Callable[[float], str]
) -> AttachReport:
    """Attach a machine to the project as a target. A failure leaves both machines unchanged."""
    typed = request
    request, existing = complete(project, request)
    assert request.kind
    if request.address is None:
        return attach_local_cluster(project, request, paths, existing)
    who = first_contact.resolve(request.address, request.username, request.port, request.jump)
    attachments = Attachments(paths)
    old = attachments.find(request.address, who.username, who.port, request.jump)
    if old is None:  # no second confirmation if this user already attached the machine by the same route
        confirm_route(typed, request, with_route(who.identity, request.jump or who.default_way), prompter)
    old = old and _with_target_name(old, project, request.name)
    dead = remove_dead_drafts(attachments)
    draft = _draft(attachments, request, who)
    transaction = AttachTransaction(draft, paths, prompter, old)
    files = _Files(project, request.name)
    try:
        transaction.draft, methods = ssh_login.verify_host(draft, request.host_key, prompter, old)
        if not ssh_login.reuse_login(transaction, request):
            ssh_login.log_in(transaction, request, methods)
        findings, compute, has_gpus = _examine_machine(
            transaction, request, size, _has_managed_packages(project), old.allowed if old else ()
        )
        failpoint("attaching")
        settings = {} if existing else _packages(project, transaction, compute, has_gpus, request.replace)
        written = () if existing else create_target(project.folder, compute, settings, force=request.replace)
        failpoint("files-written")
        unused = transaction.unused(dead)
        first_contact.close_connection(transaction.draft)  # `save` renames the folder of this connection
        saved = attachments.save(_merged_with_old(transaction.draft, old, (str(project.root), request.name)))
    except BaseException:
        transaction.undo()
        files.restore()
        raise
    transaction.tidy(saved, unused, dead)
    return AttachReport(
        tuple(str(path) for path in written),
        tuple(findings),
        request.kind,
        saved.where,
        describe_key(saved),
        saved.host_key,
    )


def _draft(attachments: Attachments, request: AttachRequest, who: first_contact.Resolved) -> Attachment:
    return attachments.draft(
        who.identity,
        address=request.address,
        username=who.username,
        port=who.port,
        jump=request.jump,
        default_port=who.default_port,
        default_way=who.default_way,
    )


class _Files:
    """Original state of the target's ``.compute`` and ``.runconfig`` files, for a rollback."""

    def __init__(self, project: Project, name: str) -> None:
        self._before: dict[Path, bytes | str | None] = {}  # str: target of a symlink, possibly a user's file
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


def _examine_machine(
    transaction: AttachTransaction,
    request: AttachRequest,
    size: Callable[[float], str],
    managed: bool,
    allowed: tuple[Consent, ...],
) -> tuple[list[Finding], Compute, bool]:
    """Return warnings about the machine, the new target, and whether runs can have GPUs.

    Raise an error if the machine cannot execute runs.
    """
    host = SshHost(transaction.draft, transaction.paths)
    transaction.connect(host)
    facts, link = probe_machine(host, "python3")
    location = None
    if _enable_lingering(host, facts, transaction):
        facts, link = probe_machine(host, "python3")
    if not (facts.script and facts.script.executable):  # no `python3` on the target: use the agent's interpreter
        location = facts.python.executable
        facts, link = probe_machine(host, location)
    allowed, places = resolve_consents(host, allowed, request.consents)
    attachment = replace(host.attachment, facts=asdict(facts), linger=transaction.linger)
    transaction.draft = replace(attachment, allowed=allowed, places=places)
    compute = _compute(request, transaction.draft, location, managed)
    findings = machine_findings(facts, compute, None, size, link)
    findings += cluster_findings(compute, host)
    has_gpus = bool(facts.nvidia.driver) or scheduler_has_gpus(compute, host)
    has_gpus = compute.nvidia_docker if type_of(compute).contained else has_gpus
    host.close()
    wrong = [finding for finding in findings if finding.state == ERROR]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        what = f"{host.identity} cannot be a target of type {request.kind}: {wrong[0].found}{more}"
        raise LaunchError(what, wrong[0].hint, more=wrong[0].more or "unfit-target")
    return [finding for finding in findings if finding.state == WARNING], compute, has_gpus


def _enable_lingering(host: SshHost, facts: Facts, transaction: AttachTransaction) -> bool:
    """Enable lingering, and report it, if the machine kills all of a user's processes at logout."""
    if not (facts.logind.running and facts.logind.kill_user_processes) or facts.logind.linger:
        return False
    transaction.linger = True
    reply = Reply(host.identity, host.ask({"do": "linger", "on": True}))
    if not reply.ok:
        transaction.linger = False
        raise LaunchError(
            f"{host.identity} ends all user processes at logout (KillUserProcesses), and lingering cannot be enabled:"
            f" {reply.problem}",
            f"ask its administrator to run: loginctl enable-linger {host.attachment.username}",
            more="logout-ends-runs",
        )
    transaction.prompter.say(
        "enabled lingering so that runs survive logout (loginctl enable-linger); detach reverts it"
    )
    return True


def _has_managed_packages(project: Project) -> bool:
    """Return whether mlw manages the packages of target ``local``; it then does so for new targets, too."""
    return "local" in project.computes() and project.compute("local").user_managed_environment is False


def _compute(request: AttachRequest, draft: Attachment, python: str | None, managed: bool) -> Compute:
    facts = Facts.from_json(draft.facts)
    row = compute_type(request.kind or "")
    contained, usual = row.contained, row.has(Feature.MANAGED_ENVIRONMENTS)
    ours = usual or managed
    engine = facts.docker or facts.podman
    return replace(
        compute_of(request),
        address=request.address,
        username=draft.username,
        port=draft.file_port,
        jump_host=draft.jump,
        base_docker_image=request.image,
        shared_volumes=contained,
        nvidia_docker=bool(contained and facts.nvidia.driver and engine and engine.nvidia),
        user_managed_environment=None if usual else not managed,
        python_location=None if ours else python,
    )


def _packages(
    project: Project, transaction: AttachTransaction, compute: Compute, has_gpus: bool, replace_existing: bool
) -> dict[str, str]:
    """Return the settings that select the project's GPU packages, or {} if they do not apply."""
    if compute.name in project.runconfigs() and not replace_existing:
        return {}
    if not has_gpus or not (project.folder / GPU_PACKAGES).is_file():
        return {}
    if is_managed(compute):
        transaction.prompter.say(f"NVIDIA GPUs detected: runs use the packages in {FOLDER}/{GPU_PACKAGES}")
    return {"CondaDependenciesFile": f"{FOLDER}/{GPU_PACKAGES}"}


def _with_target_name(old: Attachment, project: Project, name: str) -> Attachment:
    """Return ``old``, with ``called`` set if this project uses the machine under ``name``."""
    return replace(old, called=name) if (str(project.root), name) in old.projects else old


def _merged_with_old(draft: Attachment, old: Attachment | None, project: tuple[str, str]) -> Attachment:
    """Return the draft, merged with the projects and lingering state of the earlier attachment."""
    projects = dict.fromkeys((*(old.projects if old else ()), project))
    return replace(draft, projects=tuple(projects), linger=draft.linger or bool(old and old.linger))
