"""``mlw computetarget …``: list, show, and check compute targets."""

from __future__ import annotations

import os
from dataclasses import asdict, replace

import click

from ..attach.attach_transaction import describe_key
from ..attachments import Attachments
from ..config.keys import COMPUTE
from ..config.project_folder import Project
from ..container_consents import MOUNT, NETWORK, of_kind
from ..environments.existing import inspect_python, is_path_search
from ..errors import ConfigError, LaunchError, MlwError
from ..hosts.first_contact import retire_connection
from ..hosts.host_facts import Facts
from ..hosts.ssh_host import SshHost
from ..model import Compute, Interpreter
from ..paths import UserPaths, user_paths
from ..report import units
from ..targets.cluster_check import cluster_findings
from ..targets.machine_check import Finding, is_fit, machine_findings
from ..targets.machine_probe import package_host, probe_machine
from ..targets.open_remote import find_attachment, not_attached
from ..targets.package_source_check import package_findings
from ..targets.target_factory import open_target
from ..targets.types import is_elsewhere, needs_attach, type_of
from . import render
from .command_tree import LazyGroup
from .completion_types import complete_target
from .finding_tables import show_findings
from .gpus import gpu_section
from .options import get_project, project_option, result_options

_COLUMNS = ("name", "type", "address", "attached", "identity", "run_configurations")


@click.group(
    cls=LazyGroup,
    epilog="Example: mlw computetarget attach remotedocker --name my_dsvm --address 10.0.0.7 --username ada",
    lazy_commands={
        "attach": ("attach:attach", "Attach a machine or cluster over SSH"),
        "detach": ("attach:detach", "Detach a compute target"),
        "update": ("attach:update", "Change which mounts and networks a target allows"),
        "reset-key": ("attach:reset_key", "Replace the SSH key of a target"),
    },
)
def computetarget() -> None:
    """Attach, list, show, and check compute targets."""


@computetarget.command("list", epilog="Example: mlw computetarget list -o json")
@project_option
@result_options
def list_targets(folder: str | None, output: str, query: str | None) -> None:
    """List compute targets.

    The table shows whether remote targets are attached. JSON contains only the names.
    """
    project = get_project(folder)
    if not project.computes():
        render.message("no compute targets")
    rows: object = _list_rows(project) if output == "table" else project.computes()
    render.emit(rows, output=output, query=query, columns=_COLUMNS)


def _list_rows(project: Project) -> list[dict[str, str | None]]:
    configurations: dict[str, list[str]] = {}
    for name in project.runconfigs():
        try:
            configurations.setdefault(project.runconfig(name).target, []).append(name)
        except ConfigError as error:
            render.warn(error.message)
    rows: list[dict[str, str | None]] = []
    paths = user_paths()
    for name in project.computes():
        compute = _read_compute(project, name)
        attachment = find_attachment(compute, paths) if compute else None
        rows.append(
            {
                "name": name,
                "type": compute.type if compute else None,
                "address": compute.address if compute else None,
                "attached": ("yes" if attachment else "no") if compute and needs_attach(compute) else None,
                "identity": attachment.where if attachment else compute.spark_master if compute else None,
                "run_configurations": ", ".join(configurations.get(name, ())),
            }
        )
    return rows


def _read_compute(project: Project, name: str) -> Compute | None:
    try:
        return project.compute(name)
    except ConfigError as error:
        render.warn(error.message)  # still list the other targets
        return None


@computetarget.command(epilog="Example: mlw computetarget show docker")
@click.argument("name", shell_complete=complete_target)
@project_option
@result_options
def show(name: str, folder: str | None, output: str, query: str | None) -> None:
    """Show the settings, machine, and GPUs of a target.

    Settings include defaults. The GPUs are queried each time; a machine that cannot be reached is shown without them.
    """
    project = get_project(folder)
    compute = project.compute(name)
    is_table = output == "table" and query is None
    values = asdict(compute)
    facts: dict[str, object] = {"name": compute.name}
    compute_type = type_of(compute)
    for key in COMPUTE:
        if key.field and (values[key.field] not in (None, ()) or compute_type.has_key(key)):
            facts[key.name] = values[key.field]
    facts.update(compute.settings)
    if compute.password:
        facts["password"] = "(reference from the original, not used)"
    if needs_attach(compute):
        facts.update(_attachment_facts(compute, user_paths(), is_table))
    if facts.get("attached") is not False:
        facts.update(gpu_section(lambda: open_target(compute, user_paths()), is_table))
    render.emit(facts, output=output, query=query)


