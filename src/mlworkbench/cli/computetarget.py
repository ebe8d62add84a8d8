"""``mlw computetarget …``: the files that say where code runs."""

from __future__ import annotations

import os
from dataclasses import asdict, replace

import click

from ..attach.attempt import key_in_words
from ..attachments import Attachments
from ..config.keys import COMPUTE
from ..config.project import Project
from ..consents import MOUNT, NETWORK, of_kind
from ..environments.existing import is_search, look_at_python
from ..errors import ConfigError, LaunchError, MlwError
from ..hosts.contact import drop
from ..hosts.facts import Facts
from ..hosts.host import Host
from ..hosts.ssh import SshHost
from ..model import Compute, Interpreter
from ..paths import UserPaths, user_paths
from ..report import units
from ..targets.check import Finding, is_fit, judge
from ..targets.opening import open_target
from ..targets.package_source import package_source
from ..targets.remote import find_attachment, look, not_attached, outside
from ..targets.sparkcheck import spark_findings
from ..targets.types import Feature, is_elsewhere, needs_attach, type_of
from . import render
from .completion import complete_target
from .findings import show_findings
from .gpus import section
from .options import in_project, rendering, the_project
from .verbs import Verbs

_COLUMNS = ("name", "type", "address", "attached", "identity", "run_configurations")


@click.group(
    cls=Verbs,
    epilog="Example: mlw computetarget attach remotedocker --name my_dsvm --address 10.0.0.7 --username ada",
    verbs={
        "attach": ("attach:attach", "Attach a machine or Spark cluster over SSH"),
        "detach": ("attach:detach", "Detach a compute target"),
        "update": ("attach:update", "Change which mounts and networks a target allows"),
        "reset-key": ("attach:reset_key", "Replace the SSH key of a target"),
    },
)
def computetarget() -> None:
    """Attach, list, show, and check compute targets."""


@computetarget.command("list", epilog="Example: mlw computetarget list -o json")
@in_project
@rendering
def list_targets(folder: str | None, output: str, query: str | None) -> None:
    """List compute targets.

    The table shows whether remote targets are attached. JSON contains only the names.
    """
    here = the_project(folder)
    if not here.computes():
        render.message("no compute targets")
    rows: object = _rows(here) if output == "table" else here.computes()
    render.emit(rows, output=output, query=query, columns=_COLUMNS)


def _rows(here: Project) -> list[dict[str, str | None]]:
    users: dict[str, list[str]] = {}
    for name in here.runconfigs():
        try:
            users.setdefault(here.runconfig(name).target, []).append(name)
        except ConfigError as error:
            render.warn(error.message)
    rows: list[dict[str, str | None]] = []
    paths = user_paths()
    for name in here.computes():
        found = _compute(here, name)
        attachment = find_attachment(found, paths) if found else None
        rows.append(
            {
                "name": name,
                "type": found.type if found else None,
                "address": found.address if found else None,
                "attached": ("yes" if attachment else "no") if found and needs_attach(found) else None,
                "identity": attachment.where if attachment else found.spark_master if found else None,
                "run_configurations": ", ".join(users.get(name, ())),
            }
        )
    return rows


def _compute(here: Project, name: str) -> Compute | None:
    try:
        return here.compute(name)
    except ConfigError as error:
        render.warn(error.message)  # the others are listed all the same
        return None


@computetarget.command(epilog="Example: mlw computetarget show docker")
@click.argument("name", shell_complete=complete_target)
@in_project
@rendering
def show(name: str, folder: str | None, output: str, query: str | None) -> None:
    """Show the settings, machine, and GPUs of a target.

    Settings include defaults. The GPUs are queried each time; a machine that cannot be reached is shown without them.
    """
    here = the_project(folder)
    found = here.compute(name)
    tidy = output == "table" and query is None
    values = asdict(found)
    facts: dict[str, object] = {"name": found.name}
    row = type_of(found)
    for key in COMPUTE:
        if key.field and (values[key.field] is not None or row.has_key(key)):
            facts[key.name] = values[key.field]
    facts.update(found.settings)
    if found.password:
        facts["password"] = "(reference from the original, not used)"
    if needs_attach(found):
        facts.update(_attached(found, user_paths(), tidy))
    if facts.get("attached") is not False:
        facts.update(section(lambda: open_target(found, user_paths()).host, tidy))
    render.emit(facts, output=output, query=query)


def _attached(compute: Compute, paths: UserPaths, tidy: bool) -> dict[str, object]:
    """What this user knows of the machine, without asking it."""
    found = find_attachment(compute, paths)
    if found is None:
        render.message(f"hint: {not_attached(compute).hint}")
        return {"attached": False}
    known: dict[str, object] = {
        "attached": True,
        "identity": found.where,
        "key": key_in_words(found),
        "hostKey": found.host_key,
        "allowedMounts": [one.shown for one in of_kind(found.allowed, MOUNT)],
        "allowedNetworks": [one.shown for one in of_kind(found.allowed, NETWORK)],
        "linger": found.linger,
        "projects": [list(one) for one in found.projects],
    }
    if not tidy:
        return {**known, "facts": dict(found.facts)}
    findings = judge(Facts.from_json(found.facts), compute, None, units.size)
    known["projects"] = ", ".join(path for path, _ in found.projects)
    return {**known, **{f"{one.what} (last check)": one.found for one in findings}}


@computetarget.command(epilog="Example: mlw computetarget check local")
@click.argument("name", shell_complete=complete_target)
@in_project
@rendering
def check(name: str, folder: str | None, output: str, query: str | None) -> int:
    """Check the machine of a compute target.

    Lists what is missing and how to fix it. A Python that the project specifies (pythonLocation) is located but not
    started. Exits with 75 if a requirement of runs is missing, and with 69 if the machine cannot be reached.
    """
    here, paths = the_project(folder), user_paths()
    compute = here.compute(name)
    elsewhere = is_elsewhere(compute)
    findings = _check_there(compute, paths) if elsewhere else _check_here(here, compute, paths)
    show_findings(findings, output, query)
    return 0 if is_fit(findings) else LaunchError.exit_code


def _check_here(here: Project, compute: Compute, paths: UserPaths) -> list[Finding]:
    host = open_target(compute, paths).host
    python = _python(here, compute, paths)
    facts = host.facts()
    packages = package_source(facts, compute, os.environ)
    return [*judge(facts, compute, python, units.size), *packages, *_spark(compute, host)]


def _check_there(compute: Compute, paths: UserPaths) -> list[Finding]:
    """By a new connection: what has changed for the user there, such as a group, shows to those who log in anew."""
    host = open_target(compute, paths).host
    if not isinstance(host, SshHost):
        return judge(host.facts(), compute, None, units.size)  # nobody attached it: this refuses
    drop(host.attachment)
    python = None if type_of(compute).contained else compute.python_location or "python3"
    named = not is_search(compute.python_location)  # by the project: it may be any program, and is not started
    facts, link = look(host, python, outside(os.environ), named=named)
    spark = _spark(compute, host)
    host.close()
    Attachments(paths).save(replace(host.attachment, facts=asdict(facts)))  # for the next submit
    return [*judge(facts, compute, None, units.size, link), *package_source(facts, compute, os.environ), *spark]


def _spark(compute: Compute, host: Host) -> list[Finding]:
    return spark_findings(compute, host.ask) if type_of(compute).has(Feature.SPARK) else []


def _python(here: Project, compute: Compute, paths: UserPaths) -> Interpreter | MlwError:
    try:
        return look_at_python(compute.python_location, os.environ, here.root, paths.interpreters)
    except ConfigError as error:
        return error
