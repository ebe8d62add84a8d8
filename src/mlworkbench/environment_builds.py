"""An environment ahead of the run that needs it: built on the target, watched from here, by whoever asks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .config.keys import DEFAULT_IMAGE
from .errors import LaunchError, NotFetched
from .hosts.host import Host
from .hosts.replies import Reply
from .model import Compute, JsonDict
from .remote.shared.network_errors import NOT_FETCHED
from .targets.ground import Ground
from .targets.target import Stock

_WAIT = 5.0
_RUN = "ahead"  # no run: the verbs of the far end are asked by one


@dataclass(frozen=True)
class Pull:
    """An image that is to be there, of which engine, and the password of its registry if it has one."""

    container: JsonDict
    secrets: dict[str, str]

    @property
    def lock(self) -> JsonDict:
        """In the place of an environment's, where there is none to build."""
        known = json.dumps(self.container, sort_keys=True).encode()
        return {"kind": "image", "digest": hashlib.sha256(known).hexdigest()}


def build_ahead(
    host: Host,
    lock: JsonDict,
    image: Pull | None,
    stock: Stock,
    tell: Callable[[bytes], None],
    *,
    everything: bool = False,
    pack: bool = False,
) -> None:
    """Until it is ready, and the image there; with ``pack`` for the executors of a cluster, too.

    Going away does not stop it. Raises LaunchError if it cannot be built, NotFetched if there is no way to its parts.
    """
    message: dict[str, Any] = {"lock": lock, "everything": everything, "pack": pack}
    if image:
        message |= {"container": image.container, "secrets": image.secrets}
    reply = Reply(host.identity, stock.supply(host, lambda: host.call("build", _RUN, [], message), lock))
    if not reply.ok:
        problem = reply.problem if reply.text("problem") else "packages were sent but did not arrive"
        raise LaunchError(f"{_failed(lock)}: {problem}")
    offset = 0
    while reply.text("state") == "building":
        request = {"do": "built", "lock": lock, "offset": offset, "wait": _WAIT, "pack": pack}
        reply = Reply(host.identity, host.ask(request)).require_ok("the target reported an error")
        offset = reply.whole("offset") or offset
        tell(reply.text("said").encode(errors="replace"))
    if reply.text("state") != "ready":
        failure = reply.failure
        kind = NotFetched if failure.code == NOT_FETCHED else LaunchError
        hint, page = failure.hint or "see the output above", failure.explain or "environment-failed"
        raise kind(f"{_failed(lock)}: {failure.message}", hint, more=page, code=failure.code)


def _failed(lock: JsonDict) -> str:
    return "cannot pull the image" if lock["kind"] == "image" else "cannot build the environment"


def image_of(compute: Compute, ground: Ground, password: Callable[[str, str], str]) -> Pull | None:
    """What is to be pulled, and by whom. ``password`` is asked for that of a user at a registry."""
    if ground.engine is None:
        return None
    from .remote.shared.containers import REGISTRY_PASSWORD  # noqa: PLC0415 - for containers only
    from .targets.container import options_for, registry_of, user_in  # noqa: PLC0415

    image = compute.base_docker_image or DEFAULT_IMAGE
    registry = registry_of(compute, image)
    container = {
        "image": image,
        "engine": ground.engine.kind,
        "program": ground.engine.program,
        "socket": ground.engine.socket,
        "registry": registry,
        # For source packages, which are built in it as this user.
        "user": user_in(ground.engine, ground.uid, ground.gid),
        "options": list(options_for(ground.engine)),
        "memory": compute.memory,
        "cpus": compute.cpus,
    }
    secrets = {REGISTRY_PASSWORD: password(registry["server"], registry["username"])} if registry else {}
    return Pull(container, secrets)
