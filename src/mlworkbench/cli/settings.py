"""``mlw settings …``: what this user allows for all projects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ..paths import UserPaths, user_paths
from ..settings import KEYS, add_setting, find_key, read_settings, remove_setting, values_of
from . import render
from .options import debugging, rendering
from .verbs import Verbs

Command = Callable[..., Any]

_COLUMNS = ("setting", "value", "meaning")


@click.group(cls=Verbs, epilog="Example: mlw settings add allowed-builds pyspark")
def settings() -> None:
    """List and change user settings."""


@settings.command("list", epilog='Example: mlw settings list --query "[].value"')
@rendering
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


def _one_value(command: Command) -> Command:
    """Arguments of a command that changes one value of a setting."""
    return click.argument("setting")(click.argument("value")(debugging(command)))


def _change(change: Callable[[UserPaths, str, str], bool], words: tuple[str, str], setting: str, value: str) -> None:
    """Make the change and print the first of the words; the second if there is nothing to change."""
    key = find_key(setting)
    word = words[0] if change(user_paths(), setting, value) else words[1]
    render.message(f"{word}: {setting} {key.normalize(value)}")


@settings.command(epilog="Example: mlw settings add index-hosts packages.example.com")
@_one_value
def add(setting: str, value: str) -> None:
    """Add a value to a setting."""
    _change(add_setting, ("added", "unchanged"), setting, value)


@settings.command(epilog="Example: mlw settings remove allowed-builds pyspark")
@_one_value
def remove(setting: str, value: str) -> None:
    """Remove a value from a setting."""
    _change(remove_setting, ("removed", "not set"), setting, value)
