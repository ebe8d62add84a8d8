"""``mlw completion``: the script for a shell, and what it proposes. Quick, and silent whatever goes wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from ..errors import MlwError
from . import render
from .options import debugging

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

SHELLS = ("bash", "zsh", "fish")
_RUNS = 200  # newest first: the one that is meant is among them
_SCRIPTS = 200
_VARIABLE = "_MLW_COMPLETE"
_INSTALL = {
    "bash": 'add to ~/.bashrc:  eval "$(mlw completion bash)"',
    "zsh": 'add to ~/.zshrc:  eval "$(mlw completion zsh)"',
    "fish": "mlw completion fish > ~/.config/fish/completions/mlw.fish",
}


@click.command(epilog="Example: mlw completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(SHELLS))
@debugging
def completion(shell: str) -> None:
    """Print the completion script for a shell."""
    kind = get_completion_class(shell)
    assert kind is not None  # click has all of SHELLS
    root = click.get_current_context().find_root().command
    # Not the class's own source(): that of bash starts a bash, to ask for its version.
    text = ShellComplete.source(kind(root, {}, "mlw", _VARIABLE))
    render.pour(text.encode())
    if render.terminal(sys.stdout):
        render.message(f"hint: {_INSTALL[shell]}")


def _silently(find: Callable[[str | None], Sequence[tuple[str, str]]]) -> Complete:
    """A completion from a function that lists (word, help); asked about --project if that was typed."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            words = find(ctx.params.get("folder"))
        except (MlwError, OSError, ValueError):
            return []  # nobody can read a message in the middle of a line
        return [CompletionItem(word, help=text) for word, text in words if word.startswith(incomplete)]

    return complete


def _runs(folder: str | None) -> list[tuple[str, str]]:
    from ..history.store import History  # noqa: PLC0415 - not needed for most completions
    from ..paths import user_paths  # noqa: PLC0415
    from .options import maybe_project  # noqa: PLC0415

    project = maybe_project(folder)
    runs = History(user_paths()).list(project.id if project else None, hidden=True, limit=_RUNS)
    return [(run.id, f"{run.status.value} {run.spec.entry.name}") for run in runs]


def _targets(folder: str | None) -> list[tuple[str, str]]:
    from .options import the_project  # noqa: PLC0415

    return [(name, "") for name in the_project(folder).computes()]


def _runconfigs(folder: str | None) -> list[tuple[str, str]]:
    from .options import the_project  # noqa: PLC0415

    return [(name, "") for name in the_project(folder).runconfigs()]


def _scripts(folder: str | None) -> list[tuple[str, str]]:
    """Python files of the project, those at its top first; not below folders that hide or are environments."""
    from .options import the_project  # noqa: PLC0415

    root = str(the_project(folder).root)
    found: list[str] = []
    for place, folders, names in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith((".", "__")) and not os.path.exists(os.path.join(place, name, "pyvenv.cfg"))
        )
        found += [os.path.relpath(os.path.join(place, name), root) for name in sorted(names) if name.endswith(".py")]
        if len(found) >= _SCRIPTS:
            break
    return [(path, "") for path in found]


complete_run = _silently(_runs)
complete_target = _silently(_targets)
complete_runconfig = _silently(_runconfigs)
complete_script = _silently(_scripts)


def complete_submit(command: click.Command, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """For ``submit``, whose script is no argument of click's: scripts until one stands there, then files."""
    if ctx.params.get("words"):
        return [CompletionItem(incomplete, type="file")]
    if incomplete.startswith("-"):
        return click.Command.shell_complete(command, ctx, incomplete)
    parameter = next(iter(command.params))
    return complete_script(ctx, parameter, incomplete)
