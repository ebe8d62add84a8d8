"""``from azureml.sdk.data_collector import current_run``: the oldest import name of the logger."""

from azureml.logging import get_azureml_logger as current_run

__all__ = ["current_run"]
