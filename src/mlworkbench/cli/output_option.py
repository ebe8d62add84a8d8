"""``-o`` and ``--to`` of commands that write a file: the output format and the file name.

Before ``--to`` existed, ``-o`` named the file. It still does if its value is not a format, and mlw
prints a hint.
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
    """Type of ``-o``: a choice of formats in help and completion. Any other value is a file name."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)


def output_options(formats: Sequence[str], *, format_help: str, file_help: str) -> Callable[[Function], Function]:
    """Add ``-o FORMAT`` and ``--to FILE``. The command receives them as ``kind`` and ``path``.

    The former spellings ``--format`` and ``--file`` still work.
    """
    options = (
        click.option("--file", "former_file", hidden=True),
        click.option("--format", "former_format", type=click.Choice(formats), hidden=True),
        click.option("--to", metavar="FILE", help=file_help),
        click.option("-o", "--output", type=FormatOrFile(formats), help=format_help),
    )

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def command(*args: Any, former_file: str | None, former_format: str | None, **values: Any) -> Any:
            kind, path = split_output(values.pop("output"), values.pop("to") or former_file, formats)
            return function(*args, kind=former_format or kind, path=path, **values)

        for option in options:
            command = option(command)
        return command  # type: ignore[return-value]

    return decorate


def split_output(value: str | None, path: str | None, formats: Collection[str]) -> tuple[str | None, str | None]:
    """Return the format and the file selected by ``-o VALUE`` and ``--to PATH``."""
    if value is None:
        return None, path
    if value.lower() in formats:
        return value.lower(), path
    if path is not None:
        raise UsageError(f"unknown output format {value!r}", f"available: {', '.join(formats)}")
    message(f"hint: -o selects the output format ({', '.join(formats)}); to write to a file, use '--to {value}'")
    return None, value
