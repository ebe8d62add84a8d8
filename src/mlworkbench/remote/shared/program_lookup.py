"""Find programs of this machine: what lies in a project, or beside the current folder, is data and is never started."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Optional

_MARKS = ("aml_config", os.path.join(".azureml", "project.json"))  # what makes a folder a project; as in config/place


def which(name: str, path: Optional[str] = None) -> Optional[str]:
    """The first program of this name on ``path`` (default: PATH), as an absolute path."""
    import shutil  # noqa: PLC0415 - slow, and every command of mlw loads this module

    return shutil.which(name, path=safe_path(path))


def safe_path(path: Optional[str] = None) -> str:
    """``path`` (default: PATH) without relative folders and without folders of projects."""
    given = os.environ.get("PATH", os.defpath) if path is None else path
    folders = [one for one in given.split(os.pathsep) if os.path.isabs(one)]
    return os.pathsep.join(one for one in folders if not in_project(one))


def in_project(path: str) -> bool:
    """Whether the path is a project, or lies in one. Of a home folder that is a project this is not asked."""
    folder = os.path.realpath(path)
    home = os.path.realpath(os.path.expanduser("~"))
    while True:
        if any(os.path.exists(os.path.join(folder, mark)) for mark in _MARKS) and not is_inside(home, folder):
            return True
        above = os.path.dirname(folder)
        if above == folder:
            return False
        folder = above


def is_inside(path: str, folder: str) -> bool:
    """Whether the path is the folder, or lies in it; links are resolved."""
    place, border = (os.path.normcase(os.path.realpath(one)) for one in (path, folder))
    return place == border or place.startswith(border.rstrip(os.sep) + os.sep)


def is_shim(path: str) -> bool:
    """Whether it is a shim of a version manager (asdf, mise, proto, pyenv, rtx, rye).

    A shim starts the program that a file in the current folder names, such as ``.tool-versions``. It is in a folder
    called ``shims``, or a link to a program with another name: ``python`` to ``mise``.
    """
    real = os.path.realpath(path)
    if "shims" in (os.path.basename(os.path.dirname(one)).lower() for one in (os.path.abspath(path), real)):
        return True
    family = os.path.splitext(os.path.basename(path).lower())[0].rstrip("0123456789.")
    return not os.path.basename(real).lower().startswith(family)


def is_noexec(path: str) -> bool:
    """Whether the disk that holds the path, or will hold it, is mounted so that no program on it can be started."""
    place = path
    while not os.path.exists(place) and os.path.dirname(place) != place:
        place = os.path.dirname(place)
    try:
        return bool(os.statvfs(place).f_flag & os.ST_NOEXEC)
    except (OSError, AttributeError):  # the system does not tell
        return False
