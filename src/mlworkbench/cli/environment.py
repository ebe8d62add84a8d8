"""``mlw environment …``: the environments that were built for runs, on this machine or on a target."""

from __future__ import annotations

import os
import time
from datetime import datetime, timezone
from typing import Any

import click

from ..environments.inventory import SHORT, Details, Environment, Inventory, Removed
from ..errors import LaunchError, UsageError
from ..hosts.host import Host
from ..paths import user_paths
from ..report import units
from . import render
from .completion import complete_target
from .options import confirm, in_project, rendering, the_project
from .verbs import Verbs

_DAY = 86400.0
_COLUMNS = ("environment", "python", "packages", "size", "own", "built", "last_used", "runs", "state")
# Reasons for which most environments are kept: not worth a line. The first is that of targets with an older mlw.
_RECENTLY = ("it was used lately", "it was used recently", "used recently")
# Keys of a record as a table shows them.
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
_OTHERS = {
    "leftover": "leftovers of failed builds",
    "cache": "package caches",
    "package": "uploaded packages",
    "tool": "tools and unused Python installations",
}
_on_target = click.option(
    "-t", "--target", metavar="NAME", shell_complete=complete_target, help="Compute target (default: this machine)"
)


@click.group(cls=Verbs, epilog="Example: mlw environment list -t my_dsvm")
def environment() -> None:
    """List, show, and remove environments."""


@environment.command("list", epilog="Example: mlw environment list -t my_dsvm")
@_on_target
@in_project
@rendering
def list_environments(target: str | None, folder: str | None, output: str, query: str | None) -> None:
    """List environments with size and last use.

    Environments share files with each other and with the package caches. `size` is the total size, `own` is the space
    that removing the environment frees.
    """
    stock = Inventory(_host(target, folder))
    found = stock.all()
    if output == "table" and query is None:
        if found:
            render.emit([_row(one) for one in found], output=output, columns=_COLUMNS)
        else:
            render.message("no environments")
        count, size = stock.leftovers
        if count:
            render.message(
                f"hint: failed builds left {units.size(size)}; run 'mlw environment remove --unused{_on(target)}'"
            )
        return
    render.emit([_record(one) for one in found], output=output, query=query)


@environment.command(epilog="Example: mlw environment show 3f2a9c -t my_dsvm --verify")
@click.argument("digest")
@_on_target
@click.option("--verify", is_flag=True, help="Verify every file against the record of its package")
@in_project
@rendering
def show(digest: str, target: str | None, verify: bool, folder: str | None, output: str, query: str | None) -> int:
    """Show the Python, packages, and runs of an environment.

    DIGEST can be any unique prefix. Exits with 75 if the environment is damaged; the next run that needs it rebuilds
    it.
    """
    found = Inventory(_host(target, folder)).show(digest, verify)
    facts = _facts(found)
    packages = [
        {"name": one.name, "version": one.version, "build": one.build, "kind": one.kind, "from": one.source}
        for one in found.packages
    ]
    if output == "table" and query is None:
        render.emit({**_tidy(found, facts), "packages": len(packages)}, output=output)
        if packages:
            render.emit(packages, output=output)
        for line in found.damage or ():
            render.warn(line)
    else:
        render.emit({**facts, "packages": packages}, output=output, query=query)
    return 0 if found.sound and not found.damage else LaunchError.exit_code


