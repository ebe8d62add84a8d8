"""Folders from which mlw may import modules, and the command line that starts mlw itself.

The current folder may be an untrusted project. Python adds it to the module path for ``-m`` and
``-c``, and PYTHONPATH may contain it or a folder relative to it. Modules there would run as if they
were part of mlw.
"""

from __future__ import annotations

import os
import sys

from .remote.shared.program_lookup import is_in_project, is_inside

TYPE_CHECKING = False  # the same as typing.TYPE_CHECKING, without the cost of importing typing for shell completion
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence

_HERE = os.path.dirname(os.path.abspath(__file__))
OWN = os.path.dirname(_HERE)  # the folder that contains mlworkbench itself
START = os.path.join(_HERE, "process_entry.py")
_SEARCH_PATHS = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
# Variables whose relative values make Python load code from the current folder.
_FOLDER_VARIABLES = ("PYTHONHOME", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX")


def drop_relative_folders(environ: MutableMapping[str, str]) -> None:
    """Remove relative folders from the search paths for programs and shared libraries.

    An empty entry is also relative, and easily created: ``LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/opt/lib``.
    Such entries make programs load executables and libraries from the current folder.
    """
    for name in _SEARCH_PATHS:
        if name in environ:
            kept = os.pathsep.join(folder for folder in environ[name].split(os.pathsep) if os.path.isabs(folder))
            if kept:
                environ[name] = kept
            else:
                del environ[name]


def module_path() -> list[str]:
    """Return ``sys.path`` without unsafe folders.

    These are the current folder, relative folders, and PYTHONPATH entries inside a project.
    """
    try:
        current = os.getcwd()
    except OSError:  # the current folder was deleted
        current = os.sep
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    unsafe = {os.path.abspath(entry) for entry in named if entry and not _is_safe(entry, current)} | {current, _HERE}
    return [entry for entry in sys.path if os.path.isabs(entry) and (entry == OWN or not _is_one_of(entry, unsafe))]


def own_command(arguments: Sequence[str]) -> list[str]:
    """Return the command line that starts mlw itself, regardless of the current folder."""
    return [sys.executable, START, *arguments]


def own_environment(environ: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return the environment for running mlw's Python in ``folder``.

    Variables that would load modules from there are left out.
    """
    variables = {
        name: value for name, value in environ.items() if name not in _FOLDER_VARIABLES or os.path.isabs(value)
    }
    drop_relative_folders(variables)
    named = variables.pop("PYTHONPATH", "").split(os.pathsep)
    safe = [entry for entry in named if _is_safe(entry, folder)]
    if safe:
        variables["PYTHONPATH"] = os.pathsep.join(safe)
    return variables


def _is_safe(entry: str, current: str) -> bool:
    """Return whether a PYTHONPATH entry is safe if ``current`` is the current folder.

    The entry that contains mlworkbench is always safe.
    """
    if not os.path.isabs(entry):
        return False
    if os.path.abspath(entry) == OWN:
        return True
    return not is_in_project(entry) and (_is_above_home(current) or not is_inside(entry, current))


def _is_above_home(folder: str) -> bool:
    return is_inside(os.path.expanduser("~"), folder)


def _is_one_of(entry: str, folders: set[str]) -> bool:
    return entry in folders or os.path.realpath(entry) in {os.path.realpath(folder) for folder in folders}
