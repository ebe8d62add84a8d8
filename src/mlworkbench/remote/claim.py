"""Claim an attempt of a run: the first process that renames its claim folder into place supervises it.

The claim of a newer attempt fences older ones. Their supervisors end their processes and write nothing outside of
their own folder.
"""

from __future__ import annotations

import os

from .allocation import current
from .restart_detection import origin
from .shared import machine
from .shared.atomic_files import read_json, write_part
from .shared.failpoint import failpoint
from .shared.layout import RunFolder


def claim(run: RunFolder, nonce: str) -> bool:
    """Claim the run with an atomic rename. Return whether this claim succeeded.

    After a lost response, the request is repeated with the same nonce, which ``owner.json`` contains.
    """
    temporary = "%s.%s" % (run.claim, nonce)
    os.makedirs(temporary, mode=0o700, exist_ok=True)
    owner = dict(origin(), nonce=nonce, pid=os.getpid(), start=machine.start_time(os.getpid()))
    owner.update(current().facts)
    write_part(os.path.join(temporary, "owner.json"), owner)
    failpoint("claiming")
    try:
        os.rename(temporary, run.claim)
        machine.sync_folder(os.path.dirname(run.claim))
        return True
    except OSError:
        return has_claim(run, nonce)


class Superseded(Exception):
    """Exception for an attempt that must stop, because a newer one has been claimed."""


class Interrupted(Superseded):
    """Exception for an attempt that a scheduler ends without ending the run: another execution of its job follows."""


def is_superseded(run: RunFolder) -> bool:
    """Return whether a newer attempt has been claimed."""
    return os.path.exists(run.at(run.attempt + 1).owner)


def require_newest(run: RunFolder) -> None:
    """Raise Superseded if a newer attempt has been claimed."""
    if is_superseded(run):
        raise Superseded


def has_claim(run: RunFolder, nonce: str) -> bool:
    owner = read_json(run.owner)
    return bool(owner and owner.get("nonce") == nonce)
