"""Which runs a list shows: the options, and the words of people turned into a Query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from .completion import complete_run

Function = TypeVar("Function", bound=Callable[..., Any])


def narrowing(function: Function) -> Function:
    """The options that narrow a list of runs; the command gets them as ``**wishes``."""
    options = (
        click.option("--status", multiple=True, metavar="STATUS", help="Only with this status: Completed, Failed, …"),
        click.option("--target", multiple=True, metavar="NAME", help="Only of this compute target."),
        click.option("--script", multiple=True, metavar="NAME", help="Only of this script."),
        click.option("--tag", multiple=True, metavar="TAG", help="Only with this tag."),
        click.option("--text", multiple=True, metavar="WORDS", help="Only with this in id, name, script, tags, note …"),
        click.option("--since", metavar="WHEN", help="Only since: 30min, 2h, 3d, 2w, or a date."),
        click.option("--where", multiple=True, metavar="CONDITION", help="Only where this fits: 'loss < 0.1'."),
        click.option("--parent", metavar="RUN", shell_complete=complete_run, help="Only children of this run."),
        click.option("--archived", is_flag=True, help="Also those that were archived."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def filtering(function: Function) -> Function:
    """The options of ``history list`` that narrow and order it; the command gets them as ``**wishes``."""
    options = (
        click.option("--children", is_flag=True, help="Also the children of sweeps, and runs inside other runs."),
        click.option("--sort", metavar="NAME", help="By this metric, parameter or key; -NAME has the largest first."),
        click.option("-n", "--limit", type=click.IntRange(min=1), help="Only the first so many."),
    )
    for option in reversed(options):
        function = option(function)
    return narrowing(function)
