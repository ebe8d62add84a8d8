"""``mlw experiment clean``: what can go from our folder on this machine."""

from __future__ import annotations

from typing import Any

import click

from ..history.store import History
from ..paths import user_paths
from ..runfiles.clean import KINDS, Cleaner, Find, check_ours
from . import render, units
from .options import rendering


@click.command(epilog="Example: mlw experiment clean, then: mlw experiment clean --yes")
@click.option("--dry-run", is_flag=True, help="Only show (default).")
@click.option("-y", "--yes", is_flag=True, help="Remove it.")
@rendering
def clean(dry_run: bool, yes: bool, output: str, query: str | None) -> None:
    """Show what can go, with its bytes, and remove it with --yes. Runs, outputs and assets always stay."""
    paths = user_paths()
    check_ours(str(paths.home), str(paths.database))
    cleaner = Cleaner(History(paths))
    found = cleaner.find()
    done = cleaner.remove(found) if yes and not dry_run else None
    rows = _rows(found if done is None else done)
    tidy = output == "table" and query is None
    shown = [{**row, "bytes": units.size(row["bytes"])} for row in rows] if tidy else rows
    render.emit(shown, output=output, query=query)
    for note in cleaner.notes:
        render.warn(note)
    total = units.size(sum(one.size for one in (found if done is None else done)))
    if done is None:
        render.message(f"{total} can go" + ("; remove it with: mlw experiment clean --yes" if found else ""))
    else:
        render.message(f"{total} removed from {paths.home}")


def _rows(found: list[Find]) -> list[dict[str, Any]]:
    return [
        {
            "kind": kind,
            "things": sum(one.kind == kind for one in found),
            "bytes": sum(one.size for one in found if one.kind == kind),
        }
        for kind in KINDS
    ]
