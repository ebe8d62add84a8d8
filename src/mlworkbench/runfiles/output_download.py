"""Download run outputs to a folder that the user chooses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from ..errors import HistoryError, UnknownName, UsageError
from ..remote.shared.layout import RunFolder
from .output_manifest import Output, Outputs, outputs_of
from .safe_paths import SafeFolders, path_problem
from .staging import Staging, staging_key
from .verified_copy import Entries, Outcome, Report, Transfer

_MAX_SHOWN = 20  # maximum outputs in a message


def download(
    run: RunFolder, folder: str, artifacts: Sequence[str] = (), *, overwrite: bool = False, report: Report | None = None
) -> tuple[Outcome, bool]:
    """Copy the outputs to ``folder``. Return the outcome, and whether their digests are recorded."""
    outputs, recorded = outputs_of(run)
    names = [normalize_name(artifact) for artifact in artifacts]
    require_outputs(names, outputs)

    def entries() -> Iterator[tuple[Output, str]]:
        for output in outputs():
            if not names or any(covers(name, output.path) for name in names):
                yield output, output.path

    require_source(run)
    key = staging_key(run.path, *sorted(names))
    # Without digests, the content of an earlier attempt cannot be verified.
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
    """Copy files to a folder. Afterwards, the folder is complete, marked as unfinished, or absent."""
    try:
        staging = Staging(folder, key, fresh)
    except OSError as error:
        raise UsageError(f"cannot use {folder}: {error.strerror}", "choose another folder with -d") from None
    with (
        staging,
        Transfer(
            source, staging.target, atomic=staging.is_new, resumed=staging.resumed, overwrite=overwrite, report=report
        ) as transfer,
    ):
        outcome = transfer.run(entries)
        staging.publish()
        return outcome


def require_outputs(names: Sequence[str], outputs: Outputs) -> None:
    """Raise ``UnknownName`` for a name that matches no output, before copying anything."""
    missing = set(names)
    for output in outputs() if missing else ():
        missing = {name for name in missing if not covers(name, output.path)}
        if not missing:
            return
    for name in sorted(missing):
        raise _unknown_output(name, outputs())


def require_source(run: RunFolder) -> None:
    try:
        with SafeFolders(run.outputs):
            return
    except FileNotFoundError:
        raise HistoryError(f"the outputs of the run no longer exist: {run.outputs}") from None
    except OSError as error:
        raise HistoryError(f"cannot use {run.outputs}: {error.strerror}", "check whether it is a link") from None


def normalize_name(artifact: str) -> str:
    """Return the name as in the list of outputs. Azure ML Workbench prefixed names with ``outputs/``."""
    parts = [part for part in artifact.split("/") if part not in ("", ".")]
    if parts[:1] == ["outputs"]:
        parts = parts[1:]
    name = "/".join(parts)
    if artifact.startswith("/") or (name and path_problem(name)):
        raise UsageError(f"{artifact!r} is not a valid output name: {path_problem(artifact) or 'the name is absolute'}")
    return name


def covers(name: str, path: str) -> bool:
    """Return whether ``name`` is the output ``path`` or a folder that contains it. An empty name covers all outputs."""
    return not name or path == name or path.startswith(name + "/")


def _unknown_output(name: str, outputs: Iterable[Output]) -> UnknownName:
    paths = [output.path for output in islice(outputs, _MAX_SHOWN + 1)]
    hint = "download all with 'mlw history download -r RUN', or see outputs.json" if len(paths) > _MAX_SHOWN else None
    return UnknownName("output", name, paths[:_MAX_SHOWN], hint)
