"""Find the Python of a notebook kernel, and explain the choice in a terminal of Jupyter."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from ..model import Interpreter

# Set by the magic %mlw for the process that it starts.
KERNEL_PYTHON = "MLW_KERNEL_PYTHON"
KERNEL_NOTEBOOK = "MLW_KERNEL_NOTEBOOK"  # path of the notebook
IS_UNSAVED = "MLW_KERNEL_NOTEBOOK_UNSAVED"  # not empty if a cell that ran is not in the file
# Set by Jupyter: the first for kernels and the commands in their cells, the others also for terminals.
_JUPYTER_VARIABLES = ("JPY_PARENT_PID", "JUPYTER_SERVER_ROOT", "JUPYTER_SERVER_URL")


def kernel_python(environ: Mapping[str, str]) -> str | None:
    """Return the Python of the notebook kernel or IPython session that submits; None elsewhere."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        return sys.executable
    return environ.get(KERNEL_PYTHON) or None


def jupyter_note(interpreter: Interpreter, environ: Mapping[str, str]) -> str | None:
    """Return a note if a command of Jupyter uses a Python that no active environment determines.

    Terminals have the variables of the Jupyter server. It has no record of which kernel the user means.
    """
    if not any(environ.get(name) for name in _JUPYTER_VARIABLES):
        return None
    active = (environ.get("VIRTUAL_ENV"), environ.get("CONDA_PREFIX"))
    if any(folder and interpreter.path.startswith(folder.rstrip(os.sep) + os.sep) for folder in active):
        return None
    return (
        f"note: the script uses {interpreter.path} ({interpreter.reason}), not the Python of a notebook kernel;"
        " to choose, activate an environment, set pythonLocation in the .compute file, or run '%mlw submit' in the"
        " notebook"
    )
