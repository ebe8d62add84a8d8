"""``-o`` and ``--to`` of commands that write a file: ``-o`` selects the format, ``--to`` names the file.

Before ``--to`` existed, ``-o`` named the file. It still does where its value is not a format, and prints a hint.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import click

from ..errors import UsageError
from .render import message

Function = TypeVar("Function", bound=Callable[..., Any])


class FormatOrFile(click.Choice[str]):
    """Shown and completed as a choice of formats; any other value is the name of a file."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)


def output_options(formats: Sequence[str], *, format_help: str, file_help: str) -> Callable[[Function], Function]:
    """``-o FORMAT`` and ``--to FILE``; the command gets them as ``kind`` and ``path``.

    ``--format`` and ``--file`` are former spellings, which still work.
    """
    options = (
        click.option("--file", "former_file", hidden=True),
        click.option("--format", "former_format", type=click.Choice(formats), hidden=True),
        click.option("--to", metavar="FILE", help=file_help),
        click.option("-o", "--output", type=FormatOrFile(formats), help=format_help),
    )

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def command(*args: Any, former_file: str | None, former_format: str | None, **asked: Any) -> Any:
            kind, path = split_output(asked.pop("output"), asked.pop("to") or former_file, formats)
            return function(*args, kind=former_format or kind, path=path, **asked)

        for option in options:
            command = option(command)
        return command  # type: ignore[return-value]

    return decorate


def split_output(word: str | None, path: str | None, formats: Collection[str]) -> tuple[str | None, str | None]:
    """The format and the file that ``-o WORD`` and ``--to PATH`` mean together."""
    if word is None:
        return None, path
    if word.lower() in formats:
        return word.lower(), path
    if path is not None:
        raise UsageError(f"unknown output format {word!r}", f"available: {', '.join(formats)}")
    message(f"hint: -o selects the output format ({', '.join(formats)}); to write to a file, use '--to {word}'")
    return None, word
