"""A run in a store of MLflow that the script created itself."""

from __future__ import annotations

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Tuple

    Point = Tuple[str, float, int, int]  # name, value, time in milliseconds, step

MAX_ENTRIES = 10000  # parameters, tags, or metrics of a run
PARENT = "mlflow.parentRunId"
_STATUS = {
    "FINISHED": "completed",
    "FAILED": "failed",
    "KILLED": "cancelled",
    "RUNNING": "running",
    "SCHEDULED": "queued",
}
_IGNORED_TAGS = frozenset((PARENT, "mlflow.loggedArtifacts", "mlflow.log-model.history"))
_MAX_TIME = 10**14  # milliseconds


class UnreadableStore(Exception):
    """A store that cannot be read. The argument is the reason."""


class StoredRun:
    """The data of a run except its metrics.

    ``fields`` are ``run_id``, ``name``, ``status``, ``start_time``, ``end_time``, ``lifecycle_stage``, and
    ``artifact_uri``, as MLflow stores them. An unknown status raises KeyError.
    """

    def __init__(self, fields: Dict[str, Any], params: Dict[str, str], tags: Dict[str, str]) -> None:
        self.id, self.name = str(fields["run_id"]), str(fields.get("name") or "")
        self.status = _STATUS[fields["status"]]
        self.started = as_milliseconds(fields["start_time"])
        self.ended = as_milliseconds(fields.get("end_time"))  # 0 if unknown
        self.deleted = fields["lifecycle_stage"] == "deleted"
        self.artifacts = str(fields.get("artifact_uri") or "")  # URI of the folder
        self.params = params
        self.parent = tags.get(PARENT)
        self.tags = {tag: value for tag, value in tags.items() if tag not in _IGNORED_TAGS}

    def facts(self) -> Dict[str, Any]:
        """Return the fields of a child record. ``started`` is always among them."""
        facts: Dict[str, Any] = {"name": self.name, "status": self.status, "started": self.started / 1000.0}
        if self.status in ("completed", "failed", "cancelled") and self.ended:
            facts["ended"] = self.ended / 1000.0
        return facts


def as_milliseconds(value: Any) -> int:
    """Return a time from a store; 0 for values that are not a time."""
    if isinstance(value, str):
        value = int(value) if value.isdigit() and len(value) < 15 else 0
    is_valid = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_TIME
    return value if is_valid else 0
