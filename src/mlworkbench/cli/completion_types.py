"""What the parameters of commands take, for completion; ``complete`` finds the values."""

from __future__ import annotations

import click


class Kind(str):
    """What a parameter takes, declared as its ``shell_complete``. Click is never asked: TAB is answered without it."""

    def __call__(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        return []


complete_run = Kind("run")
complete_target = Kind("target")
complete_runconfig = Kind("runconfig")
complete_symptom = Kind("symptom")
