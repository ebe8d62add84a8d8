"""The command ``mlw``: finds the verb, runs it, turns every failure into a sentence and an exit code."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from ..errors import EXIT_DETACHED, EXIT_USAGE, MlwError, UnknownName, UsageError
from ..version import __version__
from . import render
from .renames import translate

# Verb → module:attribute. Nothing is imported before it is asked for: `mlw --help` must be quick.
_VERBS = {
    "project": ("project:project", "Create, show and check projects"),
    "experiment": ("experiment:experiment", "Submit scripts, see and stop what runs"),
    "runconfiguration": ("runconfiguration:runconfiguration", "Create, list and delete run configurations"),
    "computetarget": ("computetarget:computetarget", "List and show compute targets"),
    "history": ("history:history", "Look at past runs"),
    "asset": ("asset:asset", "Fetch and list what was promoted from runs"),
    "completion": ("completion:completion", "Print the completion script for a shell"),
    "submit": ("submit:submit", "Run a script (short for: experiment submit)"),
    "logs": ("experiment:logs", "Show the output of a run (short for: experiment logs)"),
    "ps": ("experiment:ps", "List what runs now (short for: experiment ps)"),
    "cancel": ("experiment:cancel", "Stop a run (short for: experiment cancel)"),
    "status": ("experiment:status", "Tell how a run stands (short for: experiment status)"),
}
# What people type instead.
_MEANT = {
    "run": "submit",
    "start": "submit",
    "stop": "cancel",
    "kill": "cancel",
    "log": "logs",
    "list": "history list",
    "show": "history info",
    "init": "project init",
    "new": "project create",
    "help": "--help",
}


class Verbs(click.Group):
    """A group whose commands are loaded when they are used, and which proposes the right word for a wrong one."""

    def __init__(self, *args: Any, verbs: dict[str, tuple[str, str]] | None = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._verbs = verbs or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._verbs, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._verbs:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._verbs[cmd_name][0].partition(":")
        loaded: click.Command = getattr(importlib.import_module(f"mlworkbench.cli.{module}"), attribute)
        return loaded

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            raise UnknownWord(name, self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name in self.list_commands(ctx):
            short = self._verbs[name][1] if name in self._verbs else ""
            command = None if short else self.get_command(ctx, name)
            rows.append((name, short or (command.get_short_help_str(80) if command else "")))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class UnknownWord(UnknownName):
    """A command that does not exist."""

    exit_code = EXIT_USAGE

    def __init__(self, name: str, known: Sequence[str]) -> None:
        meant = _MEANT.get(name)
        super().__init__("command", name, known, f"did you mean 'mlw {meant}'?" if meant else None)


@click.group(
    cls=Verbs,
    verbs=_VERBS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: mlw project create --name demo && cd demo && mlw submit train.py --lr 0.1",
)
@click.version_option(__version__, prog_name="mlw")
def mlw() -> None:
    """Run scripts on this machine or on others, and keep a history worth searching."""


def main() -> None:
    """Entry point: exits with the verb's code, never with a traceback."""
    try:
        with render.quiet_pipe():
            code = _run(sys.argv[1:])
    except render.OutputClosed as closed:
        code = int(str(closed.code))
    except KeyboardInterrupt:
        code = EXIT_DETACHED
        if os.name != "posix":
            sys.exit(code)
        # Die of the signal itself: a shell ends its loop only then, and reports 130 all the same.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    sys.exit(code)


def _run(words: list[str]) -> int:
    words, hint = translate(words)
    if hint:
        render.message(hint)
    try:
        answer = mlw.main(args=words, prog_name="mlw", standalone_mode=False)
        return answer if isinstance(answer, int) else 0
    except MlwError as error:
        return _failed(error)
    except click.exceptions.NoArgsIsHelpError as asked:
        click.echo(asked.format_message())
        return 0
    except click.exceptions.Exit as left:
        return left.exit_code
    except click.ClickException as error:
        return _failed(_as_usage(error))
    except click.Abort:  # how click says it
        raise KeyboardInterrupt from None
    except Exception as error:  # noqa: BLE001 - the last stop: no traceback reaches a user
        return _failed(_as_bug(error))


def _failed(error: MlwError) -> int:
    if os.environ.get("MLW_DEBUG"):
        sys.stderr.write(traceback.format_exc())
    render.fail(error)
    return error.exit_code


def _as_usage(error: click.ClickException) -> UsageError:
    context = getattr(error, "ctx", None)
    hint = f"see: {context.command_path} --help" if context else None
    near = getattr(error, "possibilities", None)
    if near:
        hint = f"did you mean {' or '.join(sorted(near))}?"
    return UsageError(error.format_message().rstrip("."), hint)


def _as_bug(error: Exception) -> MlwError:
    what = str(error) or type(error).__name__
    return MlwError(
        f"mlw itself failed: {type(error).__name__}: {what}",
        "runs are not affected, see them with mlw ps; the option --debug shows where it failed",
    )
