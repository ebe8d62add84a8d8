"""Find programs on this machine. Files in a project or the current folder are data and are never executed."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Optional

# Files that identify a project, as in config/project_files.py.
_MARKERS = ("aml_config", os.path.join(".azureml", "project.json"))


def which(name: str, path: Optional[str] = None) -> Optional[str]:
    """Return the absolute path of the first program with this name on ``path`` (default: PATH)."""
    import shutil  # noqa: PLC0415 - slow, and every command of mlw loads this module

    return shutil.which(name, path=safe_path(path))


def safe_path(path: Optional[str] = None) -> str:
    """Return ``path`` (default: PATH) without relative folders and project folders."""
    search_path = os.environ.get("PATH", os.defpath) if path is None else path
    folders = [folder for folder in search_path.split(os.pathsep) if os.path.isabs(folder)]
    return os.pathsep.join(folder for folder in folders if not is_in_project(folder))


def is_in_project(path: str) -> bool:
    """Return whether a path is a project or is in one.

    A project that contains the home folder is ignored.
    """
    folder = os.path.realpath(path)
    home = os.path.realpath(os.path.expanduser("~"))
    while True:
        if any(os.path.exists(os.path.join(folder, marker)) for marker in _MARKERS) and not is_inside(home, folder):
            return True
        parent = os.path.dirname(folder)
        if parent == folder:
            return False
        folder = parent


def is_inside(path: str, folder: str) -> bool:
    """Return whether a path is ``folder`` or is in it, after resolving links."""
    real_path, real_folder = (os.path.normcase(os.path.realpath(item)) for item in (path, folder))
    return real_path == real_folder or real_path.startswith(real_folder.rstrip(os.sep) + os.sep)


def is_shim(path: str) -> bool:
    """Return whether a program is a shim of a version manager (asdf, mise, proto, pyenv, rtx, rye).

    A shim starts the program that a file in the current folder selects, such as ``.tool-versions``. It
    is in a folder called ``shims``, or is a link to a program with a different name: ``python`` to
    ``mise``.
    """
    real = os.path.realpath(path)
    if "shims" in (os.path.basename(os.path.dirname(candidate)).lower() for candidate in (os.path.abspath(path), real)):
        return True
    program = os.path.splitext(os.path.basename(path).lower())[0].rstrip("0123456789.")
    return not os.path.basename(real).lower().startswith(program)


def is_noexec(path: str) -> bool:
    """Return whether the disk for a path, which need not exist yet, is mounted with ``noexec``."""
    existing = path
    while not os.path.exists(existing) and os.path.dirname(existing) != existing:
        existing = os.path.dirname(existing)
    try:
        return bool(os.statvfs(existing).f_flag & os.ST_NOEXEC)
    except (OSError, AttributeError):  # not supported by the system
        return False
