"""Completion data: commands, options, and arguments as JSON, written by ``scripts/generate-reference``."""

from __future__ import annotations

import json
from typing import Any

import click

from .command_tree import LazyGroup, mlw
from .completion_types import CompletionKind

# Parameter name → kind of value, for parameters that do not declare a kind.
_KINDS_BY_NAME = {
    "run": "run",
    "runs": "run",
    "run_option": "run",
    "target": "target",
    "folder": "dir",
    "path": "dir",
    "directory": "dir",
    "link": "file",
    "to": "file",
}


def completion_json() -> str:
    return json.dumps(_describe(mlw, None), indent=1, ensure_ascii=False) + "\n"


def _describe(command: click.Command, parent: click.Context | None) -> dict[str, Any]:
    ctx = click.Context(command, parent=parent, info_name=command.name)
    params = command.get_params(ctx)
    options: dict[str, Any] = {}
    for option in params:
        if isinstance(option, click.Option) and not option.hidden:
            kind = "flag" if option.is_flag or option.count else _value_kind(option)
            options |= {name: [kind, _single_line(option.help)] for name in (*option.opts, *option.secondary_opts)}
    tree: dict[str, Any] = {"help": command.get_short_help_str(80), "options": options}
    if isinstance(command, click.Group):
        return {
            **tree,
            "commands": {name: _describe_subcommand(command, name, ctx) for name in command.list_commands(ctx)},
        }
    script_kind = getattr(command, "script_kind", None)
    if script_kind is not None:  # the remaining arguments belong to the script
        return {**tree, "arguments": [script_kind], "takes_script": True}
    arguments = [param for param in params if isinstance(param, click.Argument)]
    return {
        **tree,
        "arguments": [_value_kind(argument) for argument in arguments],
        "repeats": any(argument.nargs < 0 for argument in arguments),
    }


def _describe_subcommand(group: click.Group, name: str, ctx: click.Context) -> dict[str, Any]:
    command = group.get_command(ctx, name)
    assert command is not None  # list_commands returned this name
    entry = _describe(command, ctx)
    return {**entry, "help": group.summary(ctx, name)} if isinstance(group, LazyGroup) else entry


def _value_kind(parameter: click.Parameter) -> str | list[str]:
    if isinstance(parameter.type, click.Choice):
        return [str(choice) for choice in parameter.type.choices]
    declared = getattr(parameter, "_custom_shell_complete", None)
    return str(declared) if isinstance(declared, CompletionKind) else _KINDS_BY_NAME.get(parameter.name or "", "any")


def _single_line(text: str | None) -> str:
    return " ".join((text or "").split())
