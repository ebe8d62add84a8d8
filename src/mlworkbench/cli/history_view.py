"""``mlw history view …``: save, list, show, rename, and delete views of the run list."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from ..errors import UsageError
from ..paths import user_paths
from ..report.run_filters import make_query
from ..sanitize import plain
from ..saved_views import SavedViews, View
from . import render
from .command_tree import LazyGroup
from .completion_types import complete_view
from .filters import columns_option, group_option, list_options
from .options import get_project_or_none, global_options, project_option, result_options

Function = TypeVar("Function", bound=Callable[..., Any])

# Options on the command line and the setting of the view that each replaces.
_REPLACED = {"group": "columns", "columns": "group", "children": "top_level", "parent": "top_level"}


@click.group(cls=LazyGroup, epilog="Example: mlw history view save best --where 'accuracy > 0.9' --sort=-accuracy")
def view() -> None:
    """Save and list views of the run list."""


def open_views(folder: str | None, all_projects: bool) -> SavedViews:
    """Return the views of the current project, or those of all projects outside of one."""
    project = None if all_projects else get_project_or_none(folder)
    return SavedViews(user_paths(), project.id if project else None)


def apply_view(options: dict[str, Any], name: str, views: SavedViews, *, is_table: bool) -> dict[str, Any]:
    """Return the options with the settings of a view. Options on the command line take precedence."""
    context = click.get_current_context()
    given = {key for key in options if context.get_parameter_source(key) is not ParameterSource.DEFAULT}
    given |= {_REPLACED[key] for key in given & set(_REPLACED)}
    given |= set() if is_table else {"columns"}  # columns apply to tables only
    saved = views.get(name)
    return {**options, **{item.name: getattr(saved, item.name) for item in fields(View) if item.name not in given}}


def _scope_options(function: Function) -> Function:
    all_projects = click.option("-a", "--all", "all_projects", is_flag=True, help="Use the views for all projects")
    return all_projects(project_option(function))


@view.command(epilog="Example: mlw history view save best --where 'accuracy > 0.9' --sort=-accuracy -L 20")
@click.argument("name")
@click.option("--force", is_flag=True, help="Replace an existing view")
@list_options
@group_option
@columns_option
@_scope_options
@global_options
def save(name: str, force: bool, folder: str | None, all_projects: bool, **options: Any) -> None:
    """Save a view of the run list.

    Takes the options of 'mlw history list'. Views belong to you and the current project.
    Outside of a project, and with --all, they belong to lists of all projects.
    """
    if options["group"] is not None and options["columns"] is not None:
        raise UsageError("--columns and --group cannot be used together", "omit one of them")
    make_query(None, options)  # reports invalid conditions

    def update(existing: View) -> View:
        return View(**options, chart=existing.chart)

    open_views(folder, all_projects).save(name, update, replace=force)
    shown = plain(name.strip())
    render.message(f"saved view {shown}; open it with 'mlw history list --view {shlex.quote(shown)}'")


@view.command("list", epilog="Example: mlw history view list -o json")
@_scope_options
@result_options
def list_views(folder: str | None, all_projects: bool, output: str, query: str | None) -> None:
    """List saved views."""
    views = open_views(folder, all_projects).all()
    if not views and output == "table":
        render.message("no saved views")
        render.message("hint: save one: mlw history view save NAME --where CONDITION")
        return
    rows = [{"name": name, "options": shlex.join(saved.arguments())} for name, saved in views.items()]
    render.emit(rows, output=output, query=query, columns={"name": "Name", "options": "Options"})


@view.command(epilog="Example: mlw history view show best")
@click.argument("name", shell_complete=complete_view)
@_scope_options
@result_options
def show(name: str, folder: str | None, all_projects: bool, output: str, query: str | None) -> None:
    """Show the settings of a view."""
    saved = open_views(folder, all_projects).get(name)
    command = ["mlw", "history", "list", *(["--all"] if all_projects else []), *saved.arguments()]
    record = {"name": name, **saved.to_json(), "command": shlex.join(command)}
    render.emit(record, output=output, query=query)


@view.command(epilog="Example: mlw history view rename best 'best of November'")
@click.argument("name", shell_complete=complete_view)
@click.argument("new_name")
@_scope_options
@global_options
def rename(name: str, new_name: str, folder: str | None, all_projects: bool) -> None:
    """Rename a view."""
    open_views(folder, all_projects).rename(name, new_name)
    render.message(f"view {plain(name)} is now named {plain(new_name.strip())}")


@view.command(epilog="Example: mlw history view delete best")
@click.argument("name", shell_complete=complete_view)
@_scope_options
@global_options
def delete(name: str, folder: str | None, all_projects: bool) -> None:
    """Delete a view.

    Runs are not affected.
    """
    open_views(folder, all_projects).delete(name)
    render.message(f"deleted view {plain(name)}")
