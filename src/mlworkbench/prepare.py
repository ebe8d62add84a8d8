"""An environment ahead of the run that needs it: built on the target, watched from here, by whoever asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .config.keys import DEFAULT_IMAGE
from .errors import HostError, LaunchError
from .hosts.host import Host
from .model import Compute, JsonDict
from .targets.ground import Ground
from .targets.target import Stock

_WAIT = 5.0
_MOST_SENT = 6
_RUN = "ahead"  # no run: the verbs of the far end are asked by one


def build_ahead(
    host: Host,
    lock: JsonDict,
    image: JsonDict | None,
    stock: Stock,
    tell: Callable[[bytes], None],
    *,
    everything: bool = False,
    pack: bool = False,
) -> None:
    """Until it is ready; with ``pack`` for the executors of a cluster, too. Going away does not stop it.

    Raises LaunchError if it cannot be built.
    """
    message: dict[str, Any] = {"lock": lock, "container": image, "everything": everything, "pack": pack}
    for _ in range(_MOST_SENT):
        answer = host.call("build", _RUN, [], message)
        if not answer.get("lacks"):
            break
        host.send_packages(stock.packages(lock, answer), stock.progress)
    if not answer.get("ok"):
        problem = answer.get("problem") or "packages were sent, and do not arrive"
        raise LaunchError(f"the environment could not be built: {problem}")
    offset = 0
    while answer.get("state") == "building":
        answer = host.ask({"do": "built", "lock": lock, "offset": offset, "wait": _WAIT, "pack": pack})
        if not answer.get("ok"):
            raise HostError(f"the target could not answer: {answer.get('problem')}")
        offset = int(answer.get("offset") or offset)
        tell(str(answer.get("said") or "").encode())
    if answer.get("state") != "ready":
        words, _, hint = str(answer.get("problem")).partition("; hint: ")
        raise LaunchError(f"the environment could not be built: {words.splitlines()[0]}", hint or "the rest is above")


def image_of(compute: Compute, ground: Ground) -> JsonDict | None:
    """What is to be pulled, and by whom."""
    if ground.engine is None:
        return None
    return {
        "image": compute.base_docker_image or DEFAULT_IMAGE,
        "engine": ground.engine.kind,
        "program": ground.engine.program,
        "socket": ground.engine.socket,
        "registry": compute.registry_username,
    }
