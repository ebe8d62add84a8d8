"""Runs as an MLflow server returns them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import HostError
from ...model import JsonDict


@dataclass(frozen=True)
class RemoteRun:
    """The state of a run on the server."""

    id: str
    experiment_id: str
    artifacts: str
    params: dict[str, str]
    tags: dict[str, str]
    metrics: frozenset[str]


def parse_run(run: Any) -> RemoteRun:
    response = {"run": run}
    info, data = get_object(get_object(response, "run"), "info"), run.get("data") or {}

    def pairs(name: str) -> dict[str, str]:
        return {str(pair.get("key")): str(pair.get("value", "")) for pair in data.get(name) or []}

    return RemoteRun(
        str(info.get("run_id") or info.get("run_uuid")),
        str(info.get("experiment_id") or "0"),
        str(info.get("artifact_uri") or ""),
        pairs("params"),
        pairs("tags"),
        frozenset(pairs("metrics")),
    )


def get_object(response: Any, name: str) -> JsonDict:
    value = response.get(name) if isinstance(response, dict) else None
    if not isinstance(value, dict):
        raise HostError(f"the response of the server has no {name}", "check that it is an MLflow server")
    return value
