"""A user's Python with MLflow and the libraries that it logs: the newest MLflow, or the last 2.x."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.python_environments import cached_environment
from tests.e2e.test_environment_frameworks import find_wheels

NEWEST, BEFORE = "mlflow>=3", "mlflow<3"
_PACKAGES = ["scikit-learn", "matplotlib", "pandas", "pillow", "tensorflow-cpu", "tensorboard"]


def mlflow_python(version: str) -> Path:
    """Return an interpreter with this version of MLflow and without any mlw package."""
    wheels = find_wheels()
    lightning = ["--find-links", str(wheels[0]), f"torch=={wheels[1]}", "lightning"] if wheels else []
    if version == NEWEST:
        return cached_environment("mlflow-newest", NEWEST, *_PACKAGES, *lightning)
    # MLflow 2 accepts any SQLAlchemy 2 but does not work with 2.1.
    return cached_environment("mlflow-before-3", BEFORE, "sqlalchemy<2.1", *_PACKAGES, *lightning)
