"""The outputs of a run, or some of them, in a folder of the user's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from ..errors import HistoryError, UnknownName, UsageError
from ..remote.shared.layout import RunFolder
from .beneath import Beneath, refusal
from .manifest import Output, Outputs, outputs_of
from .stage import Stage, stage_key
from .transfer import Entries, Outcome, Report, Transfer

_SHOWN = 20  # names of outputs in a message


def download(
    run: RunFolder, folder: str, artifacts: Sequence[str] = (), *, overwrite: bool = False, report: Report | None = None
) -> tuple[Outcome, bool]:
    """Bring the outputs to ``folder``; tells what became of them, and whether their digests were on record."""
    outputs, recorded = outputs_of(run)
    wanted = [plain_name(artifact) for artifact in artifacts]
    check_known(wanted, outputs)

    def entries() -> Iterator[tuple[Output, str]]:
        for one in outputs():
            if not wanted or any(covers(name, one.path) for name in wanted):
                yield one, one.path

    check_source(run)
    key = stage_key(run.path, *sorted(wanted))
    # Without digests nothing tells what of an earlier attempt is still right.
    return fetch(run.outputs, folder, key, entries, fresh=not recorded, overwrite=overwrite, report=report), recorded


def fetch(
    source: str,
    folder: str,
    key: str,
    entries: Entries,
    *,
    fresh: bool = False,
    overwrite: bool = False,
    report: Report | None = None,
) -> Outcome:
    """Copy to a folder of the user's, which is there whole, or marked as unfinished, or not at all."""
    try:
        stage = Stage(folder, key, fresh)
    except OSError as error:
        raise UsageError(f"cannot use {folder}: {error.strerror}", "choose another folder with -d") from None
    with (
        stage,
        Transfer(
            source, stage.target, whole=stage.whole, resumed=stage.resumed, overwrite=overwrite, report=report
        ) as transfer,
    ):
        outcome = transfer.run(entries)
        stage.publish()
        return outcome


def check_known(wanted: Sequence[str], outputs: Outputs) -> None:
    """Before anything is copied: a name that fits no output is a mistake."""
    missing = set(wanted)
    for one in outputs() if missing else ():
        missing = {name for name in missing if not covers(name, one.path)}
        if not missing:
            return
    for name in sorted(missing):
        raise _unknown(name, outputs())


def check_source(run: RunFolder) -> None:
    try:
        with Beneath(run.outputs):
            return
    except FileNotFoundError:
        raise HistoryError(f"the outputs of the run no longer exist: {run.outputs}") from None
    except OSError as error:
        raise HistoryError(f"cannot use {run.outputs}: {error.strerror}", "check whether it is a link") from None


def plain_name(artifact: str) -> str:
    """An output as its list spells it. The original's names began with ``outputs/``."""
    parts = [part for part in artifact.split("/") if part not in ("", ".")]
    if parts[:1] == ["outputs"]:
        parts = parts[1:]
    name = "/".join(parts)
    if artifact.startswith("/") or (name and refusal(name)):
        raise UsageError(f"{artifact!r} is not a valid output name: {refusal(artifact) or 'the name is absolute'}")
    return name


def covers(wanted: str, path: str) -> bool:
    """Whether ``wanted`` is this output, or a folder above it."""
    return not wanted or path == wanted or path.startswith(wanted + "/")


def _unknown(name: str, outputs: Iterable[Output]) -> UnknownName:
    known = [one.path for one in islice(outputs, _SHOWN + 1)]
    more = "download all with 'mlw history download -r RUN', or see outputs.json" if len(known) > _SHOWN else None
    return UnknownName("output", name, known[:_SHOWN], more)
