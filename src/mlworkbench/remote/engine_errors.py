"""Known error messages of Docker and podman, each with an explanation and a remedy."""

from __future__ import annotations

from .shared.containers import SUGGESTED_IMAGE
from .shared.failure import failure

TYPE_CHECKING = False  # importing typing would cost every supervisor time and memory
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    from .shared.failure import Failure


_MAX_LENGTH = 500
_UNKNOWN = "could-not-start"
_PREFIXES = ("docker: ", "Error response from daemon: ", "Error: ", "error: ", "OCI runtime error: ")
_SKIPPED_LINES = (
    "run 'docker",
    "see 'docker",
    "unable to find image",
    "trying to pull",
    "warning: ",
    "usage: ",
    "time=",
)

NOT_PERMITTED, NOT_RUNNING = "docker-not-permitted", "docker-not-running"
NOT_PULLED, UNFIT, MOUNTS, NO_GPU = "image-not-pulled", "image-unfit", "mounts", "no-gpu-in-container"
_NAME_TAKEN = "a container named {name} already exists and does not belong to this run"
_NO_SHELL = "image {image} has no /bin/sh, which mlw needs to start a script"
_START_DOCKER = "start it with 'systemctl start docker'"

# (strings that must all occur, mlw explain page, message, hint). The first match is used.
# Placeholders: {image}, {program}, {name}, {details}
_KNOWN_ERRORS: "Tuple[Tuple[Tuple[str, ...], Optional[str], str, Optional[str]], ...]" = (
    (
        ("permission denied", "trying to connect"),
        NOT_PERMITTED,
        "this user is not allowed to use Docker",
        "ask an administrator to add the user to the group 'docker' (which amounts to root access), or use rootless"
        " Docker or podman",
    ),
    (
        ("additional uids or gids",),
        NOT_PERMITTED,
        "podman has no subordinate IDs for this user",
        "ask an administrator to run 'usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER' on the"
        " target",
    ),
    (
        ("cannot connect: ", "no such file"),
        NOT_RUNNING,
        "{program} is not installed: {details}",
        "install Docker or podman",
    ),
    (("cannot connect",), NOT_RUNNING, "the Docker engine does not respond ({details})", _START_DOCKER),
    (("failed to connect",), NOT_RUNNING, "the Docker engine does not respond ({details})", _START_DOCKER),
    (("container-init binary not found",), NOT_RUNNING, "podman's init program is missing", "install catatonit"),
    (
        ("could not select device driver",),
        NO_GPU,
        "the engine does not support GPUs in containers",
        "install the NVIDIA Container Toolkit on the target, run 'nvidia-ctk runtime configure', and restart the"
        " engine; or set nvidiaDocker: false",
    ),
    (
        ("unresolvable cdi device",),
        NO_GPU,
        "the engine has no CDI definition for these GPUs",
        "ask an administrator to run 'nvidia-ctk cdi generate' on the target",
    ),
    (("nvidia-container-cli", "unknown device"), None, "the engine did not find the requested GPU: {details}", None),
    (
        ("nvidia-container-cli",),
        NO_GPU,
        "the NVIDIA Container Toolkit failed: {details}",
        "check that nvidia-smi works on the target",
    ),
    (("is already in use by container",), None, _NAME_TAKEN, None),
    (("already in use",), None, _NAME_TAKEN, None),
    (
        ("no space left on device",),
        NOT_RUNNING,
        "the engine's disk is full",
        "free space with 'docker system prune'",
    ),
    (
        ("permission denied", "mount"),
        MOUNTS,
        "the engine cannot access a mount source: {details}",
        "NFS home folders often block even root; make ~/.mlw a link to a folder on a local disk",
    ),
    (("bind source path does not exist",), MOUNTS, "mount source does not exist on the target: {details}", None),
    (("statfs", "no such file"), MOUNTS, "mount source does not exist on the target: {details}", None),
    (
        ("network", "not found"),
        None,
        "the engine did not find the network: {details}",
        "check 'network' in the .compute file",
    ),
    (("exec format error",), UNFIT, "image {image} is built for a different CPU architecture", None),
    (("no matching manifest",), UNFIT, "image {image} is built for a different CPU architecture: {details}", None),
    (("/bin/sh", "no such file"), UNFIT, _NO_SHELL, None),
    (("/bin/sh", "not found"), UNFIT, _NO_SHELL, None),
    (("minimum memory limit",), None, "the value of 'memory' is too small for a container: {details}", None),
    (("range of cpus",), None, "the value of 'cpus' exceeds the target's CPUs: {details}", None),
    (
        ("invalid reference format",),
        None,
        "invalid image name {image}",
        "check baseDockerImage in the .compute file",
    ),
    (("unauthorized",), NOT_PULLED, "the registry refused the login for image {image}: {details}", None),
    (
        ("no basic auth credentials",),
        NOT_PULLED,
        "the registry requires a login for image {image}",
        "set registryUsername in the .compute file",
    ),
    (("toomanyrequests",), NOT_PULLED, "registry rate limit reached for image {image}: {details}", None),
)
_UNREACHABLE = (
    "dial tcp",
    "i/o timeout",
    "no such host",
    "connection refused",
    "tls",
    "x509",
    "network is unreachable",
    "deadline exceeded",
    "client.timeout",
    "http response to https",
    "temporary failure",
    "no route",
)
_NOT_FOUND = (
    "pull access denied",
    "manifest unknown",
    "manifest for",
    "repository does not exist",
    "name unknown",
    "not found",
    "does not exist",
    "no such image",
    "image not known",
    "requested access to the resource is denied",
)


