"""What a command prompt of a project begins with: which Python, and where its programs are."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from ...config.project import Project
from ...environments.existing import find_python, locate_python
from ...errors import MlwError
from ...paths import UserPaths
from ...report.plain import plain


@dataclass(frozen=True)
class Prompt:
    """``folders`` go before PATH; ``words`` are said first."""

    folders: list[str]
    words: str


def prompt(project: Project, paths: UserPaths) -> Prompt:
    """The Python of ``local`` first, then the place of mlw."""
    folders, words = [], ""
    try:
        location = project.compute("local").python_location if "local" in project.computes() else None
        if location is None:
            found = find_python(None, os.environ, project.root, paths.interpreters)
            path, why = found.path, found.reason
            version = "Python " + ".".join(str(number) for number in found.version)
        else:
            # A stranger's project may name any program there: it is put first, and not run by us.
            path, why = locate_python(location, os.environ, project.root)
            version = "the Python"
        folders.append(os.path.dirname(path))
        words = f"{version} of target local: {path} ({why})"
    except MlwError as error:
        words = f"target local has no Python: {error.message}"
    mlw = _place_of_mlw()
    if mlw and mlw not in folders:
        folders.append(mlw)
    return Prompt(folders, plain(words, 500))


def _place_of_mlw() -> str | None:
    """The folder with the program ``mlw`` of this installation."""
    beside = Path(sys.executable).parent
    if os.access(beside / "mlw", os.X_OK):
        return str(beside)
    found = shutil.which("mlw")
    return os.path.dirname(os.path.abspath(found)) if found else None
