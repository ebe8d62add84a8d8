"""A user's Python with MLflow and the libraries that it logs: the newest MLflow, the last 2.x, or the oldest one."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.python_environments import cached_environment
from tests.e2e.test_environment_frameworks import wheels

NEWEST, BEFORE, OLDEST = "mlflow>=3", "mlflow<3", "mlflow==2.9.2"
_SQLALCHEMY = "sqlalchemy<2.1"  # MLflow 2 accepts any SQLAlchemy 2 but does not work with 2.1
_PACKAGES = ["scikit-learn", "matplotlib", "pandas", "pillow"]


def mlflow_python(version: str, framework: str = "scikit-learn") -> Path:
    """Return an interpreter with this version of MLflow, the framework, and without any mlw package.

    MLflow imports every framework that is installed when it logs a model, so each has its own environment.
    """
    if version == OLDEST:  # it imports pkg_resources
        return cached_environment("mlflow-oldest", OLDEST, _SQLALCHEMY, "setuptools<80")
    name, *packages = ("newest", NEWEST) if version == NEWEST else ("before-3", BEFORE, _SQLALCHEMY)
    return cached_environment(f"mlflow-{name}-{framework}", *packages, *_PACKAGES, *_framework(framework))


def _framework(name: str) -> list[str]:
    if name == "keras":
        return ["tensorflow-cpu", "tensorboard"]
    if name == "lightning":
        folder, version = wheels()
        return ["--find-links", str(folder), f"torch=={version}", "lightning"]
    return []
