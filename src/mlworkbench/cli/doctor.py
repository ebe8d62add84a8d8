"""``mlw doctor``: check what mlw needs on this machine."""

from __future__ import annotations

import os
import sys

import click

from ..report import units
from ..targets.machine_check import is_fit
from .command_tree import LazyGroup
from .doctor_gpu import gpu
from .finding_tables import show_findings
from .options import result_options


@click.group(
    cls=LazyGroup, invoke_without_command=True, epilog="Example: mlw doctor -o json --query \"[?state!='ok']\""
)
@result_options
@click.pass_context
def doctor(context: click.Context, output: str, query: str | None) -> int:
    """Diagnose problems with this machine or a GPU.

    Changes nothing and uses no network. Exits with 1 if there is an error. To check a target, use mlw computetarget
    check; to check a project, use mlw project doctor.
    """
    if context.invoked_subcommand is not None:
        return 0
    from ..doctor.collect import collect_facts  # noqa: PLC0415 - `doctor gpu` does not need it
    from ..doctor.diagnosis_rules import diagnose  # noqa: PLC0415

    findings = diagnose(collect_facts(os.environ, sys.argv[0]), units.size)
    show_findings(findings, output, query)
    return 0 if is_fit(findings) else 1


doctor.add_command(gpu)
