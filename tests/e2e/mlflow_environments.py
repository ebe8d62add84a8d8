"""A user's Python with MLflow and what it logs for: the newest MLflow, or the last one before 3."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.pythons import kept
from tests.e2e.test_environment_frameworks import find_wheels

NEWEST, BEFORE = "mlflow>=3", "mlflow<3"
_PACKAGES = ["scikit-learn", "matplotlib", "pandas", "pillow", "tensorflow-cpu", "tensorboard"]


def mlflow_python(version: str) -> Path:
    """Nothing of ours is in it."""
    found = find_wheels()
    lightning = ["--find-links", str(found[0]), f"torch=={found[1]}", "lightning"] if found else []
    if version == NEWEST:
        return kept("mlflow-newest", NEWEST, *_PACKAGES, *lightning)
    # It asks for any SQLAlchemy 2, and cannot use 2.1.
    return kept("mlflow-before-3", BEFORE, "sqlalchemy<2.1", *_PACKAGES, *lightning)
