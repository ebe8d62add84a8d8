"""Command tree: the modules that contain the commands, and suggestions for unknown commands."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ..errors import EXIT_USAGE, UnknownName
from ..version import __version__
from .command import (
    GLOBAL_SECTION,
    Command,
    SectionedCommand,
    as_mlw_command,
    command_summary,
    no_color,
    option_section,
)
from .former_commands import REMOVED_COMMANDS

# Command → (module:attribute, summary). Modules are imported on first use to keep `mlw --help` fast.
_COMMANDS = {
    "project": ("project:project", "Create, show, and check projects"),
    "experiment": ("experiment:experiment", "Submit, follow, and cancel runs"),
    "runconfiguration": ("runconfiguration:runconfiguration", "Create, list, and delete run configurations"),
    "computetarget": ("computetarget:computetarget", "Attach, list, show, and check compute targets"),
    "environment": ("environment:environment", "List, show, and remove environments"),
    "gpus": ("gpus:gpus", "Show GPUs and the processes using them"),
    "doctor": ("doctor:doctor", "Diagnose problems with this machine or a GPU"),
    "explain": ("explain:explain", "Explain an error and how to fix it"),
    "help": ("help:help_on", "Show help for a command"),
    "history": ("history:history", "List, compare, and manage runs"),
    "ui": ("ui:ui", "Open ML Workbench in the browser"),
    "settings": ("settings:settings", "List and change user settings"),
    "asset": ("asset:asset", "List and download promoted outputs"),
    "completion": ("completion_script:completion", "Print the completion script for a shell"),
    "submit": ("submit:submit", "Run a script (short for: experiment submit)"),
    "rerun": ("rerun:rerun", "Submit a run again"),
    "logs": ("experiment:logs", "Show the output of a run (short for: experiment logs)"),
    "ls": ("history:list_runs", "List runs (short for: history list)"),
    "ps": ("experiment:ps", "List active runs (short for: experiment ps)"),
    "show": ("run_page:show", "Show a run (short for: history show)"),
    "cancel": ("experiment:cancel", "Cancel a run (short for: experiment cancel)"),
    "status": ("experiment:status", "Show run status (short for: experiment status)"),
    "target": ("computetarget:computetarget", "Manage compute targets (short for: computetarget)"),
}
_SECTIONS = {
    "Common commands": ("cancel", "logs", "ls", "ps", "rerun", "show", "status", "submit"),
    "Runs": ("asset", "experiment", "history"),
    "Projects and targets": ("computetarget", "environment", "project", "runconfiguration", "target"),
    "Diagnostics": ("doctor", "explain", "gpus"),
    "Other commands": ("completion", "help", "settings", "ui"),
}
# Unknown command → suggested command.
_SUGGESTIONS = {
    "again": "rerun",
    "resubmit": "rerun",
    "retry": "rerun",
    "run": "submit",
    "start": "submit",
    "stop": "cancel",
    "kill": "cancel",
    "log": "logs",
    "list": "ls",
    "last": "history last",
    "info": "history info",
    "best": "history best",
    "compare": "history compare",
    "metrics": "history metrics",
    "tag": "history tag",
    "init": "project init",
    "new": "project create",
    "prepare": "experiment prepare",
    "check": "computetarget check",
    "clean": "experiment clean",
    "config": "settings",
    "env": "environment",
    "envs": "environment list",
}
# Unknown subcommand → suggested command.
_SUBCOMMAND_SUGGESTIONS = {
    "computetarget add": "computetarget attach",
    "computetarget create": "computetarget attach",
    "computetarget delete": "computetarget detach",
    "computetarget remove": "computetarget detach",
    "environment delete": "environment remove",
    "experiment delete": "history remove",
    "experiment list": "history list",
    "experiment run": "experiment submit",
    "experiment start": "experiment submit",
    "experiment stop": "experiment cancel",
    "history delete": "history remove",
    "project check": "project validate",
    "project list": "history list --all",
    "runconfiguration remove": "runconfiguration delete",
}


class LazyGroup(SectionedCommand, click.Group):
    """Group that imports its commands on first use and suggests corrections for misspelled names."""

    command_class = Command

    def __init__(
        self,
        *args: Any,
        lazy_commands: Mapping[str, tuple[str, str]] | None = None,
        sections: Mapping[str, Sequence[str]] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*args, **settings)
        self._lazy_commands = lazy_commands or {}
        self._sections = sections or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*self._lazy_commands, *super().list_commands(ctx)])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy_commands:
            return as_mlw_command(super().get_command(ctx, cmd_name))
        module, _, attribute = self._lazy_commands[cmd_name][0].partition(":")
        return as_mlw_command(getattr(importlib.import_module(f"mlworkbench.cli.{module}"), attribute))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            raise UnknownCommand(ctx, name, self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sorted commands with their full summaries, in sections if the group has any."""
        names = self.list_commands(ctx)
        widest = max(map(len, names))
        in_sections = {name for section in self._sections.values() for name in section}
        rest = [name for name in names if name not in in_sections]
        for title, section in {**self._sections, "Commands": rest}.items():
            if section:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(widest), self.summary(ctx, name)) for name in section])

    def summary(self, ctx: click.Context, name: str) -> str:
        """Return the one-line summary of a command, without importing the command if possible."""
        if name in self._lazy_commands:
            return self._lazy_commands[name][1]
        command = self.get_command(ctx, name)
        return command_summary(command) if command else ""


