"""``azureml.core.run.Run``: the run object of Azure ML Workbench."""

from mlworkbench._log import record
from mlworkbench._outputs import copy_in, write_bytes
from mlworkbench._values import plain_name

from mlworkbench import flush as _flush
from mlworkbench import log as _log
from mlworkbench import log_figure, log_file, set_tag
from mlworkbench import log_image as _log_image
from mlworkbench import log_table as _log_table
from mlworkbench import run as _run


class Run(object):
    """The run of this script, as returned by ``Run.get_context()``. There is only one."""

    __slots__ = ()

    @classmethod
    def get_context(cls, allow_offline=True, **_):
        return cls()

    get_submitted_run = get_context

    @property
    def id(self):
        return _run.id

    def log(self, name, value, description="", step=None):
        """Log one value. Logging a name again creates a series."""
        _log(name, value, step)

    def log_list(self, name, value, description=""):
        """Log a list. A list of numbers is displayed as a chart."""
        _log(name, list(value))

    def log_row(self, name, description=None, **columns):
        """Log a row: ``log_row("Y over X", x=1, y=0.4)``. Logging a name again creates a table."""
        record("row", {"name": plain_name(name), "row": columns})

    def log_table(self, name, value, description=""):
        """Log a table: ``log_table("Y over X", {"x": [1, 2], "y": [0.6, 0.7]})``."""
        _log_table(name, value)

    def log_image(self, name, path=None, plot=None, description=""):
        """Log an image file, or a matplotlib plot (or pyplot itself)."""
        if (path is None) == (plot is None):
            raise ValueError("log_image needs either path or plot")
        if plot is None:
            _log_image(name, path)
        else:
            log_figure(name, plot)

    def upload_file(self, name, path_or_stream, datastore_name=None):
        """Store a file, or the content of a stream, as ``outputs/<name>``."""
        if callable(getattr(path_or_stream, "read", None)):
            data = path_or_stream.read()
            stored = write_bytes(name, data.encode("utf-8") if isinstance(data, str) else data)
        else:
            stored = copy_in(path_or_stream, name)
        if stored is not None:
            record("file", {"path": stored, "as": "file", "name": name})

    def upload_files(self, names, paths, **_):
        if len(names) != len(paths):
            raise ValueError("upload_files needs as many names as paths")
        for nth, name in enumerate(names):
            self.upload_file(name, paths[nth])

    def upload_folder(self, name, path, datastore_name=None):
        log_file(path, name)

    def tag(self, key, value=None):
        set_tag(key, "" if value is None else value)

    def flush(self, timeout_seconds=300):
        """Block until everything logged so far is written."""
        _flush()

    def complete(self, _set_status=True):
        """Record that the script is complete. The exit code determines the run's final status."""
        record("ended", {"status": "completed"})
        _flush()

    def fail(self, error_details=None, error_code=None, _set_status=True):
        record("ended", {"status": "failed", "why": None if error_details is None else str(error_details)})
        _flush()
