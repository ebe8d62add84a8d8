"""The model registry of a run: MLflow's SQLite store, opened when the script first uses it."""

from mlflow.store.model_registry.abstract_store import AbstractStore

from .._log import record
from .._run import warn_once
from ._delegate import Database


class Registry(AbstractStore):
    def __init__(self):
        super(Registry, self).__init__()
        self._database = Database(_create)

    def create_model_version(self, name, *args, **kwargs):
        version = self._database.open().create_model_version(name, *args, **kwargs)
        record("tag", {"name": "mlflow.registered.%s" % name, "value": str(version.version)})
        warn_once("registry", "MLflow's model registry lasts for this run only; the model itself is in outputs/")
        return version


def _create(address):
    from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore  # noqa: PLC0415 - slow

    return SqlAlchemyStore(address)


def _delegated(name):
    def call(self, *args, **kwargs):
        return getattr(self._database.open(), name)(*args, **kwargs)

    call.__name__ = name
    return call


for _name in dir(AbstractStore):
    if not _name.startswith("_") and _name not in vars(Registry) and callable(getattr(AbstractStore, _name)):
        setattr(Registry, _name, _delegated(_name))
Registry.__abstractmethods__ = frozenset()


def open_registry():
    return Registry()
