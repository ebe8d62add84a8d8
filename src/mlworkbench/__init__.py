"""ML Workbench: run your scripts on any machine you can reach, and keep a history worth searching.

``log`` and its like are for scripts; ``submit``, ``Request``, ``get_run``, ``History``, and the rest for programs.
Nothing is loaded before it is asked for. Inside a run, ``mlworkbench`` is the library in ``remote/inrun`` instead: it
has only what scripts need.
"""

from __future__ import annotations

import importlib

from .version import __version__

TYPE_CHECKING = False  # as in typing, whose import every command would pay for
if TYPE_CHECKING:
    from .config.project import Project, find_project
    from .history.door import History
    from .model import Entry, Run, RunSpec
    from .paths import user_paths
    from .request import Request, SweepOptions
    from .runs.handle import RunHandle, get_run, submit

_DOOR = {
    **dict.fromkeys(
        "flush log log_figure log_file log_image log_param log_params log_table log_text run set_tag set_tags".split(),
        "mlworkbench.remote.inrun.mlworkbench",
    ),
    "Project": "mlworkbench.config.project",
    "find_project": "mlworkbench.config.project",
    "History": "mlworkbench.history.door",
    "Run": "mlworkbench.model",
    "RunSpec": "mlworkbench.model",
    "Entry": "mlworkbench.model",
    "Request": "mlworkbench.request",
    "SweepOptions": "mlworkbench.request",
    "RunHandle": "mlworkbench.runs.handle",
    "get_run": "mlworkbench.runs.handle",
    "submit": "mlworkbench.runs.handle",
    "user_paths": "mlworkbench.paths",
}

__all__ = [
    "Entry",
    "History",
    "Project",
    "Request",
    "Run",
    "RunHandle",
    "RunSpec",
    "SweepOptions",
    "__version__",
    "find_project",
    "get_run",
    "submit",
    "user_paths",
]


def __getattr__(name: str) -> object:
    if name not in _DOOR:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_DOOR[name]), name)
