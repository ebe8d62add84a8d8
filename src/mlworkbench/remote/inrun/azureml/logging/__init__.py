"""``from azureml.logging import get_azureml_logger``: the logger of Azure ML Workbench, writing into this run."""

from mlworkbench._log import flush, log
from mlworkbench._outputs import write_text


class Handle(object):
    """Result of a logging call. Azure ML Workbench logged in the background, and ``wait`` waited for it."""

    __slots__ = ()

    def wait(self):
        """Wait until everything logged so far is written."""
        flush()


class Logger(object):
    __slots__ = ()

    def log(self, name, value):
        """Log one value. Logging a name again creates a series."""
        log(name, value)
        return _handle

    def upload(self, artifact_path, text):
        """Store text as ``outputs/<artifact_path>``."""
        write_text(artifact_path, text)
        return _handle


_handle = Handle()
_logger = Logger()


def get_azureml_logger():
    return _logger