def explain_start(text: str, container: Dict[str, Any]) -> Failure:
    """Explain the engine's stderr after a failed start."""
    failure_data = _match_known_error(text, container)
    return failure_data or start_failure("the engine could not start the container: %s" % last_message(text))


def start_failure(message: str, hint: Optional[str] = None, page: Optional[str] = None) -> Failure:
    """Return the failure of a container that did not start. ``page`` is its ``mlw explain`` page and code."""
    return failure(page or _UNKNOWN, message, hint, page or _UNKNOWN)


def explain_pull(text: str, container: Dict[str, Any]) -> Failure:
    """Explain the engine's stderr after a failed pull, including the image and alternatives."""
    image, lowered = container["image"], text.lower()
    failure_data = _match_known_error(text, container)
    if failure_data:
        return failure_data
    if any(pattern in lowered for pattern in _UNREACHABLE):
        return start_failure(
            "image %s is not on the target, and the registry cannot be reached: %s" % (image, last_message(text)),
            "pull the image on the target, load it with 'docker load', or set baseDockerImage to an image listed by"
            " 'docker images'",
            NOT_PULLED,
        )
    if any(pattern in lowered for pattern in _NOT_FOUND):
        return missing_image(image)
    return start_failure("image %s cannot be pulled: %s" % (image, last_message(text)), None, NOT_PULLED)


def missing_image(image: str) -> Failure:
    """Return the failure for an image that is neither on the target nor in a registry."""
    if "microsoft/mmlspark" in image:
        return start_failure(
            "image %s was withdrawn by its publisher" % image,
            "set baseDockerImage in the .compute file to %s, and list the packages that the script needs"
            % SUGGESTED_IMAGE,
            NOT_PULLED,
        )
    return start_failure(
        "image %s does not exist or is private" % image,
        "check the spelling, log in (registryUsername), or set baseDockerImage to %s" % SUGGESTED_IMAGE,
        NOT_PULLED,
    )


def last_message(text: str) -> str:
    """Return the relevant line of the engine's output, without prefixes."""
    lines = [_strip_prefixes(line) for line in text.splitlines()]
    messages = [line for line in lines if line and not line.lower().startswith(_SKIPPED_LINES)]
    return (messages[-1] if messages else "no reason given")[:_MAX_LENGTH].rstrip(". ")


def _match_known_error(text: str, container: Dict[str, Any]) -> Optional[Failure]:
    lowered = text.lower()
    for patterns, page, template, hint in _KNOWN_ERRORS:
        if all(pattern in lowered for pattern in patterns):
            message = template.format(
                image=container["image"],
                program=container["program"],
                name=container["name"],
                details=last_message(text),
            )
            return start_failure(message, hint, page)
    return None


def _strip_prefixes(line: str) -> str:
    line, previous = line.strip(), ""
    while line != previous:
        previous = line
        for prefix in _PREFIXES:
            line = line[len(prefix) :] if line.startswith(prefix) else line
    return line
