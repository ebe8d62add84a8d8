"""``start_run``: several runs in one process, such as a notebook."""

import os

from ._log import start_new_file
from ._records import set_tags
from ._run import begin_local_run, current_folder, end_local_run, may_start_runs, run
from ._values import plain_name


def start_run(name=None, tags=None):
    """Start a run: ``with start_run(name="trial 3"): …``. The end of the block ends it.

    Without ``with``, the run ends when ``end()`` is called, the next run starts, or the process exits. In a script that
    was submitted with mlw, everything is logged to the submitted run, and no other run starts.
    """
    if name is not None:
        name = plain_name(name, "a run's name")
    if may_start_runs():
        _end("completed")
        begin_local_run(name)
    started = StartedRun(run.id, run.folder, os.getpid())
    set_tags(tags or {})
    return started


class StartedRun(object):
    """A run of this process, or the submitted run."""

    def __init__(self, run_id, folder, pid):
        self.id, self.folder, self._pid = run_id, folder, pid

    @property
    def outputs(self):
        return os.path.join(self.folder, "work", "outputs") if self.folder else None

    def end(self, status="completed", cause=None):
        """End the run; do nothing if it has ended, or if it was submitted."""
        if may_start_runs() and self.folder == current_folder() and self._pid == os.getpid():
            _end(status, cause)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.end()
        elif issubclass(kind, KeyboardInterrupt):
            self.end("cancelled", "interrupted")
        else:
            self.end("failed", "%s: %s" % (kind.__name__, value))

    def __repr__(self):
        return "<run %s>" % self.id


def _end(status, cause=None):
    if current_folder() is not None:
        start_new_file()
        end_local_run(status, cause)
