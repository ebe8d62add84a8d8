"""Collect the outputs of a run at its end: kept files, the list of outputs, and files that are not kept."""

from __future__ import annotations

from .checkpoints import checkpoint_size
from .journal import log
from .kept_files import collect_kept, find_unkept
from .output_scan import record_outputs_with_retries
from .shared.layout import RunFolder

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

    from .run_spec import Spec
    from .script_files import ScriptFiles


def collect_outputs(
    run: RunFolder, spec: Spec, files: ScriptFiles, is_canceled: Callable[[], bool], waiting: Callable[[], None]
) -> Dict[str, Any]:
    """List the outputs. Errors must not prevent the ending from being recorded.

    A cancel shortens the listing. A timeout does not: a script that was ended by a timeout has often just
    written a checkpoint.
    """
    try:
        omitted = collect_kept(run, [*(spec.get("keep") or []), *files.keep])
        result = record_outputs_with_retries(run, is_canceled, waiting)
        left_out = files.unread.lines() + omitted + result.get("left_out", [])
        unkept = find_unkept(run, files.recorded)
        return dict(result, left_out=left_out, unkept=unkept, checkpoints=checkpoint_size(run))
    except Exception as error:  # noqa: BLE001 - outputs may be anything
        log("the outputs could not be listed: %s: %s" % (type(error).__name__, error))
        return {"outputs": None, "output_bytes": None}
