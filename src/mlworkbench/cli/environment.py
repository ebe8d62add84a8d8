"""``mlw environment …``: list, show, and remove environments on this machine or on a target."""

from __future__ import annotations

import os
import time
from datetime import datetime, timezone
from typing import Any

import click

from ..environments.environment_list import SHORT_DIGEST, Details, Environment, Inventory, RemovalResult
from ..errors import LaunchError, UsageError
from ..hosts.host import Host
from ..paths import user_paths
from ..report import units
from . import render
from .command_tree import LazyGroup
from .completion_types import complete_target
from .options import confirm, get_project, project_option, result_options

_DAY = 86400.0
_COLUMNS = ("environment", "python", "packages", "size", "own", "built", "last_used", "runs", "state")
# Common reasons for keeping environments, which are not printed. An older mlw on a target returns the first one.
_UNPRINTED_REASONS = ("it was used lately", "it was used recently", "used recently")
# Record key → heading.
_HEADINGS = {
    "bytes": "size",
    "own_bytes": "own size",
    "built_utc": "built (UTC)",
    "last_used_utc": "last used (UTC)",
    "used_now_by": "in use by",
    "used_by": "used by",
    "python_from": "Python from",
    "python_home": "Python folder",
    "cuda": "CUDA",
    "sound": "intact",
}
_OTHER_KINDS = {
    "leftover": "leftovers of failed builds",
    "cache": "package caches",
    "package": "uploaded packages",
    "tool": "tools and unused Python installations",
}
_target_option = click.option(
    "-t", "--target", metavar="NAME", shell_complete=complete_target, help="Compute target (default: this machine)"
)


@click.group(cls=LazyGroup, epilog="Example: mlw environment list -t my_dsvm")
def environment() -> None:
    """List, show, and remove environments."""


@environment.command("list", epilog="Example: mlw environment list -t my_dsvm")
@_target_option
@project_option
@result_options
def list_environments(target: str | None, folder: str | None, output: str, query: str | None) -> None:
    """List environments with size and last use.

    Environments share files with each other and with the package caches. `size` is the total size, `own` is the space
    that removing the environment frees.
    """
    inventory = Inventory(_host(target, folder))
    environments = inventory.all()
    if output == "table" and query is None:
        if environments:
            render.emit([_row(item) for item in environments], output=output, columns=_COLUMNS)
        else:
            render.message("no environments")
        count, size = inventory.leftovers
        if count:
            render.message(
                f"hint: failed builds left {units.size(size)};"
                f" run 'mlw environment remove --unused{_target_args(target)}'"
            )
        return
    render.emit([_record(item) for item in environments], output=output, query=query)


@environment.command(epilog="Example: mlw environment show 3f2a9c -t my_dsvm --verify")
@click.argument("digest")
@_target_option
@click.option("--verify", is_flag=True, help="Verify every file against the record of its package")
@project_option
@result_options
def show(digest: str, target: str | None, verify: bool, folder: str | None, output: str, query: str | None) -> int:
    """Show the Python, packages, and runs of an environment.

    DIGEST can be any unique prefix. Exits with 75 if the environment is damaged; the next run that needs it rebuilds
    it.
    """
    details = Inventory(_host(target, folder)).show(digest, verify)
    facts = _details_record(details)
    packages = [
        {
            "name": package.name,
            "version": package.version,
            "build": package.build,
            "kind": package.kind,
            "from": package.source,
        }
        for package in details.packages
    ]
    if output == "table" and query is None:
        render.emit({**_details_table(details, facts), "packages": len(packages)}, output=output)
        if packages:
            render.emit(packages, output=output)
        for line in details.damage or ():
            render.warn(line)
    else:
        render.emit({**facts, "packages": packages}, output=output, query=query)
    return 0 if details.intact and not details.damage else LaunchError.exit_code


