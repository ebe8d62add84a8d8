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
    """Look for what is wrong with this machine, and say the remedy; exits with 1 if there is an error.

    Nothing is changed and nobody is called. Other machines: mlw computetarget check. Projects: mlw project doctor.
    """
    if context.invoked_subcommand is not None:
        return 0
    from ..laptop.gather import gather  # noqa: PLC0415 - `doctor gpu` needs none of it
    from ..laptop.judge import judge  # noqa: PLC0415

    findings = judge(gather(os.environ, sys.argv[0]), units.size)
    show_findings(findings, output, query)
    return 0 if is_fit(findings) else 1


doctor.add_command(gpu)
