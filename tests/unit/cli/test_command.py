"""Help of commands: sections, summaries, and former short forms."""

from __future__ import annotations

import re

import click
import pytest

from mlworkbench.cli.command import Command, option_section
from mlworkbench.cli.command_tree import LazyGroup, mlw


def command_contexts(command=mlw, parent=None, name="mlw"):
    ctx = click.Context(command, parent=parent, info_name=name, **mlw.context_settings if parent is None else {})
    yield ctx
    if isinstance(command, click.Group):
        for subcommand in command.list_commands(ctx):
            yield from command_contexts(command.get_command(ctx, subcommand), ctx, subcommand)


CONTEXTS = list(command_contexts())


def sections(text):
    return re.findall(r"^([A-Z][\w ]+):$", text, re.MULTILINE)


@pytest.mark.parametrize("ctx", CONTEXTS, ids=[ctx.command_path for ctx in CONTEXTS])
def test_every_command_has_global_options_last(ctx):
    text = ctx.get_help()
    assert isinstance(ctx.command, (Command, LazyGroup))
    assert sections(text)[-1] == "Global options", text
    assert "--help" in text.partition("Global options:")[2]
    assert "..." not in text.partition("Commands:")[2].partition("Global options:")[0], "nothing is truncated"


def test_submit_lists_its_options_in_sections():
    text = next(ctx.get_help() for ctx in CONTEXTS if ctx.command_path == "mlw submit")
    assert sections(text) == [
        "Common options",
        "Retries",
        "GPUs",
        "Several processes",
        "Sweeps",
        "Environment",
        "Containers",
        "Global options",
    ]
    assert "--parallel" in text.partition("Sweeps:")[2].partition("Environment:")[0]


def test_commands_are_sorted_and_each_is_in_one_section():
    text = CONTEXTS[0].get_help()
    commands = {}
    for part in re.split(r"\n\n", text):
        title, *lines = part.splitlines()
        if title.endswith(":") and title != "Global options:":
            commands[title] = [line.split()[0] for line in lines]
    assert all(names == sorted(names) for names in commands.values())
    listed = [name for names in commands.values() for name in names]
    assert sorted(listed) == mlw.list_commands(CONTEXTS[0])
    assert next(iter(commands)) == "Common commands:"


@pytest.mark.parametrize(
    ("command", "short", "current"),
    [
        ("history list", "-n", "-L"),
        ("history best", "-n", "-L"),
        ("history tag", "-a", "--add"),
        ("history tag", "-d", "--remove"),
        ("history info", "-a", "--artifact"),
        ("show", "-a", "--artifact"),
        ("computetarget attach", "-a", "--address"),
    ],
)
def test_a_former_short_form_still_works(command, short, current, capsys):
    ctx = next(ctx for ctx in CONTEXTS if ctx.command_path == f"mlw {command}")
    assert f"{short}," not in ctx.get_help()
    required = ["-n", "x"] if "attach" in command else ["--metric=m"] if "best" in command else []
    run = ["demo"] if "tag" in command else []
    context = ctx.command.make_context("x", [short, "7", *required, *run])
    assert capsys.readouterr().err == f"hint: '{short}' is now '{current}'\n"
    assert any(value in (7, "7", ("7",)) for value in context.params.values()), context.params


def test_each_short_form_has_one_meaning():
    options = {}
    for ctx in CONTEXTS:
        for parameter in ctx.command.get_params(ctx):
            if isinstance(parameter, click.Option) and not parameter.hidden:
                for short in {"-a", "-d", "-n", "-t"} & set(parameter.opts):
                    options.setdefault(short, set()).update(name for name in parameter.opts if name.startswith("--"))
    assert options == {"-a": {"--all"}, "-d": {"--directory"}, "-n": {"--name"}, "-t": {"--target"}}


def test_options_in_a_section():
    @click.command(cls=Command)
    @click.option("--plain", help="Without a heading.")
    @option_section("Extra", click.option("--one", type=click.IntRange(min=1), help="First"), click.option("--two"))
    def example(**options):
        """Example."""

    text = click.Context(example, info_name="x").get_help()
    assert sections(text) == ["Common options", "Extra", "Global options"]
    assert "[x>=1]" not in text and "Without a heading\n" in text
