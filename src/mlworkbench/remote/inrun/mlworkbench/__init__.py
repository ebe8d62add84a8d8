"""The library that the script of a run can import: ``from mlworkbench import log``.

The parent folder is first on the PYTHONPATH of every run, whatever Python the script uses.
Therefore only the standard library is used, and no syntax newer than Python 3.5. Module names start
with an underscore so that they never hide modules of an installed mlworkbench, whose submodules
remain importable through ``__path__``.
"""

import pkgutil

from ._checkpoints import checkpoint_dir
from ._log import flush, log
from ._records import (
    log_figure,
    log_file,
    log_image,
    log_param,
    log_params,
    log_table,
    log_text,
    set_tag,
    set_tags,
)
from ._run import run
from ._start_run import start_run

__path__ = pkgutil.extend_path(__path__, __name__)

__all__ = [
    "checkpoint_dir",
    "flush",
    "log",
    "log_figure",
    "log_file",
    "log_image",
    "log_param",
    "log_params",
    "log_table",
    "log_text",
    "run",
    "set_tag",
    "set_tags",
    "start_run",
]
