"""``Framework: Profiled``: runs the script under the Python profiler and saves the profile to ``outputs/``."""

from __future__ import annotations

from mlworkbench.errors import UsageError
from mlworkbench.frameworks.framework import Made, Setting

FIGURES = "outputs/profile.pstats"  # outputs/ exists before the script starts


class Profiled:
    """Builds the command without side effects: ``--dry-run`` calls it, too."""

    def make(self, setting: Setting) -> Made:
        entry = setting.entry
        if entry.kind == "command":
            raise UsageError(
                f"{entry.name} is a command; the Python profiler runs only scripts and modules",
                "use a script, or set Framework: Python",
            )
        before = (setting.python, "-m", "cProfile", "-o", FIGURES)
        what = ("-m", entry.name) if entry.kind == "module" else (entry.name,)
        return Made((*before, *what, *entry.arguments))
