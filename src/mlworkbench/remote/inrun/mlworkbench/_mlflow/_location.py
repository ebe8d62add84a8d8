"""Locations of MLflow's files in this run, and how to open its file store."""

import os
import threading
from contextlib import contextmanager

from .._run import run

_ALLOW_VARIABLE = "MLFLOW_ALLOW_FILE_STORE"
_lock = threading.Lock()


def store_root():
    """Return the folder of the file store.

    It is below work/, because containers can write only to work/ and metrics/ in the run folder.
    """
    return os.path.join(run.folder, "work", ".mlflow") if run.folder else os.path.abspath("mlruns")


def artifact_root():
    """Return the folder for artifacts of all MLflow runs except the first, which uses outputs/ itself."""
    return os.path.join(run.outputs, "mlflow") if run.folder else store_root()


@contextmanager
def file_store_allowed():
    """Set the variable that MLflow 3.13 and newer require to open a file store.

    It is set only briefly, so that MLflow behaves as usual for the script.
    """
    with _lock:
        previous = os.environ.get(_ALLOW_VARIABLE)
        os.environ[_ALLOW_VARIABLE] = "true"
        try:
            yield
        finally:
            if previous is None:
                os.environ.pop(_ALLOW_VARIABLE, None)
            else:
                os.environ[_ALLOW_VARIABLE] = previous


def relative_to_outputs(path):
    """Return the path relative to outputs/, separated by "/"; None if it is outside."""
    if not run.outputs:
        return None
    relative = os.path.relpath(os.path.realpath(path), os.path.realpath(run.outputs))
    inside = relative.split(os.sep)[0] not in (os.curdir, os.pardir) and not os.path.isabs(relative)
    return relative.replace(os.sep, "/") if inside else None
