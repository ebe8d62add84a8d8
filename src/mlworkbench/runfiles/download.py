"""The outputs of a run, or some of them, in a folder of the user's."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import islice

from ..errors import HistoryError, UnknownName, UsageError
from ..remote.folder import RunFolder
from .beneath import refusal
from .manifest import Output, Outputs, outputs_of
from .transfer import Outcome, Report, Transfer

_SHOWN = 20  # names of outputs in a message


def download(
    run: RunFolder, folder: str, artifacts: Sequence[str] = (), *, overwrite: bool = False, report: Report | None = None
) -> tuple[Outcome, bool]:
    """Bring the outputs to ``folder``; tells what became of them, and whether their digests were on record."""
    outputs, recorded = outputs_of(run)
    wanted = [plain_name(artifact) for artifact in artifacts]
    check_known(wanted, outputs)
    with opened(run, usable_folder(folder), overwrite, report) as transfer:
        for one in outputs():
            if not wanted or any(covers(name, one.path) for name in wanted):
                transfer.add(one)
        return transfer.finish(), recorded


def check_known(wanted: Sequence[str], outputs: Outputs) -> None:
    """Before anything is copied: a name that fits no output is a mistake."""
    missing = set(wanted)
    for one in outputs() if missing else ():
        missing = {name for name in missing if not covers(name, one.path)}
        if not missing:
            return
    for name in sorted(missing):
        raise _unknown(name, outputs())


def opened(run: RunFolder, place: str, overwrite: bool, report: Report | None) -> Transfer:
    try:
        return Transfer(run.outputs, place, overwrite=overwrite, report=report)
    except FileNotFoundError:
        raise HistoryError(f"the outputs of the run are gone: {run.outputs}") from None
    except OSError as error:
        raise HistoryError(f"cannot use {run.outputs}: {error.strerror}", "is it a link?") from None


def usable_folder(folder: str) -> str:
    """The folder, made if need be. A link to one is the user's own; below it none is followed."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot use {folder}: {error.strerror}", "name another folder with -d") from None
    return os.path.realpath(folder)


def plain_name(artifact: str) -> str:
    """An output as its list spells it. The original's names began with ``outputs/``."""
    parts = [part for part in artifact.split("/") if part not in ("", ".")]
    if parts[:1] == ["outputs"]:
        parts = parts[1:]
    name = "/".join(parts)
    if artifact.startswith("/") or (name and refusal(name)):
        raise UsageError(f"{artifact!r} is no output: {refusal(artifact) or 'the name is absolute'}")
    return name


def covers(wanted: str, path: str) -> bool:
    """Whether ``wanted`` is this output, or a folder above it."""
    return not wanted or path == wanted or path.startswith(wanted + "/")


def _unknown(name: str, outputs: Iterable[Output]) -> UnknownName:
    known = [one.path for one in islice(outputs, _SHOWN + 1)]
    more = "see all with: mlw history download -r RUN, or in outputs.json" if len(known) > _SHOWN else None
    return UnknownName("output", name, known[:_SHOWN], more)
