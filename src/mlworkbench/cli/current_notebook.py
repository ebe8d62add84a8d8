"""The notebook from which ``%mlw submit`` is called: it is the script unless the user names one."""

from __future__ import annotations

import os
import time

from ..environments.notebook_python import IS_UNSAVED, KERNEL_NOTEBOOK
from ..report import units
from ..sanitize import plain
from . import render


def current_notebook() -> tuple[str, ...]:
    """Return the path of the notebook, or nothing outside of notebooks. Warn if its file may be outdated."""
    path = os.environ.get(KERNEL_NOTEBOOK)
    if not path:
        return ()
    name = plain(os.path.basename(path), 200)
    if os.environ.get(IS_UNSAVED):
        saved = units.age(max(0.0, time.time() - os.path.getmtime(path)))
        render.message(
            f"note: {name} was saved {saved}, without a cell that ran since; save the notebook to include it"
        )
    render.message(f"submitting {name}")
    return (path,)