@environment.command(epilog="Example: mlw environment remove --unused --days 30 -t my_dsvm")
@click.argument("digests", nargs=-1, metavar="[DIGEST]...")
@_on_target
@click.option("--unused", is_flag=True, help="Remove all environments not in use and leftovers of failed builds")
@click.option(
    "--days", type=click.FloatRange(min=0), metavar="N", help="With --unused, only if unused for N days (default: 0)"
)
@click.option(
    "--caches", is_flag=True, help="Also remove downloaded packages and tools; the next build downloads them again"
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation")
@in_project
@rendering
def remove(**asked: Any) -> None:
    """Remove environments.

    DIGEST can be any unique prefix. Environments that are in use or being built are kept. A run that needs a removed
    environment builds it again.
    """
    unused, caches, target = asked["unused"], asked["caches"], asked["target"]
    if not asked["digests"] and not unused and not caches:
        raise UsageError("no environments specified", "specify a DIGEST, or use --unused or --caches")
    if asked["days"] is not None and not unused:
        raise UsageError("--days requires --unused", "add --unused")
    stock = Inventory(_host(target, asked["folder"]))
    digests = stock.find(asked["digests"]) if asked["digests"] else []
    wanted: dict[str, Any] = {"unused": unused, "idle": (asked["days"] or 0) * _DAY, "caches": caches}
    dry = asked["dry_run"]
    found = stock.remove(digests, dry_run=True, **wanted)
    if not dry and (found.environments or found.others):
        if not asked["yes"]:
            _confirm(found, target)
        found = stock.remove(digests, dry_run=False, **wanted)
    _tell(found, asked["output"], asked["query"], dry, target)


def _confirm(found: Removed, target: str | None) -> None:
    names = ", ".join(digest[:SHORT] for digest, _ in found.environments)
    things = [f"environments {names}"] if names else []
    things += [_OTHERS.get(kind, kind) for kind in found.others]
    there = f" on {target}" if target else ""
    confirm(f"Remove {', '.join(things)}{there} ({units.size(found.size)})?")


def _tell(found: Removed, output: str, query: str | None, dry: bool, target: str | None) -> None:
    rows: list[dict[str, Any]] = [
        {"kind": "environment", "name": digest, "things": 1, "bytes": size} for digest, size in found.environments
    ]
    rows += [
        {"kind": _OTHERS.get(kind, kind), "name": None, "things": count, "bytes": size}
        for kind, (count, size) in found.others.items()
    ]
    if output == "table" and query is None:
        shown = [{**row, "name": (row["name"] or "")[:SHORT], "bytes": units.size(row["bytes"])} for row in rows]
        if shown:
            render.emit(shown, output=output)
    else:
        render.emit(rows, output=output, query=query)
    for problem in found.problems:
        render.warn(f"could not remove {problem}")
    there = f" from {target}" if target else ""
    size = units.size(found.size)
    render.message(f"{size} can be removed{there}" if dry else f"removed {size}{there}")
    for one in found.kept:
        if not one.named and one.why not in _RECENTLY:
            render.message(f"environment {one.name[:SHORT]} is kept: {_why(one.why, one.runs)}")
    refused = [one for one in found.kept if one.named]
    if refused:
        what = "; ".join(
            (f"{one.name} are kept: " if one.name == "caches" else f"environment {one.name[:SHORT]} is kept: ")
            + _why(one.why, one.runs)
            for one in refused
        )
        run = next((one.runs[-1] for one in refused if one.runs), None)
        raise UsageError(what, f"wait for the run, or cancel it with 'mlw cancel {run}'" if run else "try again later")


def _why(why: str, runs: tuple[str, ...]) -> str:
    more = f", and {len(runs) - 3} more" if len(runs) > 3 else ""
    return why + (f" ({'run' if len(runs) == 1 else 'runs'} {', '.join(runs[-3:])}{more})" if runs else "")


def _on(target: str | None) -> str:
    return f" -t {target}" if target else ""


def _host(target: str | None, folder: str | None) -> Host:
    paths = user_paths()
    if target is None:
        from ..hosts.local import LocalHost  # noqa: PLC0415 - each way loads its own

        return LocalHost(paths.root, os.environ)
    from ..targets.opening import open_target  # noqa: PLC0415

    return open_target(the_project(folder).compute(target), paths).host


# -- as records and for people -----------------------------------------------------------------------


def _record(one: Environment) -> dict[str, Any]:
    return {
        "digest": one.digest,
        "python": one.python,
        "platform": one.platform,
        "packages": one.packages,
        "bytes": one.size,
        "own_bytes": one.own,
        "built_utc": _utc(one.built),
        "last_used_utc": _utc(one.used),
        "runs": one.runs,
        "state": one.state,
        "used_now_by": list(one.going),
        "path": one.path,
    }


def _row(one: Environment) -> dict[str, Any]:
    now = time.time()
    return {
        "environment": one.short,
        "python": one.python,
        "packages": one.packages,
        "size": None if one.size is None else units.size(one.size),
        "own": None if one.own is None else units.size(one.own),
        "built": None if one.built is None else units.age(now - one.built),
        "last_used": None if one.used is None else units.age(now - one.used),
        "runs": one.runs,
        "state": one.state + (f" by {one.going[-1]}" if one.going and not one.building else ""),
    }


def _facts(found: Details) -> dict[str, Any]:
    return {
        **_record(found.environment),
        "python_from": found.interpreter,
        "python_home": found.home,
        "glibc": found.glibc,
        "cuda": found.cuda,
        "channels": found.sources("conda"),
        "indexes": found.sources("pip"),
        "used_by": list(found.used_by),
        "sound": found.sound,
        "damage": None if found.damage is None else list(found.damage),
    }


def _tidy(found: Details, facts: dict[str, Any]) -> dict[str, Any]:
    lists = ("channels", "indexes", "used_by", "used_now_by")
    shown = {**facts, **{name: ", ".join(facts[name]) or None for name in lists}}
    for name in ("built_utc", "last_used_utc"):
        shown[name] = facts[name][:19].replace("T", " ") if facts[name] else None
    shown["bytes"], shown["own_bytes"] = units.size(facts["bytes"] or 0), units.size(facts["own_bytes"] or 0)
    shown["sound"] = "yes" if found.sound and not found.damage else "no: damaged"
    if not found.python_runs:
        shown["sound"] = "no: its Python is missing or does not start"
    if found.damage is not None:
        shown["damage"] = f"{len(found.damage)} files" if found.damage else "none: all files verified"
    return {_HEADINGS.get(name, name): value for name, value in shown.items() if value is not None}


def _utc(moment: float | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, timezone.utc).isoformat(timespec="seconds")
