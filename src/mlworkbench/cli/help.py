"""``mlw help``: the help of a command, as its ``--help`` prints it."""

from __future__ import annotations

import click

from .options import debugging
from .verbs import UnknownWord


@click.command("help", epilog="Example: mlw help history list")
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
@debugging
def help_on(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show help for a command."""
    at = ctx.find_root()
    for word in words:
        if not isinstance(at.command, click.Group):
            break
        below = at.command.get_command(at, word)
        if below is None:
            raise UnknownWord(at, word, at.command.list_commands(at))
        at = click.Context(below, parent=at, info_name=word)
    click.echo(at.get_help())
