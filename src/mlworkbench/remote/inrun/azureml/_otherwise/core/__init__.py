"""``from azureml.core import Run``, where the package of that name is not installed."""

from .run import Run

__all__ = ["Run"]
