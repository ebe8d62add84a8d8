"""Startup of a project's terminal: the Python in use and the folders for PATH."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from ...config.project_folder import Project
from ...environments.existing import inspect_python, is_path_search
from ...errors import MlwError
from ...model import Interpreter
from ...paths import UserPaths
from ...remote.shared.program_lookup import is_in_project, which
from ...sanitize import plain

_QUOTABLE = re.compile(r"[\w@%+=:,./ ~-]+")  # characters that every shell accepts between quotes


@dataclass(frozen=True)
class Prompt:
    """Startup data of a terminal. ``lines`` are printed first.

    ``folders`` are prepended to PATH and never belong to the project.
    """

    folders: list[str]
    lines: list[str]


def prompt(project: Project, paths: UserPaths) -> Prompt:
    """Return the folders for PATH: the Python folder of target ``local``, then the mlw folder.

    Folders that the project specifies or contains are not added, because a program there could shadow
    any command that the shell runs. Instead, the terminal prints a command that adds them.
    """
    folders, lines = [], []
    try:
        location = project.compute("local").python_location if "local" in project.computes() else None
        python = inspect_python(location, os.environ, project.root, paths.interpreters)
        version = "Python " + ".".join(map(str, python.version)) if any(python.version) else "Python"
        lines.append(f"{version} for target local: {python.path} ({python.reason})")
        if is_path_search(location) and not is_in_project(python.path):
            folders.append(os.path.dirname(python.path))
        else:
            lines += _activation_hint(python)
    except MlwError as error:
        lines.append(f"no Python for target local: {error.message}")
    mlw = _mlw_folder()
    if mlw and mlw not in folders and not is_in_project(mlw):
        folders.append(mlw)
    return Prompt(folders, [plain(line, 1000) for line in lines])


def _activation_hint(python: Interpreter) -> list[str]:
    """Return the command that activates the Python, if the path can be quoted for every shell."""
    folder = os.path.dirname(python.path)
    if not _QUOTABLE.fullmatch(folder):
        return []
    activate = os.path.join(folder, "activate")
    command = f". {shlex.quote(activate)}" if os.path.isfile(activate) else f"PATH={shlex.quote(folder)}:$PATH"
    return [f"this Python is not on PATH, because the project selects it; if you trust the project, run: {command}"]


def _mlw_folder() -> str | None:
    """Return the folder with the ``mlw`` program of this installation."""
    folder = Path(sys.executable).parent
    if os.access(folder / "mlw", os.X_OK):
        return str(folder)
    program = which("mlw")
    return os.path.dirname(program) if program else None
