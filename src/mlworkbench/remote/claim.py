"""The claim on a run: whoever renames its folder into place first supervises the run."""

from __future__ import annotations

import os

from .restart import origin
from .shared import machine
from .shared.failpoint import failpoint
from .shared.files import read_json, write_part
from .shared.layout import RunFolder


def claim(run: RunFolder, nonce: str) -> bool:
    """Win the run by one rename. After a lost answer the owner tells whether it was us."""
    mine = "%s.%s" % (run.claim, nonce)
    os.makedirs(mine, mode=0o700, exist_ok=True)
    owner = dict(origin(), nonce=nonce, pid=os.getpid(), start=machine.start_time(os.getpid()))
    write_part(os.path.join(mine, "owner.json"), owner)
    failpoint("claiming")
    try:
        os.rename(mine, run.claim)
        machine.sync_folder(run.path)
        return True
    except OSError:
        return has_claim(run, nonce)


def has_claim(run: RunFolder, nonce: str) -> bool:
    holder = read_json(run.owner)
    return bool(holder and holder.get("nonce") == nonce)
