"""Build an environment on a target before a run needs it, and follow the build."""

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
from .targets.target import UploadSource
from .targets.target_facts import TargetFacts

_WAIT = 5.0
_RUN = "ahead"  # placeholder: requests to the target need a run ID


@dataclass(frozen=True)
class Pull:
    """An image to pull, its container engine, and the registry password if one is needed."""

    container: JsonDict
    secrets: dict[str, str]

    @property
    def lock(self) -> JsonDict:
        """A lock that identifies the image, for use when there is no environment to build."""
        content = json.dumps(self.container, sort_keys=True).encode()
        return {"kind": "image", "digest": hashlib.sha256(content).hexdigest()}


def build_in_advance(
    host: Host,
    lock: JsonDict,
    image: Pull | None,
    uploads: UploadSource,
    report: Callable[[bytes], None],
    *,
    everything: bool = False,
    pack: bool = False,
) -> None:
    """Build the environment, pull the image, and wait until both are ready.

    With ``pack``, the environment is also packed for Spark executors. Interrupting the wait does not
    stop the build. Raises LaunchError if the build fails, and NotFetched if packages cannot be
    downloaded.
    """
    message: dict[str, Any] = {"lock": lock, "everything": everything, "pack": pack}
    if image:
        message |= {"container": image.container, "secrets": image.secrets}
    reply = Reply(host.identity, uploads.call_with_uploads(host, lambda: host.call("build", _RUN, [], message), lock))
    if not reply.ok:
        problem = reply.problem if reply.text("problem") else "packages were sent but did not arrive"
        raise LaunchError(f"{_failed(lock)}: {problem}")
    offset = 0
    while reply.text("state") == "building":
        request = {"do": "built", "lock": lock, "offset": offset, "wait": _WAIT, "pack": pack}
        reply = Reply(host.identity, host.ask(request)).require_ok("the target reported an error")
        offset = reply.integer("offset") or offset
        report(reply.text("said").encode(errors="replace"))
    if reply.text("state") != "ready":
        failure = reply.failure
        kind = NotFetched if failure.code == NOT_FETCHED else LaunchError
        hint, page = failure.hint or "see the output above", failure.explain or "environment-failed"
        raise kind(f"{_failed(lock)}: {failure.message}", hint, more=page, code=failure.code)


def _failed(lock: JsonDict) -> str:
    return "cannot pull the image" if lock["kind"] == "image" else "cannot build the environment"


def image_of(compute: Compute, target_facts: TargetFacts, password: Callable[[str, str], str]) -> Pull | None:
    """Return the image to pull, or None if the target has no container engine.

    ``password`` is called with a registry server and a user name, and returns the password.
    """
    if target_facts.engine is None:
        return None
    from .remote.shared.containers import REGISTRY_PASSWORD  # noqa: PLC0415 - for containers only
    from .targets.container_plan import options_for, registry_of, user_in  # noqa: PLC0415

    image = compute.base_docker_image or DEFAULT_IMAGE
    registry = registry_of(compute, image)
    container = {
        "image": image,
        "engine": target_facts.engine.kind,
        "program": target_facts.engine.program,
        "socket": target_facts.engine.socket,
        "registry": registry,
        # Source packages are built in the image as this user.
        "user": user_in(target_facts.engine, target_facts.uid, target_facts.gid),
        "options": list(options_for(target_facts.engine)),
        "memory": compute.memory,
        "cpus": compute.cpus,
    }
    secrets = {REGISTRY_PASSWORD: password(registry["server"], registry["username"])} if registry else {}
    return Pull(container, secrets)
