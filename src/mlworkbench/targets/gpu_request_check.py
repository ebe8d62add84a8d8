"""Reject GPU requests that the target can never fulfill, before the run is recorded."""

from __future__ import annotations

from dataclasses import asdict

from ..errors import LaunchError, UsageError
from ..hosts.gpu_values import fetch_gpus
from ..hosts.host import Host
from ..remote.gpus.gpu_selection import GpuUnavailable, find_candidates
from ..remote.shared.gpu_request import EXAMPLES, LIST, parse


def refuse_unmatched(text: str, target: str, host: Host) -> None:
    """Raise an error if no GPU has the requested model, index, or UUID. The target checks counts."""
    try:
        request = parse(text)
    except ValueError:
        return  # another check reports invalid requests
    if not request.model and request.kind != LIST:
        return
    looked = fetch_gpus(host)
    gpus = [gpu for gpu in asdict(looked)["gpus"] if gpu["index"] is not None]
    try:
        find_candidates(request, {"gpus": gpus, "problem": looked.problem})
    except GpuUnavailable as error:
        if not gpus:
            raise LaunchError(f"--gpus {text}: {error}", f"see: mlw gpus -t {target}") from None
        raise UsageError(f"--gpus {text}: {error}", f"see: mlw gpus -t {target}; examples: {EXAMPLES}") from None
