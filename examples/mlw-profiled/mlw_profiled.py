"""``Framework: Profiled``: run scripts under the Python profiler and keep its results in ``outputs/``."""

from __future__ import annotations

from mlworkbench.errors import UsageError
from mlworkbench.frameworks.framework import FrameworkCommand, Setting

PROFILE = "outputs/profile.pstats"  # outputs/ exists before the script starts


class Profiled:
    """Builds the command and has no side effects: ``--dry-run`` calls it, too."""

    def make(self, setting: Setting) -> FrameworkCommand:
        entry = setting.entry
        if entry.kind == "command":
            raise UsageError(
                f"{entry.name} is a command; the Python profiler runs only scripts and modules",
                "submit a script, or set Framework: Python",
            )
        profiler = (setting.python, "-m", "cProfile", "-o", PROFILE)
        target = ("-m", entry.name) if entry.kind == "module" else (entry.name,)
        return FrameworkCommand((*profiler, *target, *entry.arguments))
