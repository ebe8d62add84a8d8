"""The class of all commands: options under headings in the help, and short forms that were given up."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])
Decorator = Callable[[Any], Any]

COMMON, GLOBAL = "Common options", "Global options"


def under(heading: str, *options: Decorator) -> Callable[[Function], Function]:
    """These options, below this heading in the help."""

    def decorate(function: Function) -> Function:
        known = len(getattr(function, "__click_params__", ()))
        for option in reversed(options):
            function = option(function)
        for one in getattr(function, "__click_params__")[known:]:
            one.heading = heading
        return function

    return decorate


# Short forms that mean something else by now: hidden, still accepted, and answered with the new spelling.
# -a is --all, -d is --directory, -n is --name, -t is --target.
_FORMER = {"--add": "-a", "--address": "-a", "--artifact": "-a", "--remove": "-d", "--limit": "-n"}


_JSON = ("json", "jsonc")  # formats of a result
_ASKS_FOR_JSON = re.compile(r"(?:^| )(?:-o ?|--output[ =])jsonc?(?: |$)")
_SSH, _CONTAINERS = "SSH connection", "Containers"
# The heading of an option in every command that has it.
_USUAL = {
    **dict.fromkeys(("--address", "--username", "--port", "--jump", "--host-key"), _SSH),
    **dict.fromkeys(("--password", "--password-stdin", "--use-azureml-ssh-key"), _SSH),
    **dict.fromkeys(("--private-key-file", "--private-key-passphrase"), _SSH),
    **dict.fromkeys(("--allow-mount", "--allow-network", "--forbid-mount", "--forbid-network", "--image"), _CONTAINERS),
}


class Headed(click.Command):
    """Lists its options under headings: first those without one, last the global ones."""

    @cached_property
    def former(self) -> dict[str, click.Parameter]:
        """Short forms that were given up, taken from their options."""
        return {short: one for one in self.params for short in _give_up(one)}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        self.former  # noqa: B018 - options lose their former short forms before anybody sees them
        return super().get_params(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for one in self.get_params(ctx):
            row = one.get_help_record(ctx) if isinstance(one, click.Option) else None
            if row is not None:
                sections.setdefault(_heading(one, ctx), []).append((row[0], _tidy(row[1])))
        several = len(sections.keys() - {GLOBAL}) > 1
        for name in sorted(sections, key=lambda name: (name == GLOBAL, name != "")):
            with formatter.section(name or (COMMON if several else "Options")):
                formatter.write_dl(sections[name])

    def make_parser(self, ctx: click.Context) -> Any:
        parser = super().make_parser(ctx)
        for short, one in self.former.items():
            spelt = copy(one)
            spelt.opts, spelt.secondary_opts = [short], []
            spelt.add_to_parser(parser, ctx)
        return parser

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ours = args[: args.index("--")] if "--" in args else args
        for short, one in self.former.items():
            if not ctx.resilient_parsing and any(_spells(word, short) for word in ours):
                from .render import message  # noqa: PLC0415 - seldom needed

                message(f"hint: '{short}' is now '{one.opts[0]}'")
        given = list(args)  # click consumes them
        try:
            return super().parse_args(ctx, args)
        finally:
            if not ctx.resilient_parsing and _is_for_programs(ctx, given):
                from .render import report_errors_as_json  # noqa: PLC0415 - seldom needed

                report_errors_as_json()


class Command(Headed):
    """A command of mlw."""


def adopt(command: click.Command | None) -> click.Command | None:
    """What ``click.command`` made becomes a command of mlw, wherever it was declared."""
    if type(command) is click.Command:
        command.__class__ = Command
    return command


def _is_for_programs(ctx: click.Context, args: list[str]) -> bool:
    """Whether the result is JSON, and so is an error. Of a command line that is invalid only the words are known."""
    if not any("--output" in one.opts for one in ctx.command.params):
        return False
    if "output" in ctx.params:
        return ctx.params["output"] in _JSON
    return _ASKS_FOR_JSON.search(" ".join(args)) is not None


def _spells(word: str, short: str) -> bool:
    """Whether it is this short form, with its value or without; ``--sort -name`` is none."""
    return word == short or (word.startswith(short) and word[len(short) :].isdigit())


def _give_up(one: click.Parameter) -> list[str]:
    """Take its former short form from an option."""
    short = [_FORMER[name] for name in one.opts if _FORMER.get(name) in one.opts]
    one.opts = [name for name in one.opts if name not in short]
    return short


def _heading(one: click.Parameter, ctx: click.Context) -> str:
    if set(one.opts) <= set(ctx.help_option_names):
        return GLOBAL
    usual = next((_USUAL[name] for name in one.opts if name in _USUAL), "")
    if usual == _SSH and not any("--username" in other.opts for other in ctx.command.params):
        usual = ""  # the port of `mlw ui` is another one
    return str(getattr(one, "heading", usual))


def _tidy(text: str) -> str:
    """Without what click adds: a full stop, and the range of a number."""
    return re.sub(r"\s+\[[^\]]*x[<>]=?[^\]]*\]$", "", text).removesuffix(".")


def _forbid_colors(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        from .screen import forbid_colours  # noqa: PLC0415 - `mlw --version` needs none of it

        forbid_colours()


no_color = click.option(
    "--no-color", is_flag=True, is_eager=True, expose_value=False, callback=_forbid_colors, help="Disable colors"
)


def summary_of(command: click.Command) -> str:
    """The first sentence of its help, however long it is."""
    text = command.short_help or command.help or ""
    first = " ".join(text.partition("\n\n")[0].partition("\f")[0].split())
    return first.partition(". ")[0].rstrip(".")
