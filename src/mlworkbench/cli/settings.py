"""``mlw settings …``: what this user allows for all projects."""

from __future__ import annotations

import click

from ..paths import user_paths
from ..settings import KEYS, add_setting, find_key, read_settings, remove_setting, values_of
from . import render
from .options import debugging, rendering
from .verbs import Verbs

_COLUMNS = ("setting", "value", "meaning")


@click.group(cls=Verbs, epilog="Example: mlw settings add allowed-builds pyspark")
def settings() -> None:
    """List and change user settings."""


@settings.command("list", epilog='Example: mlw settings list --query "[].value"')
@rendering
def list_settings(output: str, query: str | None) -> None:
    """List the settings of this user. Projects can neither read nor change them."""
    current = read_settings(user_paths())
    rows = [
        {"setting": key.name, "value": value, "meaning": key.summary}
        for key in KEYS.values()
        for value in values_of(current, key)
    ]
    if not rows:
        render.message(f"no settings; available: {', '.join(KEYS)}")
    render.emit(rows, output=output, query=query, columns=_COLUMNS)


@settings.command(epilog="Example: mlw settings add index-hosts packages.example.com")
@click.argument("setting")
@click.argument("value")
@debugging
def add(setting: str, value: str) -> None:
    """Add a value to a setting."""
    key = find_key(setting)
    new = add_setting(user_paths(), setting, value)
    render.message(f"{'added' if new else 'unchanged'}: {setting} {key.normalize(value)}")


@settings.command(epilog="Example: mlw settings remove allowed-builds pyspark")
@click.argument("setting")
@click.argument("value")
@debugging
def remove(setting: str, value: str) -> None:
    """Remove a value from a setting."""
    key = find_key(setting)
    there = remove_setting(user_paths(), setting, value)
    render.message(f"{'removed' if there else 'not set'}: {setting} {key.normalize(value)}")
