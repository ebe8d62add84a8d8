"""A request for GPUs that the target can never fulfil, found before the run is recorded."""

from __future__ import annotations

from dataclasses import asdict

from ..errors import LaunchError, UsageError
from ..hosts.gpus import ask_gpus
from ..hosts.host import Host
from ..remote.gpus.choice import Impossible, candidates
from ..remote.shared.gpu_request import EXAMPLES, LIST, parse


def refuse_unmatched(text: str, target: str, host: Host) -> None:
    """A model, a number or a UUID that no GPU of the target has. Requests by count are decided on the target."""
    try:
        request = parse(text)
    except ValueError:
        return  # found elsewhere
    if not request.model and request.kind != LIST:
        return
    looked = ask_gpus(host)
    found = [one for one in asdict(looked)["gpus"] if one["index"] is not None]
    try:
        candidates(request, {"gpus": found, "problem": looked.problem})
    except Impossible as error:
        if not found:
            raise LaunchError(f"--gpus {text}: {error}", f"see: mlw gpus -t {target}") from None
        raise UsageError(f"--gpus {text}: {error}", f"see: mlw gpus -t {target}; examples: {EXAMPLES}") from None
