"""Locations of MLflow's files in this run."""

import os

from .._run import run


def store_root():
    """Return the folder of the tracking store; the current folder if nothing is recorded.

    It is below work/, because containers can write only to work/ and metrics/ in the run folder.
    """
    return os.path.join(run.folder, "work", ".mlflow") if run.folder else os.getcwd()


def artifact_root():
    """Return the folder for artifacts of all MLflow runs except the first, which uses outputs/ itself."""
    return os.path.join(run.outputs, "mlflow") if run.folder else os.path.abspath("mlruns")


def database_path():
    """Return the file of MLflow's database. It is among the outputs, so that it is collected with the run."""
    return os.path.join(artifact_root() if run.folder else store_root(), "mlflow.db")


def create_root():
    """Create the folder of the store, and return it."""
    folder = store_root()
    os.makedirs(folder, exist_ok=True)
    return folder


def relative_to_outputs(path):
    """Return the path relative to outputs/, separated by "/"; None if it is outside."""
    if not run.outputs:
        return None
    relative = os.path.relpath(os.path.realpath(path), os.path.realpath(run.outputs))
    inside = relative.split(os.sep)[0] not in (os.curdir, os.pardir) and not os.path.isabs(relative)
    return relative.replace(os.sep, "/") if inside else None
