"""Options that filter, sort, and lay out lists of runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from .command import option_section
from .completion_types import complete_run, complete_view

Function = TypeVar("Function", bound=Callable[..., Any])


def filter_options(function: Function) -> Function:
    """Add the options that filter runs. The command receives them as keyword arguments."""
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
    return option_section("Filters", *options)(function)


def list_options(function: Function) -> Function:
    """Add the filter and sort options of ``history list``, passed as keyword arguments."""
    options = (click.option("--children", is_flag=True, help="Include sweep runs and nested runs"),)
    display = (
        click.option(
            "--sort", metavar="NAME", help="Sort by metric, parameter, or key; -NAME sorts in descending order"
        ),
        click.option("-L", "--limit", "-n", type=click.IntRange(min=1), metavar="N", help="Maximum number of runs"),
    )
    return filter_options(option_section("Filters", *options)(option_section("Display", *display)(function)))


def group_option(function: Function) -> Function:
    """Add ``--group``. The command receives it as ``group``."""
    help = "Group by parameter, tags.NAME, or key; show mean metrics"
    return option_section("Display", click.option("--group", metavar="NAME", help=help))(function)


def view_option(function: Function) -> Function:
    """Add ``--view``. The command receives it as ``view_name``."""
    help = "Saved view to open; other options override its settings"
    option = click.option("--view", "view_name", metavar="NAME", shell_complete=complete_view, help=help)
    return option_section("Display", option)(function)


def columns_option(function: Function) -> Function:
    """Add ``--columns``. The command receives it as ``columns``."""
    help = "Columns to show, comma-separated, such as run_id,status,lr,loss"
    return option_section("Display", click.option("--columns", metavar="NAMES", help=help))(function)
