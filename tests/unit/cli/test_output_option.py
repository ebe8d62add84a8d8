"""``-o`` and ``--to`` of commands that write a file."""

from __future__ import annotations

import click
import pytest

from mlworkbench.cli.output_option import output_options, split_output
from mlworkbench.errors import UsageError

FORMATS = ("csv", "json")


@pytest.mark.parametrize(
    ("value", "to", "kind", "path", "hint"),
    [
        (None, None, None, None, False),
        (None, "a.csv", None, "a.csv", False),
        ("json", None, "json", None, False),
        ("JSON", "a.txt", "json", "a.txt", False),
        ("report.csv", None, None, "report.csv", True),
        ("-", None, None, "-", True),
    ],
)
def test_format_and_file_of_output_options(value, to, kind, path, hint, capsys):
    assert split_output(value, to, FORMATS) == (kind, path)
    stderr = capsys.readouterr().err
    assert (f"use '--to {value}'" in stderr) == hint and bool(stderr) == hint


def test_an_unknown_format_with_a_file():
    with pytest.raises(UsageError, match="unknown output format 'xml'") as caught:
        split_output("xml", "a.csv", FORMATS)
    assert caught.value.hint == "available: csv, json"


@pytest.mark.parametrize(
    ("arguments", "kind", "path"),
    [
        (["-o", "json"], "json", None),
        (["--output", "csv", "--to", "x"], "csv", "x"),
        (["--format", "json", "--file", "x"], "json", "x"),
        (["-o", "x.csv"], None, "x.csv"),
    ],
)
def test_every_spelling_reaches_the_command(arguments, kind, path):
    @click.command()
    @output_options(FORMATS, format_help="Format", file_help="File")
    def export(kind, path):
        return kind, path

    assert export.main(arguments, standalone_mode=False) == (kind, path)
    help_text = export.get_help(click.Context(export))
    assert (
        "--to FILE" in help_text
        and "[csv|json]" in help_text
        and "--file" not in help_text
        and "--format" not in help_text
    )