class UnknownCommand(UnknownName):
    """Error for a command that does not exist."""

    exit_code = EXIT_USAGE

    def __init__(self, ctx: click.Context, name: str, available: Sequence[str]) -> None:
        removed = REMOVED_COMMANDS.get(f"{ctx.command_path} {name}".partition(" ")[2])
        suggestion = _suggest_command(ctx, name, available)
        super().__init__("command", name, available, f"did you mean '{suggestion}'?" if suggestion else None)
        if removed:
            self.message, self.hint = removed


def _suggest_command(ctx: click.Context, name: str, available: Sequence[str]) -> str | None:
    """Return the full command that the user probably meant."""
    # The general suggestions apply to top-level commands only: `history run` does not mean submit.
    if ctx.parent is None and name in _SUGGESTIONS:
        return f"mlw {_SUGGESTIONS[name]}"
    group = "computetarget" if ctx.info_name == "target" else ctx.info_name
    subcommand = _SUBCOMMAND_SUGGESTIONS.get(f"{group} {name}")
    if subcommand:
        return f"mlw {subcommand}"
    close = difflib.get_close_matches(name, available, n=1)
    if close:
        return f"{ctx.command_path} {close[0]}"
    if name in _COMMANDS:
        return f"mlw {name}"
    # Suggest another group only if it is the only one that has this command.
    groups = [group for group, commands in _load_subcommands().items() if name in commands and group != "target"]
    return f"mlw {groups[0]} {name}" if len(groups) == 1 else None


def _load_subcommands() -> dict[str, list[str]]:
    """Return the commands of each group from the completion data, because imports are slow."""
    import json  # noqa: PLC0415 - only unknown commands need it

    from .completer import DATA_FILE  # noqa: PLC0415

    try:
        with open(DATA_FILE, encoding="utf-8") as file:
            tree = json.load(file)
        return {group: list(entry.get("commands", ())) for group, entry in tree["commands"].items()}
    except (OSError, ValueError, KeyError):
        return {}


@click.group(
    cls=LazyGroup,
    lazy_commands=_COMMANDS,
    sections=_SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: mlw project create --name demo && cd demo && mlw submit train.py --lr 0.1",
)
@option_section(GLOBAL_SECTION, click.version_option(__version__, "-V", "--version", prog_name="mlw"), no_color)
def mlw() -> None:
    """Run scripts on this machine or on remote machines, and track every run."""
