"""MLflow plugins for this run, named by the entry points in ``mlworkbench_inrun-1.dist-info``.

MLflow loads this module with every ``import mlflow``, so all imports are deferred. mlw sets
``MLFLOW_TRACKING_URI=mlw:run``; if a script or user specifies another server, that one is used.
"""


def tracking_store(store_uri=None, artifact_uri=None):
    """Return the store for ``mlw:``: journals in the run folder. It also records writes."""
    from ._store import open_store  # noqa: PLC0415 - every import of mlflow would wait for it

    return open_store()


def model_registry_store(store_uri=None, tracking_uri=None):
    """Return the registry for ``mlw:``, whose registered models exist for this run only."""
    from ._registry import open_registry  # noqa: PLC0415 - every import of mlflow would wait for it

    return open_registry()


def artifact_repository(artifact_uri, *args, **kwargs):
    """Return the repository for ``file:``: MLflow's artifact folder, which records files in outputs/."""
    from ._artifacts import open_repository  # noqa: PLC0415 - every import of mlflow would wait for it

    return open_repository(artifact_uri, *args, **kwargs)


def scorer_store(tracking_uri=None):
    """Return the store of scorers for ``mlw:``. It uses the tracking store, as for MLflow's databases."""
    from mlflow.genai.scorers.registry import MlflowTrackingStore  # noqa: PLC0415 - new in MLflow 3

    return MlflowTrackingStore(tracking_uri)
