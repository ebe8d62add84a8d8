"""Kinds of parameter values for shell completion; ``completer`` finds the values."""

from __future__ import annotations

import click


class CompletionKind(str):
    """Kind of value that a parameter takes, declared as its ``shell_complete``.

    Click never calls it, because completion does not import click.
    """

    def __call__(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        return []


complete_run = CompletionKind("run")
complete_target = CompletionKind("target")
complete_runconfig = CompletionKind("runconfig")
complete_view = CompletionKind("view")
complete_symptom = CompletionKind("symptom")
