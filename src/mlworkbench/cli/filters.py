"""Which runs a list shows: the options, and the words of people turned into a Query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from .command import under
from .completion import complete_run

Function = TypeVar("Function", bound=Callable[..., Any])


def narrowing(function: Function) -> Function:
    """The options that narrow a list of runs; the command gets them as ``**wishes``."""
    options = (
        click.option(
            "--status",
            multiple=True,
            metavar="STATUS",
            help="Filter by status: Running, Completed, Failed, Canceled, … (repeatable)",
        ),
        click.option("--target", multiple=True, metavar="NAME", help="Filter by compute target (repeatable)"),
        click.option("--script", multiple=True, metavar="NAME", help="Filter by script (repeatable)"),
        click.option("--tag", multiple=True, metavar="TAG", help="Filter by tag (repeatable)"),
        click.option(
            "--text", multiple=True, metavar="TEXT", help="Search ID, name, script, tags, and note (repeatable)"
        ),
        click.option("--since", metavar="WHEN", help="Filter by submission time: 30min, 2h, 3d, 2w, or a date"),
        click.option(
            "--where", multiple=True, metavar="CONDITION", help="Filter by condition: 'loss < 0.1' (repeatable)"
        ),
        click.option("--parent", metavar="RUN", shell_complete=complete_run, help="Filter by parent run"),
        click.option("--archived", is_flag=True, help="Include archived runs"),
    )
    return under("Filters", *options)(function)


def filtering(function: Function) -> Function:
    """The options of ``history list`` that narrow and order it; the command gets them as ``**wishes``."""
    options = (click.option("--children", is_flag=True, help="Include sweep runs and nested runs"),)
    display = (
        click.option(
            "--sort", metavar="NAME", help="Sort by metric, parameter, or key; -NAME sorts in descending order"
        ),
        click.option("-L", "--limit", "-n", type=click.IntRange(min=1), metavar="N", help="Maximum number of runs"),
    )
    return narrowing(under("Filters", *options)(under("Display", *display)(function)))


def choosing_columns(function: Function) -> Function:
    """The columns of a table of runs; the command gets them as ``columns``."""
    help = "Columns to show, comma-separated, such as run_id,status,lr,loss"
    return under("Display", click.option("--columns", metavar="NAMES", help=help))(function)
