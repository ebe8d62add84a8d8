"""``mlw settings …``: list and change this user's settings for all projects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ..paths import UserPaths, user_paths
from ..user_settings import KEYS, add_setting, find_key, read_settings, remove_setting, values_of
from . import render
from .command_tree import LazyGroup
from .options import global_options, result_options

Command = Callable[..., Any]

_COLUMNS = ("setting", "value", "meaning")


@click.group(cls=LazyGroup, epilog="Example: mlw settings add allowed-builds pyspark")
def settings() -> None:
    """List and change user settings."""


@settings.command("list", epilog='Example: mlw settings list --query "[].value"')
@result_options
def list_settings(output: str, query: str | None) -> None:
    """List user settings.

    Projects can neither read nor change them.
    """
    current = read_settings(user_paths())
    rows = [
        {"setting": key.name, "value": value, "meaning": key.summary}
        for key in KEYS.values()
        for value in values_of(current, key)
    ]
    if not rows:
        render.message(f"no settings; available: {', '.join(KEYS)}")
    render.emit(rows, output=output, query=query, columns=_COLUMNS)


def _setting_arguments(command: Command) -> Command:
    """Add the arguments of a command that changes a setting's value."""
    return click.argument("setting")(click.argument("value")(global_options(command)))


def _change(change: Callable[[UserPaths, str, str], bool], results: tuple[str, str], setting: str, value: str) -> None:
    """Change a value. Print the first of ``results``, or the second if nothing changed."""
    key = find_key(setting)
    result = results[0] if change(user_paths(), setting, value) else results[1]
    render.message(f"{result}: {setting} {key.normalize(value)}")


@settings.command(epilog="Example: mlw settings add index-hosts packages.example.com")
@_setting_arguments
def add(setting: str, value: str) -> None:
    """Add a value to a setting."""
    _change(add_setting, ("added", "unchanged"), setting, value)


@settings.command(epilog="Example: mlw settings remove allowed-builds pyspark")
@_setting_arguments
def remove(setting: str, value: str) -> None:
    """Remove a value from a setting."""
    _change(remove_setting, ("removed", "not set"), setting, value)
