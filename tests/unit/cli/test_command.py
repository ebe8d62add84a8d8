"""The help of commands: headings, whole summaries, short forms that were given up."""

from __future__ import annotations

import re

import click
import pytest

from mlworkbench.cli.command import Command, under
from mlworkbench.cli.verbs import Verbs, mlw


def tree(command=mlw, above=None, name="mlw"):
    ctx = click.Context(command, parent=above, info_name=name, **mlw.context_settings if above is None else {})
    yield ctx
    if isinstance(command, click.Group):
        for below in command.list_commands(ctx):
            yield from tree(command.get_command(ctx, below), ctx, below)


ALL = list(tree())


def sections(text):
    return re.findall(r"^([A-Z][\w ]+):$", text, re.MULTILINE)


@pytest.mark.parametrize("ctx", ALL, ids=[ctx.command_path for ctx in ALL])
def test_every_command_has_global_options_last(ctx):
    text = ctx.get_help()
    assert isinstance(ctx.command, (Command, Verbs))
    assert sections(text)[-1] == "Global options", text
    assert "--help" in text.partition("Global options:")[2]
    assert "..." not in text.partition("Commands:")[2].partition("Global options:")[0], "nothing is truncated"


def test_submit_has_its_options_under_headings():
    text = next(ctx.get_help() for ctx in ALL if ctx.command_path == "mlw submit")
    assert sections(text) == [
        "Common options",
        "GPUs",
        "Sweeps",
        "Environment",
        "Containers",
        "Global options",
    ]
    assert "--parallel" in text.partition("Sweeps:")[2].partition("Environment:")[0]


def test_commands_are_sorted_and_each_is_in_one_section():
    text = ALL[0].get_help()
    found = {}
    for part in re.split(r"\n\n", text):
        title, *lines = part.splitlines()
        if title.endswith(":") and title != "Global options:":
            found[title] = [line.split()[0] for line in lines]
    assert all(names == sorted(names) for names in found.values())
    listed = [name for names in found.values() for name in names]
    assert sorted(listed) == mlw.list_commands(ALL[0])
    assert next(iter(found)) == "Common commands:"


@pytest.mark.parametrize(
    ("words", "short", "now"),
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
def test_a_short_form_that_was_given_up_still_works(words, short, now, capsys):
    ctx = next(ctx for ctx in ALL if ctx.command_path == f"mlw {words}")
    assert f"{short}," not in ctx.get_help()
    required = ["-n", "x"] if "attach" in words else ["--metric=m"] if "best" in words else []
    run = ["demo"] if "tag" in words else []
    made = ctx.command.make_context("x", [short, "7", *required, *run])
    assert capsys.readouterr().err == f"hint: '{short}' is now '{now}'\n"
    assert any(value in (7, "7", ("7",)) for value in made.params.values()), made.params


def test_one_meaning_for_each_short_form():
    meant = {}
    for ctx in ALL:
        for one in ctx.command.get_params(ctx):
            if isinstance(one, click.Option) and not one.hidden:
                for short in {"-a", "-d", "-n", "-t"} & set(one.opts):
                    meant.setdefault(short, set()).update(name for name in one.opts if name.startswith("--"))
    assert meant == {"-a": {"--all"}, "-d": {"--directory"}, "-n": {"--name"}, "-t": {"--target"}}


def test_options_under_a_heading():
    @click.command(cls=Command)
    @click.option("--plain", help="Without a heading.")
    @under("Extra", click.option("--one", type=click.IntRange(min=1), help="First"), click.option("--two"))
    def example(**asked):
        """Example."""

    text = click.Context(example, info_name="x").get_help()
    assert sections(text) == ["Common options", "Extra", "Global options"]
    assert "[x>=1]" not in text and "Without a heading\n" in text
