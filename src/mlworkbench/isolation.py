"""Which folders modules of mlw may come from, and how mlw starts itself.

The current folder may be somebody else's project. Python puts it on the module path for ``-m`` and ``-c``, and
PYTHONPATH may name it, or name a folder relative to it: modules there would run as if they were ours.
"""

from __future__ import annotations

import os
import sys

from .remote.shared.programs import in_project, is_inside

TYPE_CHECKING = False  # as in typing, whose import a TAB would wait for
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence

_HERE = os.path.dirname(os.path.abspath(__file__))
OWN = os.path.dirname(_HERE)  # the folder that mlworkbench itself was found in
START = os.path.join(_HERE, "start.py")
_SEARCHED = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
# Where a relative value makes Python look for code in the current folder.
_FOLDERS = ("PYTHONHOME", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX")


def drop_relative_folders(environ: MutableMapping[str, str]) -> None:
    """Take relative folders out of the variables that name where programs and shared libraries are.

    An empty entry is one of them, and easily made: ``LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/opt/lib``. Libraries and the
    programs that they start would look for their parts in the current folder.
    """
    for name in _SEARCHED:
        if name in environ:
            kept = os.pathsep.join(one for one in environ[name].split(os.pathsep) if os.path.isabs(one))
            if kept:
                environ[name] = kept
            else:
                del environ[name]


def module_path() -> list[str]:
    """``sys.path`` without the current folder, relative folders, and what PYTHONPATH names inside a project."""
    try:
        current = os.getcwd()
    except OSError:  # it was deleted
        current = os.sep
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    unsafe = {os.path.abspath(one) for one in named if one and not _is_safe(one, current)} | {current, _HERE}
    return [one for one in sys.path if os.path.isabs(one) and (one == OWN or not _is_one_of(one, unsafe))]


def own_command(words: Sequence[str]) -> list[str]:
    """The command line that starts mlw itself, whatever the current folder is."""
    return [sys.executable, START, *words]


def own_environment(environ: Mapping[str, str], folder: str) -> dict[str, str]:
    """The variables for a Python of ours in ``folder``: none of them leads it to modules there."""
    made = {name: value for name, value in environ.items() if name not in _FOLDERS or os.path.isabs(value)}
    drop_relative_folders(made)
    named = made.pop("PYTHONPATH", "").split(os.pathsep)
    safe = [one for one in named if _is_safe(one, folder)]
    if safe:
        made["PYTHONPATH"] = os.pathsep.join(safe)
    return made


def _is_safe(entry: str, current: str) -> bool:
    """Whether an entry of PYTHONPATH can be used in this folder. One that holds mlworkbench itself always can."""
    if not os.path.isabs(entry):
        return False
    if os.path.abspath(entry) == OWN:
        return True
    return not in_project(entry) and (_is_above_home(current) or not is_inside(entry, current))


def _is_above_home(folder: str) -> bool:
    return is_inside(os.path.expanduser("~"), folder)


def _is_one_of(entry: str, folders: set[str]) -> bool:
    return entry in folders or os.path.realpath(entry) in {os.path.realpath(one) for one in folders}
