"""Find a project and list its files by name.

Opens no files and imports little, for fast shell completion.
"""

from __future__ import annotations

import os

FOLDER = "aml_config"
COMPUTE_SUFFIX = ".compute"
RUNCONFIG_SUFFIX = ".runconfig"
OLD_SUFFIX = ".amb"  # run configuration extension until June 2017
GPU_PACKAGES = "conda_dependencies_gpu.yml"  # name of the second package file in samples


def find_root(start: str) -> str | None:
    """Return the root of the nearest project at or above a folder."""
    folder = os.path.realpath(start)
    while True:
        # Without permission, os.path.isdir returns False; Path.is_dir raises.
        if os.path.isdir(os.path.join(folder, FOLDER)) or os.path.isfile(
            os.path.join(folder, ".azureml", "project.json")
        ):
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def is_outside(path: str | os.PathLike[str], root: str | os.PathLike[str]) -> bool:
    """Return whether a project path leads outside the project, through ``..`` or a link."""
    return not os.path.realpath(path).startswith(os.path.join(os.path.realpath(root), ""))


def list_names(folder: str, *suffixes: str) -> list[str]:
    """Return the sorted file names in aml_config with these suffixes, without the suffix.

    May raise OSError.
    """
    try:
        files = os.listdir(folder)
    except FileNotFoundError:
        return []
    stems = {file.removesuffix(suffix) for suffix in suffixes for file in files if file.endswith(suffix)}
    return sorted(stem for stem in stems if is_plain_name(stem))


def is_plain_name(name: str) -> bool:
    """Return whether a name is a valid file stem in aml_config and cannot refer to another folder."""
    return (
        0 < len(name) <= 200
        and name[0] not in "-."
        and name.isprintable()
        and not any(char in name for char in '/\\:*?"<>|')
        and name == name.strip()
    )
