"""The tree of commands: which module holds which, and what to propose for a word that is none of them."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ..errors import EXIT_USAGE, UnknownName
from ..version import __version__
from .command import GLOBAL, Command, Headed, adopt, no_color, summary_of, under
from .renames import GONE

# Verb → module:attribute. Nothing is imported before it is asked for: `mlw --help` must be quick.
_VERBS = {
    "project": ("project:project", "Create, show, and check projects"),
    "experiment": ("experiment:experiment", "Submit, follow, and cancel runs"),
    "runconfiguration": ("runconfiguration:runconfiguration", "Create, list, and delete run configurations"),
    "computetarget": ("computetarget:computetarget", "Attach, list, show, and check compute targets"),
    "environment": ("environment:environment", "List, show, and remove environments"),
    "gpus": ("gpus:gpus", "Show GPUs and the processes using them"),
    "doctor": ("doctor_here:doctor", "Diagnose problems with this machine or a GPU"),
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
    "show": ("page:show", "Show a run (short for: history show)"),
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
# What people type instead.
_MEANT = {
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
# The same below a noun.
_MEANT_BELOW = {
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


class Verbs(Headed, click.Group):
    """A group whose commands are loaded when they are used, and which proposes the right word for a wrong one."""

    command_class = Command

    def __init__(
        self,
        *args: Any,
        verbs: Mapping[str, tuple[str, str]] | None = None,
        sections: Mapping[str, Sequence[str]] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*args, **settings)
        self._verbs = verbs or {}
        self._sections = sections or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*self._verbs, *super().list_commands(ctx)])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._verbs:
            return adopt(super().get_command(ctx, cmd_name))
        module, _, attribute = self._verbs[cmd_name][0].partition(":")
        return adopt(getattr(importlib.import_module(f"mlworkbench.cli.{module}"), attribute))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            raise UnknownWord(ctx, name, self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Whole summaries, sorted, under headings if there are some."""
        names = self.list_commands(ctx)
        widest = max(map(len, names))
        headed = {name for section in self._sections.values() for name in section}
        rest = [name for name in names if name not in headed]
        for title, section in {**self._sections, "Commands": rest}.items():
            if section:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(widest), self.summary(ctx, name)) for name in section])

    def summary(self, ctx: click.Context, name: str) -> str:
        """What a command does, in one line; without loading it if that can be helped."""
        if name in self._verbs:
            return self._verbs[name][1]
        command = self.get_command(ctx, name)
        return summary_of(command) if command else ""


class UnknownWord(UnknownName):
    """A command that does not exist."""

    exit_code = EXIT_USAGE

    def __init__(self, ctx: click.Context, name: str, known: Sequence[str]) -> None:
        gone = GONE.get(f"{ctx.command_path} {name}".partition(" ")[2])
        meant = _meant(ctx, name, known)
        super().__init__("command", name, known, f"did you mean '{meant}'?" if meant else None)
        if gone:
            self.message, self.hint = gone


def _meant(ctx: click.Context, name: str, known: Sequence[str]) -> str | None:
    """The command that was probably meant, in full."""
    # Below a noun the words of people mean something else: `history run` is no submit.
    if ctx.parent is None and name in _MEANT:
        return f"mlw {_MEANT[name]}"
    noun = "computetarget" if ctx.info_name == "target" else ctx.info_name
    below = _MEANT_BELOW.get(f"{noun} {name}")
    if below:
        return f"mlw {below}"
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"{ctx.command_path} {near[0]}"
    if name in _VERBS:
        return f"mlw {name}"
    # Another noun has it; if several do, none is likelier than the others.
    places = [noun for noun, words in _nouns().items() if name in words and noun != "target"]
    return f"mlw {places[0]} {name}" if len(places) == 1 else None


def _nouns() -> dict[str, list[str]]:
    """Which commands the nouns have: from the list for TAB, because loading them all would take long."""
    import json  # noqa: PLC0415 - needed only where somebody has erred

    from .complete import WORDS  # noqa: PLC0415

    try:
        with open(WORDS, encoding="utf-8") as file:
            tree = json.load(file)
        return {noun: list(below.get("commands", ())) for noun, below in tree["commands"].items()}
    except (OSError, ValueError, KeyError):
        return {}


@click.group(
    cls=Verbs,
    verbs=_VERBS,
    sections=_SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: mlw project create --name demo && cd demo && mlw submit train.py --lr 0.1",
)
@under(GLOBAL, click.version_option(__version__, "-V", "--version", prog_name="mlw"), no_color)
def mlw() -> None:
    """Run scripts on this machine or on remote machines, and track every run."""
