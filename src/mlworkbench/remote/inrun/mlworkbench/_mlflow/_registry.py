"""The model registry of a run: MLflow's own, in files."""

from mlflow.store.model_registry.file_store import FileStore

from .._log import record
from .._run import tell_once
from ._place import file_store_allowed, root
from ._store import make_root


class Registry(FileStore):
    def create_model_version(self, name, source, run_id=None, *args, **kwargs):
        version = super(Registry, self).create_model_version(name, source, run_id, *args, **kwargs)
        record("tag", {"name": "mlflow.registered.%s" % name, "value": str(version.version)})
        tell_once("registry", "MLflow's model registry lasts for this run only; the model itself is in outputs/")
        return version


def open_registry():
    make_root()
    with file_store_allowed():
        return Registry(root())
