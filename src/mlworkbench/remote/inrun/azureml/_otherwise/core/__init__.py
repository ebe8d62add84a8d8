"""Fallback for ``from azureml.core import Run`` if no package ``azureml.core`` is installed."""

from .run import Run

__all__ = ["Run"]
