"""``from azureml.logging import get_azureml_logger``: the original's logger, writing into this run."""

from mlworkbench._log import flush, log
from mlworkbench._outputs import write_text


class Handle(object):
    """What a call gives back: the original logged in the background, and ``wait`` made sure of it."""

    __slots__ = ()

    def wait(self):
        """Return when everything logged so far is written."""
        flush()


class Logger(object):
    __slots__ = ()

    def log(self, name, value):
        """Log one value; logging a name again makes a series."""
        log(name, value)
        return _handle

    def upload(self, artifact_path, text):
        """Store a text as ``outputs/<artifact_path>``."""
        write_text(artifact_path, text)
        return _handle


_handle = Handle()
_logger = Logger()


def get_azureml_logger():
    return _logger
