"""Where MLflow's files of this run are, and how its file store is opened."""

import os
import threading
from contextlib import contextmanager

from .._run import run

_ALLOW = "MLFLOW_ALLOW_FILE_STORE"
_allowing = threading.Lock()


def root():
    """The folder of the file store. Of the run's folder, containers can write to work/ and metrics/ only."""
    return os.path.join(run.folder, "work", ".mlflow") if run.folder else os.path.abspath("mlruns")


def artifact_root():
    """Artifacts of all MLflow runs but the first, whose artifacts are outputs/ itself."""
    return os.path.join(run.outputs, "mlflow") if run.folder else root()


@contextmanager
def file_store_allowed():
    """MLflow 3.13 and newer open their file store only where this variable stands.

    Not for longer than we need it: what the script itself does with MLflow stays as it is anywhere else.
    """
    with _allowing:
        before = os.environ.get(_ALLOW)
        os.environ[_ALLOW] = "true"
        try:
            yield
        finally:
            if before is None:
                os.environ.pop(_ALLOW, None)
            else:
                os.environ[_ALLOW] = before


def below_outputs(path):
    """The path below outputs/, with "/"; None if it is elsewhere."""
    if not run.outputs:
        return None
    relative = os.path.relpath(os.path.realpath(path), os.path.realpath(run.outputs))
    inside = relative.split(os.sep)[0] not in (os.curdir, os.pardir) and not os.path.isabs(relative)
    return relative.replace(os.sep, "/") if inside else None
