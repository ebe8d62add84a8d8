"""MLflow artifact folders.

Files in outputs/ are collected with the run; this module records their types.
"""

import os
import re

from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

from .._log import record
from .._run import run
from ._location import database_path, relative_to_outputs, store_root

_KINDS = {
    "image": "png jpg jpeg gif webp bmp svg",
    "figure": "html htm pdf",
    "table": "csv tsv parquet",
    "text": "txt md log",
}
_DISPLAYED = ("image", "figure", "table")
KIND_OF = {ending: kind for kind, endings in _KINDS.items() for ending in endings.split()}

# log_image(key=…, step=…) encodes both in the name. Before MLflow 3, "%" and "#" were used instead of "+" and "~".
_IMAGE_NAME = re.compile(r"images/([^/]+?)[+%]step[+%](-?\d+)[+%]timestamp[+%]\d+[+%][^/]*\Z")
_RUN_PATH = re.compile(r"mlflow/([0-9a-f]{32})/(.+)\Z")
# Other runs, the database, and the traces of an experiment.
_NOT_OF_FIRST_RUN = re.compile(r"mlflow/([0-9a-f]{32}|mlflow\.db(-[a-z]+)?|[0-9]{1,19})\Z")


class Artifacts(LocalArtifactRepository):
    """An artifact repository in outputs/."""

    def log_artifact(self, local_file, artifact_path=None):
        super(Artifacts, self).log_artifact(local_file, artifact_path)
        record_artifact(os.path.join(self.artifact_dir, artifact_path or "", os.path.basename(local_file)), True)

    def log_artifacts(self, local_dir, artifact_path=None):
        """Log a folder, even if it contains the target folder or is the target folder itself.

        An example of the latter is ``log_artifacts("outputs")``.
        """
        source = os.path.realpath(local_dir)
        target = os.path.realpath(os.path.join(self.artifact_dir, artifact_path or ""))
        names = _list_files(source, target)
        if source == target:
            pass
        elif target.startswith(os.path.join(source, "")):
            for name in names:
                folder = "/".join(part for part in (artifact_path, os.path.dirname(name).replace(os.sep, "/")) if part)
                super(Artifacts, self).log_artifact(os.path.join(source, name), folder or None)
        else:
            super(Artifacts, self).log_artifacts(local_dir, artifact_path)
        for name in names:
            record_artifact(os.path.join(target, name), False)

    def list_artifacts(self, path=None):
        """List the artifacts of this run. The outputs, where those of the first run are, contain more."""
        infos = super(Artifacts, self).list_artifacts(path)
        if os.path.realpath(self.artifact_dir) != os.path.realpath(run.outputs):
            return infos
        return [info for info in infos if not self._is_of_others(info.path)]

    def _is_of_others(self, path):
        if path != "mlflow":
            return bool(_NOT_OF_FIRST_RUN.match(path))
        names = os.listdir(os.path.join(self.artifact_dir, path))
        return bool(names) and all(_NOT_OF_FIRST_RUN.match("mlflow/" + name) for name in names)


def _list_files(source, target):
    """Return the files in a folder, except those in the target folder and in the store."""
    names, database = [], os.path.realpath(database_path())
    excluded = (os.path.realpath(store_root()), target)
    for folder, folders, files in os.walk(source):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in excluded]
        paths = [os.path.join(folder, name) for name in files]
        names += [os.path.relpath(path, source) for path in paths if path != database]
    return names


def record_artifact(path, single):
    """Record the type of a file.

    If a folder was logged (not ``single``), only displayable files are recorded: outputs/ lists all files anyway.
    """
    relative = relative_to_outputs(path)
    kind = KIND_OF.get(os.path.splitext(path)[1][1:].lower())
    if relative is None or not (single or kind in _DISPLAYED):
        return
    owner, name = owner_of(relative)
    match = _IMAGE_NAME.match(name)
    if match and ("+compressed." in name or "%compressed." in name):
        return  # thumbnail of the previous image
    data = {"path": relative, "as": kind or "file"}
    if match:
        data["name"], data["step"] = re.sub("[~#]", "/", match.group(1)), int(match.group(2))
    data.update(owner)
    record("file", data)


def owner_of(relative):
    """Return the MLflow run of a path in outputs/, as part of a record, and the path relative to the run's folder."""
    match = _RUN_PATH.match(relative)
    return ({"run": match.group(1)}, match.group(2)) if match else ({}, relative)


def open_repository(artifact_uri, *args, **kwargs):
    plain = LocalArtifactRepository(artifact_uri, *args, **kwargs)
    inside = relative_to_outputs(os.path.join(plain.artifact_dir, "any")) is not None
    return Artifacts(artifact_uri, *args, **kwargs) if inside else plain
