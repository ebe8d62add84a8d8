"""MLflow's door to this run: the functions that the entry points in ``mlworkbench_inrun-1.dist-info`` name.

MLflow loads them with every ``import mlflow``, so nothing is imported here before it is used. The plan sets
``MLFLOW_TRACKING_URI=mlw:run``; a script, or the user, that names another server gets that one.
"""


def tracking_store(store_uri=None, artifact_uri=None):
    """For ``mlw:``: MLflow's own file store inside the run's folder, which tells us what it writes."""
    from ._store import open_store  # noqa: PLC0415 - every import of mlflow would wait for it

    return open_store()


def model_registry_store(store_uri=None, tracking_uri=None):
    """For ``mlw:``: models registered in a run are known in that run."""
    from ._registry import open_registry  # noqa: PLC0415 - every import of mlflow would wait for it

    return open_registry()


def artifact_repository(artifact_uri, *args, **kwargs):
    """For ``file:``: MLflow's own folder of artifacts, which tells us what is put below outputs/."""
    from ._artifacts import open_repository  # noqa: PLC0415 - every import of mlflow would wait for it

    return open_repository(artifact_uri, *args, **kwargs)