@environment.command(epilog="Example: mlw environment remove --unused --days 30 -t my_dsvm")
@click.argument("digests", nargs=-1, metavar="[DIGEST]...")
@_target_option
@click.option("--unused", is_flag=True, help="Remove all environments not in use and leftovers of failed builds")
@click.option(
    "--days", type=click.FloatRange(min=0), metavar="N", help="With --unused, only if unused for N days (default: 0)"
)
@click.option(
    "--caches", is_flag=True, help="Also remove downloaded packages and tools; the next build downloads them again"
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation")
@project_option
@result_options
def remove(**options: Any) -> None:
    """Remove environments.

    DIGEST can be any unique prefix. Environments that are in use or being built are kept. A run that needs a removed
    environment builds it again.
    """
    unused, caches, target = options["unused"], options["caches"], options["target"]
    if not options["digests"] and not unused and not caches:
        raise UsageError("no environments specified", "specify a DIGEST, or use --unused or --caches")
    if options["days"] is not None and not unused:
        raise UsageError("--days requires --unused", "add --unused")
    inventory = Inventory(_host(target, options["folder"]))
    digests = inventory.find(options["digests"]) if options["digests"] else []
    selection: dict[str, Any] = {"unused": unused, "idle": (options["days"] or 0) * _DAY, "caches": caches}
    dry_run = options["dry_run"]
    result = inventory.remove(digests, dry_run=True, **selection)
    if not dry_run and (result.environments or result.others):
        if not options["yes"]:
            _confirm(result, target)
        result = inventory.remove(digests, dry_run=False, **selection)
    _print_removed(result, options["output"], options["query"], dry_run, target)


def _confirm(result: RemovalResult, target: str | None) -> None:
    names = ", ".join(digest[:SHORT_DIGEST] for digest, _ in result.environments)
    items = [f"environments {names}"] if names else []
    items += [_OTHER_KINDS.get(kind, kind) for kind in result.others]
    location = f" on {target}" if target else ""
    confirm(f"Remove {', '.join(items)}{location} ({units.size(result.size)})?")


def _print_removed(result: RemovalResult, output: str, query: str | None, dry_run: bool, target: str | None) -> None:
    rows: list[dict[str, Any]] = [
        {"kind": "environment", "name": digest, "things": 1, "bytes": size} for digest, size in result.environments
    ]
    rows += [
        {"kind": _OTHER_KINDS.get(kind, kind), "name": None, "things": count, "bytes": size}
        for kind, (count, size) in result.others.items()
    ]
    if output == "table" and query is None:
        shown = [{**row, "name": (row["name"] or "")[:SHORT_DIGEST], "bytes": units.size(row["bytes"])} for row in rows]
        if shown:
            render.emit(shown, output=output)
    else:
        render.emit(rows, output=output, query=query)
    for problem in result.problems:
        render.warn(f"could not remove {problem}")
    location = f" from {target}" if target else ""
    size = units.size(result.size)
    render.message(f"{size} can be removed{location}" if dry_run else f"removed {size}{location}")
    for entry in result.kept:
        if not entry.named and entry.why not in _UNPRINTED_REASONS:
            render.message(f"environment {entry.name[:SHORT_DIGEST]} is kept: {_format_reason(entry.why, entry.runs)}")
    refused = [entry for entry in result.kept if entry.named]
    if refused:
        message = "; ".join(
            (
                f"{entry.name} are kept: "
                if entry.name == "caches"
                else f"environment {entry.name[:SHORT_DIGEST]} is kept: "
            )
            + _format_reason(entry.why, entry.runs)
            for entry in refused
        )
        run = next((entry.runs[-1] for entry in refused if entry.runs), None)
        raise UsageError(
            message, f"wait for the run, or cancel it with 'mlw cancel {run}'" if run else "try again later"
        )


def _format_reason(reason: str, runs: tuple[str, ...]) -> str:
    remaining = f", and {len(runs) - 3} more" if len(runs) > 3 else ""
    return reason + (f" ({'run' if len(runs) == 1 else 'runs'} {', '.join(runs[-3:])}{remaining})" if runs else "")


def _target_args(target: str | None) -> str:
    return f" -t {target}" if target else ""


def _host(target: str | None, folder: str | None) -> Host:
    paths = user_paths()
    if target is None:
        from ..hosts.local_host import LocalHost  # noqa: PLC0415 - import only the host that is used

        return LocalHost(paths.root, os.environ)
    from ..targets.target_factory import open_target  # noqa: PLC0415

    return open_target(get_project(folder).compute(target), paths).host


# -- records and table rows ----------------------------------------------------------------------------------


def _record(environment: Environment) -> dict[str, Any]:
    return {
        "digest": environment.digest,
        "python": environment.python,
        "platform": environment.platform,
        "packages": environment.packages,
        "bytes": environment.size,
        "own_bytes": environment.own_size,
        "built_utc": _format_utc(environment.built),
        "last_used_utc": _format_utc(environment.used),
        "runs": environment.runs,
        "state": environment.state,
        "used_now_by": list(environment.active_runs),
        "path": environment.path,
    }


def _row(environment: Environment) -> dict[str, Any]:
    now = time.time()
    return {
        "environment": environment.short,
        "python": environment.python,
        "packages": environment.packages,
        "size": None if environment.size is None else units.size(environment.size),
        "own": None if environment.own_size is None else units.size(environment.own_size),
        "built": None if environment.built is None else units.age(now - environment.built),
        "last_used": None if environment.used is None else units.age(now - environment.used),
        "runs": environment.runs,
        "state": environment.state
        + (f" by {environment.active_runs[-1]}" if environment.active_runs and not environment.building else ""),
    }


def _details_record(details: Details) -> dict[str, Any]:
    return {
        **_record(details.environment),
        "python_from": details.interpreter,
        "python_home": details.home,
        "glibc": details.glibc,
        "cuda": details.cuda,
        "channels": details.sources("conda"),
        "indexes": details.sources("pip"),
        "used_by": list(details.used_by),
        "sound": details.intact,
        "damage": None if details.damage is None else list(details.damage),
    }


def _details_table(details: Details, facts: dict[str, Any]) -> dict[str, Any]:
    list_keys = ("channels", "indexes", "used_by", "used_now_by")
    shown = {**facts, **{name: ", ".join(facts[name]) or None for name in list_keys}}
    for name in ("built_utc", "last_used_utc"):
        shown[name] = facts[name][:19].replace("T", " ") if facts[name] else None
    shown["bytes"], shown["own_bytes"] = units.size(facts["bytes"] or 0), units.size(facts["own_bytes"] or 0)
    shown["sound"] = "yes" if details.intact and not details.damage else "no: damaged"
    if not details.python_runs:
        shown["sound"] = "no: its Python is missing or does not start"
    if details.damage is not None:
        shown["damage"] = f"{len(details.damage)} files" if details.damage else "none: all files verified"
    return {_HEADINGS.get(name, name): value for name, value in shown.items() if value is not None}


def _format_utc(timestamp: float | None) -> str | None:
    return None if timestamp is None else datetime.fromtimestamp(timestamp, timezone.utc).isoformat(timespec="seconds")
