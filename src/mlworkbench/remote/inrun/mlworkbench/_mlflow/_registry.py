"""The model registry of a run: MLflow's file store."""

from mlflow.store.model_registry.file_store import FileStore

from .._log import record
from .._run import warn_once
from ._location import file_store_allowed, store_root
from ._store import create_root


class Registry(FileStore):
    def create_model_version(self, name, source, run_id=None, *args, **kwargs):
        version = super(Registry, self).create_model_version(name, source, run_id, *args, **kwargs)
        record("tag", {"name": "mlflow.registered.%s" % name, "value": str(version.version)})
        warn_once("registry", "MLflow's model registry lasts for this run only; the model itself is in outputs/")
        return version


def open_registry():
    create_root()
    with file_store_allowed():
        return Registry(store_root())
