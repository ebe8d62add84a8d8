"""Which run this process belongs to, as the supervisor told it through the environment."""

import os
import sys


class Run(object):
    """The run around this process; every field is None outside a run."""

    __slots__ = ("folder", "id", "outputs")

    def __init__(self, run_id, folder):
        self.id = run_id or None
        self.folder = os.path.abspath(folder) if folder else None
        self.outputs = os.path.join(self.folder, "work", "outputs") if folder else None

    def __repr__(self):
        return "<run %s>" % self.id if self.folder else "<not inside a run>"


run = Run(os.environ.get("MLW_RUN_ID"), os.environ.get("MLW_RUN_FOLDER"))

_told = set()


def tell_once(subject, message):
    """Say it on stderr, the first time only; a script may have closed or replaced its stderr."""
    if subject in _told:
        return
    _told.add(subject)
    try:
        sys.stderr.write("mlworkbench: %s\n" % message)
        sys.stderr.flush()
    except Exception:
        pass


def tell_outside():
    tell_once("outside", "not inside a run, metrics are not recorded")
