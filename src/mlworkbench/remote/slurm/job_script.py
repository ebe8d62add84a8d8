"""The batch script of a run, and the options of sbatch."""

from __future__ import annotations

import math
import shlex

from ..shared.failure import Failed
from .job_record import output_path, secrets_path

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, List, Sequence

    from ..shared.layout import RunFolder

NOTICE = 60  # seconds before the time limit at which Slurm signals the supervisor, at the latest
_VALUES = {
    "partition": "--partition",
    "account": "--account",
    "qos": "--qos",
    "constraint": "--constraint",
}


class InvalidRequest(Failed):
    """Error in the scheduler settings of a spec."""

    code = "slurm-refused"


def job_script(run: RunFolder, command: Sequence[str], setup: Sequence[str]) -> str:
    """Return the script. ``setup``: shell lines that run first, and whose failure ends the job.

    The shell reads the user's profile, because ``module`` is usually defined there. The supervisor replaces the
    shell, so that it receives the signals that Slurm sends to the script. A job that ends before that deletes the
    secrets: ``exec`` does not execute the trap of EXIT.
    """
    secrets, words = shlex.quote(secrets_path(run)), " ".join(map(shlex.quote, command))
    # A signal of Slurm must not end the shell. Programs of setUp would inherit an ignored one, but not a handler.
    lines = ["#!/bin/bash -l", "trap : USR1 USR2", "trap -- %s EXIT" % shlex.quote("rm -f -- " + secrets)]
    if setup:
        lines += ["trap 'echo \"setUp failed: $BASH_COMMAND\" >&2' ERR", "set -e", *setup, "set +e", "trap - ERR"]
    lines += ["trap '' USR1 USR2"]  # until the supervisor, which inherits this, handles them
    lines += ["if [ -e %s ]; then exec %s <%s; fi" % (secrets, words, secrets)]
    lines += ["exec %s <<'END'" % words, '{"secrets": {}}', "END", ""]
    return "\n".join(lines)


def sbatch_options(run: RunFolder, name: str, comment: str, scheduler: Dict[str, Any], requeue: bool) -> List[str]:
    """Return the options of sbatch. Raise InvalidRequest for a value that would be another option or a file."""
    # A percent sign in the path would start a replacement of sbatch.
    options = ["--parsable", "--job-name=" + name, "--comment=" + comment]
    options += ["--output=" + output_path(run).replace("%", "%%"), "--open-mode=append"]
    options += ["--export=ALL", "--signal=B:USR1@%d" % NOTICE, "--requeue" if requeue else "--no-requeue"]
    options += ["--nodes=%d" % int(scheduler.get("nodes") or 1), "--ntasks-per-node=1"]
    for key, option in _VALUES.items():
        value = scheduler.get(key)
        if value is not None:
            options.append("%s=%s" % (option, value))
    if scheduler.get("time") is not None:
        options.append("--time=%d" % max(1, math.ceil(float(scheduler["time"]) / 60)))
    if scheduler.get("gpus"):
        model = scheduler.get("gpu_model")
        options.append("--gres=gpu:%s%d" % (model + ":" if model else "", int(scheduler["gpus"])))
    for option in scheduler.get("options") or ():
        if not str(option).startswith("-"):
            raise InvalidRequest(
                "invalid sbatch option %a" % str(option)[:80], "write it as --name=value in extraOptions"
            )
        options.append(str(option))
    wrong = [option for option in options if "\n" in option or "\0" in option]
    if wrong:
        raise InvalidRequest("invalid sbatch option %a" % wrong[0][:80])
    return options
