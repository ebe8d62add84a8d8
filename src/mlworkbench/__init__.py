"""ML Workbench: run scripts on any machine you can reach by SSH, and keep a searchable run history.

Scripts use ``log`` and the other ``log_*`` functions. Programs use ``submit``, ``Request``, ``get_run``, ``History``,
and the other names exported here. Modules are loaded on first use. Inside a run, the library in ``remote/inrun``
replaces this package; it contains only what scripts need.
"""

from __future__ import annotations

import importlib

from .version import __version__

TYPE_CHECKING = False  # the same as typing.TYPE_CHECKING, without the cost of importing typing in every command
if TYPE_CHECKING:
    from .config.project_folder import Project, find_project
    from .history.history_api import History
    from .model import Entry, Run, RunSpec
    from .paths import user_paths
    from .runs.handle import RunHandle, get_run, submit
    from .submit_request import Request, SweepOptions

_LAZY_IMPORTS = {
    **dict.fromkeys(
        "checkpoint_dir flush log log_figure log_file log_image log_param log_params log_table log_text run set_tag"
        " set_tags start_run".split(),
        "mlworkbench.remote.inrun.mlworkbench",
    ),
    "Project": "mlworkbench.config.project_folder",
    "find_project": "mlworkbench.config.project_folder",
    "History": "mlworkbench.history.history_api",
    "Run": "mlworkbench.model",
    "RunSpec": "mlworkbench.model",
    "Entry": "mlworkbench.model",
    "Request": "mlworkbench.submit_request",
    "SweepOptions": "mlworkbench.submit_request",
    "RunHandle": "mlworkbench.runs.handle",
    "get_run": "mlworkbench.runs.handle",
    "load_ipython_extension": "mlworkbench.notebook",
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


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAZY_IMPORTS, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> object:
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY_IMPORTS[name]), name)
