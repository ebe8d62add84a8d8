"""MLflow's folders of artifacts. All that are below outputs/ come home with it; here we learn what they are."""

import os
import re

from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

from .._log import record
from ._place import below_outputs, root

_KINDS = {
    "image": "png jpg jpeg gif webp bmp svg",
    "figure": "html htm pdf",
    "table": "csv tsv parquet",
    "text": "txt md log",
}
_SHOWN = ("image", "figure", "table")
KIND_OF = {ending: kind for kind, endings in _KINDS.items() for ending in endings.split()}

# log_image(key=…, step=…): the name says both. "%" stood for "+", and "#" for "~", before MLflow 3.
_STEPPED = re.compile(r"images/([^/]+?)[+%]step[+%](-?\d+)[+%]timestamp[+%]\d+[+%][^/]*\Z")
_OF_RUN = re.compile(r"mlflow/([0-9a-f]{32})/(.+)\Z")


class Artifacts(LocalArtifactRepository):
    """Below outputs/."""

    def log_artifact(self, local_file, artifact_path=None):
        super(Artifacts, self).log_artifact(local_file, artifact_path)
        tell(os.path.join(self.artifact_dir, artifact_path or "", os.path.basename(local_file)), True)

    def log_artifacts(self, local_dir, artifact_path=None):
        """Also of a folder that is there already, ``log_artifacts("outputs")``, or that holds outputs/."""
        source = os.path.realpath(local_dir)
        place = os.path.realpath(os.path.join(self.artifact_dir, artifact_path or ""))
        names = _names(source, place)
        if source == place:
            pass
        elif place.startswith(os.path.join(source, "")):
            for name in names:
                folder = "/".join(part for part in (artifact_path, os.path.dirname(name).replace(os.sep, "/")) if part)
                super(Artifacts, self).log_artifact(os.path.join(source, name), folder or None)
        else:
            super(Artifacts, self).log_artifacts(local_dir, artifact_path)
        for name in names:
            tell(os.path.join(place, name), False)


def _names(source, place):
    """The files in a folder, without those of the place that they shall go to, and without the store's own."""
    found = []
    others = (os.path.realpath(root()), place)
    for folder, folders, files in os.walk(source):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in others]
        found += [os.path.relpath(os.path.join(folder, name), source) for name in files]
    return found


def tell(path, single):
    """Record what the file is. In a folder of many, those that can be shown are enough: outputs/ lists all."""
    relative = below_outputs(path)
    kind = KIND_OF.get(os.path.splitext(path)[1][1:].lower())
    if relative is None or not (single or kind in _SHOWN):
        return
    belongs, name = owner_of(relative)
    stepped = _STEPPED.match(name)
    if stepped and ("+compressed." in name or "%compressed." in name):
        return  # the small copy of the picture before
    data = {"path": relative, "as": kind or "file"}
    if stepped:
        data["name"], data["step"] = re.sub("[~#]", "/", stepped.group(1)), int(stepped.group(2))
    data.update(belongs)
    record("file", data)


def owner_of(relative):
    """Whose artifact a path below outputs/ is, as part of a record, and its name there."""
    found = _OF_RUN.match(relative)
    return ({"run": found.group(1)}, found.group(2)) if found else ({}, relative)


def open_repository(artifact_uri, *args, **kwargs):
    plain = LocalArtifactRepository(artifact_uri, *args, **kwargs)
    inside = below_outputs(os.path.join(plain.artifact_dir, "any")) is not None
    return Artifacts(artifact_uri, *args, **kwargs) if inside else plain
