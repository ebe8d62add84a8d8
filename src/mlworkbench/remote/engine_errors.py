"""What Docker and podman complain of, and what each complaint means: one sentence, with the remedy."""

from __future__ import annotations

from .shared.containers import SUGGESTED_IMAGE
from .shared.failure import failure

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    from .shared.failure import Failure

# A Debian with Python, small, and with the C library that wheels are built for.

_LONGEST = 500
_UNKNOWN = "could-not-start"
_NOISE = ("docker: ", "Error response from daemon: ", "Error: ", "error: ", "OCI runtime error: ")
_SKIPPED = ("run 'docker", "see 'docker", "unable to find image", "trying to pull", "warning: ", "usage: ", "time=")

NOT_PERMITTED, NOT_RUNNING = "docker-not-permitted", "docker-not-running"
NOT_PULLED, UNFIT, MOUNTS, NO_GPU = "image-not-pulled", "image-unfit", "mounts", "no-gpu-in-container"
_TAKEN = "a container named {name} already exists and does not belong to this run"
_NO_SHELL = "image {image} has no /bin/sh, which mlw needs to start a script"
_START = "start it with 'systemctl start docker'"

# (all of these in the text, page of mlw explain, what it means, what to do). The first that fits is told.
# {image}, {program}, {name}, {said}
_MEANINGS: "Tuple[Tuple[Tuple[str, ...], Optional[str], str, Optional[str]], ...]" = (
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
        "{program} is not installed: {said}",
        "install Docker or podman",
    ),
    (("cannot connect",), NOT_RUNNING, "the Docker engine does not respond ({said})", _START),
    (("failed to connect",), NOT_RUNNING, "the Docker engine does not respond ({said})", _START),
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
    (("nvidia-container-cli", "unknown device"), None, "the engine did not find the requested GPU: {said}", None),
    (
        ("nvidia-container-cli",),
        NO_GPU,
        "the NVIDIA Container Toolkit failed: {said}",
        "check that nvidia-smi works on the target",
    ),
    (("is already in use by container",), None, _TAKEN, None),
    (("already in use",), None, _TAKEN, None),
    (
        ("no space left on device",),
        NOT_RUNNING,
        "the engine's disk is full",
        "free space with 'docker system prune'",
    ),
    (
        ("permission denied", "mount"),
        MOUNTS,
        "the engine cannot access a mount source: {said}",
        "NFS home folders often block even root; make ~/.mlw a link to a folder on a local disk",
    ),
    (("bind source path does not exist",), MOUNTS, "mount source does not exist on the target: {said}", None),
    (("statfs", "no such file"), MOUNTS, "mount source does not exist on the target: {said}", None),
    (
        ("network", "not found"),
        None,
        "the engine did not find the network: {said}",
        "check 'network' in the .compute file",
    ),
    (("exec format error",), UNFIT, "image {image} is built for a different CPU architecture", None),
    (("no matching manifest",), UNFIT, "image {image} is built for a different CPU architecture: {said}", None),
    (("/bin/sh", "no such file"), UNFIT, _NO_SHELL, None),
    (("/bin/sh", "not found"), UNFIT, _NO_SHELL, None),
    (("minimum memory limit",), None, "the value of 'memory' is too small for a container: {said}", None),
    (("range of cpus",), None, "the value of 'cpus' exceeds the target's CPUs: {said}", None),
    (
        ("invalid reference format",),
        None,
        "invalid image name {image}",
        "check baseDockerImage in the .compute file",
    ),
    (("unauthorized",), NOT_PULLED, "the registry refused the login for image {image}: {said}", None),
    (
        ("no basic auth credentials",),
        NOT_PULLED,
        "the registry requires a login for image {image}",
        "set registryUsername in the .compute file",
    ),
    (("toomanyrequests",), NOT_PULLED, "registry rate limit reached for image {image}: {said}", None),
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
_ABSENT = (
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


def explain(text: str, container: Dict[str, Any]) -> Failure:
    """What the engine's stderr means for a start."""
    known = _meaning(text, container)
    return known or unstarted("the engine could not start the container: %s" % said(text))


def unstarted(message: str, hint: Optional[str] = None, page: Optional[str] = None) -> Failure:
    """The failure of a container that did not start; its page is its code, where it has one."""
    return failure(page or _UNKNOWN, message, hint, page or _UNKNOWN)


def explain_pull(text: str, container: Dict[str, Any]) -> Failure:
    """What it means for a pull: the image is named, and what to use instead."""
    image, low = container["image"], text.lower()
    known = _meaning(text, container)
    if known:
        return known
    if any(word in low for word in _UNREACHABLE):
        return unstarted(
            "image %s is not on the target, and the registry cannot be reached: %s" % (image, said(text)),
            "pull the image on the target, load it with 'docker load', or set baseDockerImage to an image listed by"
            " 'docker images'",
            NOT_PULLED,
        )
    if any(word in low for word in _ABSENT):
        return missing(image)
    return unstarted("image %s cannot be pulled: %s" % (image, said(text)), None, NOT_PULLED)


def missing(image: str) -> Failure:
    """There is no such image, here or in a registry."""
    if "microsoft/mmlspark" in image:
        return unstarted(
            "image %s was withdrawn by its publisher" % image,
            "set baseDockerImage in the .compute file to %s, and list the packages that the script needs"
            % SUGGESTED_IMAGE,
            NOT_PULLED,
        )
    return unstarted(
        "image %s does not exist or is private" % image,
        "check the spelling, log in (registryUsername), or set baseDockerImage to %s" % SUGGESTED_IMAGE,
        NOT_PULLED,
    )


def said(text: str) -> str:
    """The line that matters, without what stands before each of them."""
    lines = [_bare(line) for line in text.splitlines()]
    telling = [line for line in lines if line and not line.lower().startswith(_SKIPPED)]
    return (telling[-1] if telling else "no reason given")[:_LONGEST].rstrip(". ")


def _meaning(text: str, container: Dict[str, Any]) -> Optional[Failure]:
    low = text.lower()
    for signs, page, sentence, hint in _MEANINGS:
        if all(sign in low for sign in signs):
            message = sentence.format(
                image=container["image"], program=container["program"], name=container["name"], said=said(text)
            )
            return unstarted(message, hint, page)
    return None


def _bare(line: str) -> str:
    line, before = line.strip(), ""
    while line != before:
        before = line
        for noise in _NOISE:
            line = line[len(noise) :] if line.startswith(noise) else line
    return line
