"""Check before a run whether the programs that would start the script are installed: Spark, Slurm, a launcher."""

from __future__ import annotations

import os
import subprocess

from .shared.program_lookup import which
from .spark.spark_preflight import check_spark

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

_TIMEOUT = 20.0
_FIND_MODULE = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"


def check_launcher(request: Dict[str, Any]) -> Dict[str, Any]:
    """Return whether a module is installed for the script's interpreter, or a program is on the script's PATH."""
    if request.get("program"):
        folders = [str(folder) for folder in request.get("path") or ()]
        if request.get("python"):  # a launcher of the environment is next to its Python
            folders.append(os.path.dirname(os.path.expanduser(str(request["python"]))))
        search = os.pathsep.join([*folders, str(request.get("search") or os.environ.get("PATH") or os.defpath)])
        return {"ok": True, "found": which(str(request["program"]), search) is not None}
    command = [os.path.expanduser(str(request["python"])), "-c", _FIND_MODULE, str(request["module"])]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=os.path.expanduser("~"),  # not a folder with modules of a project
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return {"ok": True}  # if Python does not start, the run itself reports it
    return {"ok": True, "found": done.returncode == 0}


def check_slurm(request: Dict[str, Any]) -> Dict[str, Any]:
    """Return facts about Slurm: its version, partitions, and GPUs, and the accounts of the user."""
    from .slurm.facts import gather_facts  # noqa: PLC0415 - on clusters only

    return {"ok": True, "facts": gather_facts(os.path.expanduser("~"), bool(request.get("nodes_only")))}


HANDLERS: "Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]]" = {
    "spark": check_spark,
    "launcher": check_launcher,
    "slurm facts": check_slurm,
}