def _attachment_facts(compute: Compute, paths: UserPaths, is_table: bool) -> dict[str, object]:
    """Return the recorded facts about the machine, without connecting to it."""
    attachment = find_attachment(compute, paths)
    if attachment is None:
        render.message(f"hint: {not_attached(compute, type_of(compute)).hint}")
        return {"attached": False}
    facts: dict[str, object] = {
        "attached": True,
        "identity": attachment.where,
        "key": describe_key(attachment),
        "hostKey": attachment.host_key,
        "allowedMounts": [consent.shown for consent in of_kind(attachment.allowed, MOUNT)],
        "allowedNetworks": [consent.shown for consent in of_kind(attachment.allowed, NETWORK)],
        "linger": attachment.linger,
        "projects": [list(entry) for entry in attachment.projects],
    }
    if not is_table:
        return {**facts, "facts": dict(attachment.facts)}
    findings = machine_findings(Facts.from_json(attachment.facts), compute, None, units.size)
    facts["projects"] = ", ".join(path for path, _ in attachment.projects)
    return {**facts, **{f"{finding.what} (last check)": finding.found for finding in findings}}


@computetarget.command(epilog="Example: mlw computetarget check local")
@click.argument("name", shell_complete=complete_target)
@project_option
@result_options
def check(name: str, folder: str | None, output: str, query: str | None) -> int:
    """Check the machine of a compute target.

    Lists what is missing and how to fix it. A Python that the project specifies (pythonLocation) is located but not
    started. Exits with 75 if a requirement of runs is missing, and with 69 if the machine cannot be reached.
    """
    project, paths = get_project(folder), user_paths()
    compute = project.compute(name)
    is_remote = is_elsewhere(compute)
    findings = _check_remote(compute, paths) if is_remote else _check_local(project, compute, paths)
    show_findings(findings, output, query)
    return 0 if is_fit(findings) else LaunchError.exit_code


def _check_local(project: Project, compute: Compute, paths: UserPaths) -> list[Finding]:
    host = open_target(compute, paths).host
    python = _find_python(project, compute, paths)
    facts = host.facts()
    packages = package_findings(facts, compute, os.environ)
    return [*machine_findings(facts, compute, python, units.size), *packages, *cluster_findings(compute, host)]


def _check_remote(compute: Compute, paths: UserPaths) -> list[Finding]:
    """Check a remote machine over a new connection.

    Some changes, such as a new group membership, apply only to new logins.
    """
    host = open_target(compute, paths).host
    if not isinstance(host, SshHost):
        return machine_findings(host.facts(), compute, None, units.size)  # not attached: facts() raises
    retire_connection(host.attachment)
    python = None if type_of(compute).contained else compute.python_location or "python3"
    # A Python interpreter that the project specifies may be any program, so it is not started.
    is_specified = not is_path_search(compute.python_location)
    facts, link = probe_machine(host, python, package_host(os.environ), named=is_specified)
    cluster = cluster_findings(compute, host)
    host.close()
    Attachments(paths).save(replace(host.attachment, facts=asdict(facts)))  # the next submit uses the recorded facts
    return [
        *machine_findings(facts, compute, None, units.size, link),
        *package_findings(facts, compute, os.environ),
        *cluster,
    ]


def _find_python(project: Project, compute: Compute, paths: UserPaths) -> Interpreter | MlwError:
    try:
        return inspect_python(compute.python_location, os.environ, project.root, paths.interpreters)
    except ConfigError as error:
        return error
