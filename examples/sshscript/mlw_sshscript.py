"""``type: sshscript``: a machine that is reached over SSH, where the script ~/mlw-job starts jobs."""

from dataclasses import replace
from pathlib import Path

from mlworkbench.targets.types import REMOTE, AttachForm

SSHSCRIPT = replace(
    REMOTE,  # the SSH host, and the keys of its .compute file
    name="sshscript",
    summary="Jobs on a machine that is reached over SSH, started by a script",
    starter=str(Path(__file__).with_name("mlw_sshscript_starter.py")),
    attach=AttachForm("With a script that starts jobs"),
)
