"""What a script of a run may import: ``from mlworkbench import log``.

The folder above stands first on PYTHONPATH of every run, whatever Python the script uses. Therefore: the
standard library only, and no syntax newer than Python 3.5. The modules beside this one begin with an
underscore, so that they never hide a module of a really installed mlworkbench, whose submodules stay
importable through ``__path__``.
"""

import pkgutil

from ._log import flush, log
from ._run import run
from ._things import (
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

__path__ = pkgutil.extend_path(__path__, __name__)

__all__ = [
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
]
