"""``Framework: Profiled``: the script runs under Python's own profiler, whose figures are kept in ``outputs/``."""

from __future__ import annotations

from mlworkbench.errors import UsageError
from mlworkbench.frameworks.framework import Made, Setting

FIGURES = "outputs/profile.pstats"  # outputs/ is there before the script starts


class Profiled:
    """Decides the command, and does nothing: it is called for ``--dry-run``, too."""

    def make(self, setting: Setting) -> Made:
        entry = setting.entry
        if entry.kind == "command":
            raise UsageError(
                f"{entry.name} is a command, and Python's profiler takes scripts and modules",
                "name a script, or set Framework: Python",
            )
        before = (setting.python, "-m", "cProfile", "-o", FIGURES)
        what = ("-m", entry.name) if entry.kind == "module" else (entry.name,)
        return Made((*before, *what, *entry.arguments))
