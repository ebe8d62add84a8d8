"""All that may be typed, as data for ``complete``: made from the commands by ``scripts/generate-reference``."""

from __future__ import annotations

import json
from typing import Any

import click

from .completion import Kind
from .verbs import Verbs, mlw

# Parameters that are the same thing in every command, whether that declares it or not.
_BY_NAME = {
    "run": "run",
    "runs": "run",
    "by_option": "run",
    "target": "target",
    "folder": "dir",
    "path": "dir",
    "place": "dir",
    "link": "file",
    "to": "file",
}


def words_text() -> str:
    return json.dumps(_words(mlw, None), indent=1, ensure_ascii=False) + "\n"


def _words(command: click.Command, above: click.Context | None) -> dict[str, Any]:
    ctx = click.Context(command, parent=above, info_name=command.name)
    params = command.get_params(ctx)
    options: dict[str, Any] = {}
    for one in params:
        if isinstance(one, click.Option) and not one.hidden:
            kind = "flag" if one.is_flag or one.count else _kind(one)
            options |= {name: [kind, _line(one.help)] for name in (*one.opts, *one.secondary_opts)}
    tree: dict[str, Any] = {"help": command.get_short_help_str(80), "options": options}
    if isinstance(command, click.Group):
        return {**tree, "commands": {name: _below(command, name, ctx) for name in command.list_commands(ctx)}}
    takes = getattr(command, "takes", None)
    if takes is not None:  # all behind it belongs to the user's script
        return {**tree, "arguments": [takes], "foreign": True}
    arguments = [one for one in params if isinstance(one, click.Argument)]
    return {**tree, "arguments": [_kind(one) for one in arguments], "repeats": any(one.nargs < 0 for one in arguments)}


def _below(group: click.Group, name: str, ctx: click.Context) -> dict[str, Any]:
    command = group.get_command(ctx, name)
    assert command is not None  # it is on the list
    found = _words(command, ctx)
    return {**found, "help": group.summary(ctx, name)} if isinstance(group, Verbs) else found


def _kind(one: click.Parameter) -> str | list[str]:
    if isinstance(one.type, click.Choice):
        return [str(choice) for choice in one.type.choices]
    declared = getattr(one, "_custom_shell_complete", None)
    return str(declared) if isinstance(declared, Kind) else _BY_NAME.get(one.name or "", "any")


def _line(text: str | None) -> str:
    return " ".join((text or "").split())
