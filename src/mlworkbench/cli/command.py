"""Base class of all commands: option sections in the help, and former short options."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])
Decorator = Callable[[Any], Any]

COMMON_SECTION, GLOBAL_SECTION = "Common options", "Global options"


def option_section(heading: str, *options: Decorator) -> Callable[[Function], Function]:
    """Return a decorator that adds options to a section of the help."""

    def decorate(function: Function) -> Function:
        existing = len(getattr(function, "__click_params__", ()))
        for option in reversed(options):
            function = option(function)
        for parameter in getattr(function, "__click_params__")[existing:]:
            parameter.heading = heading
        return function

    return decorate


# Former short options. They are hidden but still accepted, and print a hint with the new spelling.
# Today -a is --all, -d is --directory, -n is --name, and -t is --target.
_FORMER_SHORT_FORMS = {"--add": "-a", "--address": "-a", "--artifact": "-a", "--remove": "-d", "--limit": "-n"}


_JSON_FORMATS = ("json", "jsonc")  # output formats that are JSON
_JSON_OUTPUT_OPTION = re.compile(r"(?:^| )(?:-o ?|--output[ =])jsonc?(?: |$)")
_SSH_SECTION, _CONTAINER_SECTION = "SSH connection", "Containers"
# Option → its section, in every command that has the option.
_OPTION_SECTIONS = {
    **dict.fromkeys(("--address", "--username", "--port", "--jump", "--host-key"), _SSH_SECTION),
    **dict.fromkeys(("--password", "--password-stdin", "--use-azureml-ssh-key"), _SSH_SECTION),
    **dict.fromkeys(("--private-key-file", "--private-key-passphrase"), _SSH_SECTION),
    **dict.fromkeys(
        ("--allow-mount", "--allow-network", "--forbid-mount", "--forbid-network", "--image"), _CONTAINER_SECTION
    ),
}


class SectionedCommand(click.Command):
    """Command with option sections in its help. Unsectioned options come first, global options last."""

    @cached_property
    def former_short_forms(self) -> dict[str, click.Parameter]:
        """Options by their former short form. The first access removes these forms from the options."""
        return {short: option for option in self.params for short in _remove_former_short_forms(option)}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        self.former_short_forms  # noqa: B018 - removes the former short forms from the options
        return super().get_params(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                sections.setdefault(_section_of(parameter, ctx), []).append(
                    (record[0], _strip_click_additions(record[1]))
                )
        is_sectioned = len(sections.keys() - {GLOBAL_SECTION}) > 1
        for name in sorted(sections, key=lambda name: (name == GLOBAL_SECTION, name != "")):
            with formatter.section(name or (COMMON_SECTION if is_sectioned else "Options")):
                formatter.write_dl(sections[name])

    def make_parser(self, ctx: click.Context) -> Any:
        parser = super().make_parser(ctx)
        for short, option in self.former_short_forms.items():
            former = copy(option)
            former.opts, former.secondary_opts = [short], []
            former.add_to_parser(parser, ctx)
        return parser

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        mlw_args = args[: args.index("--")] if "--" in args else args
        for short, option in self.former_short_forms.items():
            if not ctx.resilient_parsing and any(_is_short_form(arg, short) for arg in mlw_args):
                from .render import message  # noqa: PLC0415 - rarely needed

                message(f"hint: '{short}' is now '{option.opts[0]}'")
        original = list(args)  # click consumes the list
        try:
            return super().parse_args(ctx, args)
        finally:
            if not ctx.resilient_parsing and _is_json_output(ctx, original):
                from .render import report_errors_as_json  # noqa: PLC0415 - rarely needed

                report_errors_as_json()


class Command(SectionedCommand):
    """Base class of mlw commands."""


def as_mlw_command(command: click.Command | None) -> click.Command | None:
    """Turn a plain ``click.Command`` into an mlw command, wherever it was declared."""
    if type(command) is click.Command:
        command.__class__ = Command
    return command


def _is_json_output(ctx: click.Context, args: list[str]) -> bool:
    """Return whether results, and therefore errors, are printed as JSON.

    If the command line is invalid, only the raw arguments are available.
    """
    if not any("--output" in option.opts for option in ctx.command.params):
        return False
    if "output" in ctx.params:
        return ctx.params["output"] in _JSON_FORMATS
    return _JSON_OUTPUT_OPTION.search(" ".join(args)) is not None


def _is_short_form(arg: str, short: str) -> bool:
    """Return whether ``arg`` is ``short``, alone or followed by digits. A value such as ``-name`` is not."""
    return arg == short or (arg.startswith(short) and arg[len(short) :].isdigit())


def _remove_former_short_forms(option: click.Parameter) -> list[str]:
    """Remove the former short forms from an option and return them."""
    short = [_FORMER_SHORT_FORMS[name] for name in option.opts if _FORMER_SHORT_FORMS.get(name) in option.opts]
    option.opts = [name for name in option.opts if name not in short]
    return short


def _section_of(option: click.Parameter, ctx: click.Context) -> str:
    if set(option.opts) <= set(ctx.help_option_names):
        return GLOBAL_SECTION
    section = next((_OPTION_SECTIONS[name] for name in option.opts if name in _OPTION_SECTIONS), "")
    if section == _SSH_SECTION and not any("--username" in other.opts for other in ctx.command.params):
        section = ""  # `mlw ui` has a --port that is unrelated to SSH
    return str(getattr(option, "heading", section))


def _strip_click_additions(text: str) -> str:
    """Remove the final period and the number range that click appends from a help text."""
    return re.sub(r"\s+\[[^\]]*x[<>]=?[^\]]*\]$", "", text).removesuffix(".")


def _disable_colors(ctx: click.Context, parameter: click.Parameter, disable: bool) -> None:
    if disable:
        from .terminal_safety import disable_colors  # noqa: PLC0415 - keeps `mlw --version` fast

        disable_colors()


no_color = click.option(
    "--no-color", is_flag=True, is_eager=True, expose_value=False, callback=_disable_colors, help="Disable colors"
)


def command_summary(command: click.Command) -> str:
    """Return the first sentence of the command's help, untruncated."""
    text = command.short_help or command.help or ""
    sentence = " ".join(text.partition("\n\n")[0].partition("\f")[0].split())
    return sentence.partition(". ")[0].rstrip(".")
