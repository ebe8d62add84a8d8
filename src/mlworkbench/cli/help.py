"""``mlw help``: print the help of a command, like ``--help``."""

from __future__ import annotations

import click

from .command_tree import UnknownCommand
from .options import global_options


@click.command("help", epilog="Example: mlw help history list")
@click.argument("arguments", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
@global_options
def help_on(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Show help for a command."""
    context = ctx.find_root()
    for name in arguments:
        if not isinstance(context.command, click.Group):
            break
        command = context.command.get_command(context, name)
        if command is None:
            raise UnknownCommand(context, name, context.command.list_commands(context))
        context = click.Context(command, parent=context, info_name=name)
    click.echo(context.get_help())
