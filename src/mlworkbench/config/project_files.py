"""Where a project is and which files it has, by names alone. Opens nothing and imports little: TAB waits for it."""

from __future__ import annotations

import os

FOLDER = "aml_config"
COMPUTE_SUFFIX = ".compute"
RUNCONFIG_SUFFIX = ".runconfig"
OLD_SUFFIX = ".amb"  # of run configurations until June 2017
GPU_PACKAGES = "conda_dependencies_gpu.yml"  # what samples call the second set of packages


def find_root(start: str) -> str | None:
    """The folder of the project that a folder belongs to: the nearest one at or above it."""
    folder = os.path.realpath(start)
    while True:
        # os.path.isdir is False for what may not be looked at; Path.is_dir raises.
        if os.path.isdir(os.path.join(folder, FOLDER)) or os.path.isfile(
            os.path.join(folder, ".azureml", "project.json")
        ):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def leads_out(path: str | os.PathLike[str], root: str | os.PathLike[str]) -> bool:
    """Whether a path of a project ends outside of it, by its own components or through a link."""
    return not os.path.realpath(path).startswith(os.path.join(os.path.realpath(root), ""))


def list_names(folder: str, *suffixes: str) -> list[str]:
    """Names of the files in aml_config that end so, without their ends, sorted. May raise OSError."""
    try:
        files = os.listdir(folder)
    except FileNotFoundError:
        return []
    stems = {file.removesuffix(suffix) for suffix in suffixes for file in files if file.endswith(suffix)}
    return sorted(stem for stem in stems if is_plain_name(stem))


def is_plain_name(name: str) -> bool:
    """Whether a name can be the stem of a file in aml_config and leads nowhere else."""
    return (
        0 < len(name) <= 200
        and name[0] not in "-."
        and name.isprintable()
        and not any(sign in name for sign in '/\\:*?"<>|')
        and name == name.strip()
    )
