"""``mlw doctor``: what mlw needs of this machine, and what of it is not well."""

from __future__ import annotations

import os
import sys

import click

from ..report import units
from ..targets.check import is_fit
from .doctor_gpu import gpu
from .findings import show_findings
from .options import rendering
from .verbs import Verbs


@click.group(cls=Verbs, invoke_without_command=True, epilog="Example: mlw doctor -o json --query \"[?state!='ok']\"")
@rendering
@click.pass_context
def doctor(context: click.Context, output: str, query: str | None) -> int:
    """Diagnose problems with this machine or a GPU.

    Changes nothing and uses no network. Exits with 1 if there is an error. To check a target, use mlw computetarget
    check; to check a project, use mlw project doctor.
    """
    if context.invoked_subcommand is not None:
        return 0
    from ..laptop.gather import gather  # noqa: PLC0415 - `doctor gpu` needs none of it
    from ..laptop.judge import judge  # noqa: PLC0415

    findings = judge(gather(os.environ, sys.argv[0]), units.size)
    show_findings(findings, output, query)
    return 0 if is_fit(findings) else 1


doctor.add_command(gpu)
