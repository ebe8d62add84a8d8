"""What Docker and podman complain of, and what each complaint means: one sentence, with the remedy."""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

# A Debian with Python, small, and with the C library that wheels are built for.
SUGGESTED_IMAGE = "python:3.12-slim-bookworm"

_LONGEST = 500
_NOISE = ("docker: ", "Error response from daemon: ", "Error: ", "error: ", "OCI runtime error: ")
_SKIPPED = ("run 'docker", "see 'docker", "unable to find image", "trying to pull", "warning: ", "usage: ", "time=")

# (all of these in the text, what it means). The first that fits is told. {image}, {program}, {name}, {said}
_MEANINGS = (
    (
        ("permission denied", "trying to connect"),
        "this user is not allowed to use Docker; hint: ask an administrator to add the user to the group 'docker'"
        " (which amounts to root access), or use rootless Docker or podman",
    ),
    (
        ("additional uids or gids",),
        "podman has no subordinate IDs for this user; hint: ask an administrator to run 'usermod --add-subuids"
        " 100000-165535 --add-subgids 100000-165535 USER' on the target",
    ),
    (("cannot connect: ", "no such file"), "{program} is not installed: {said}; hint: install Docker or podman"),
    (("cannot connect",), "the Docker engine does not respond ({said}); hint: start it with 'systemctl start docker'"),
    (
        ("failed to connect",),
        "the Docker engine does not respond ({said}); hint: start it with 'systemctl start docker'",
    ),
    (("container-init binary not found",), "podman's init program is missing; hint: install catatonit"),
    (
        ("could not select device driver",),
        "the engine does not support GPUs in containers; hint: install the NVIDIA Container Toolkit on the target,"
        " run 'nvidia-ctk runtime configure', and restart the engine; or set nvidiaDocker: false",
    ),
    (
        ("unresolvable cdi device",),
        "the engine has no CDI definition for these GPUs; hint: ask an administrator to run 'nvidia-ctk cdi generate'"
        " on the target",
    ),
    (("nvidia-container-cli", "unknown device"), "the engine did not find the requested GPU: {said}"),
    (
        ("nvidia-container-cli",),
        "the NVIDIA Container Toolkit failed: {said}; hint: check that nvidia-smi works on the target",
    ),
    (("is already in use by container",), "a container named {name} already exists and does not belong to this run"),
    (("already in use",), "a container named {name} already exists and does not belong to this run"),
    (("no space left on device",), "the engine's disk is full; hint: free space with 'docker system prune'"),
    (
        ("permission denied", "mount"),
        "the engine cannot access a mount source: {said}; hint: NFS home folders often block even root; make"
        " ~/.mlw a link to a folder on a local disk",
    ),
    (("bind source path does not exist",), "mount source does not exist on the target: {said}"),
    (("statfs", "no such file"), "mount source does not exist on the target: {said}"),
    (
        ("network", "not found"),
        "the engine did not find the network: {said}; hint: check 'network' in the .compute file",
    ),
    (("exec format error",), "image {image} is built for a different CPU architecture"),
    (("no matching manifest",), "image {image} is built for a different CPU architecture: {said}"),
    (("/bin/sh", "no such file"), "image {image} has no /bin/sh, which mlw needs to start a script"),
    (("/bin/sh", "not found"), "image {image} has no /bin/sh, which mlw needs to start a script"),
    (("minimum memory limit",), "the value of 'memory' is too small for a container: {said}"),
    (("range of cpus",), "the value of 'cpus' exceeds the target's CPUs: {said}"),
    (("invalid reference format",), "invalid image name {image}; hint: check baseDockerImage in the .compute file"),
    (("unauthorized",), "the registry refused the login for image {image}: {said}"),
    (
        ("no basic auth credentials",),
        "the registry requires a login for image {image}; hint: set registryUsername in the .compute file",
    ),
    (("toomanyrequests",), "registry rate limit reached for image {image}: {said}"),
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


def explain(text: str, container: Dict[str, Any]) -> str:
    """What the engine's stderr means for a start."""
    return _meaning(text, container) or "the engine could not start the container: %s" % said(text)


def explain_pull(text: str, container: Dict[str, Any]) -> str:
    """What it means for a pull: the image is named, and what to use instead."""
    image, low = container["image"], text.lower()
    known = _meaning(text, container)
    if known:
        return known
    if any(word in low for word in _UNREACHABLE):
        return (
            "image %s is not on the target, and the registry cannot be reached: %s; hint: pull the image on the target,"
            " load it with 'docker load', or set baseDockerImage to an image listed by 'docker images'"
            % (image, said(text))
        )
    if any(word in low for word in _ABSENT):
        return missing(image)
    return "image %s cannot be pulled: %s" % (image, said(text))


def missing(image: str) -> str:
    """There is no such image, here or in a registry."""
    if "microsoft/mmlspark" in image:
        return (
            "image %s was withdrawn by its publisher; hint: set baseDockerImage in the .compute file to %s,"
            " and list the packages that the script needs" % (image, SUGGESTED_IMAGE)
        )
    return (
        "image %s does not exist or is private; hint: check the spelling, log in (registryUsername), or set"
        " baseDockerImage to %s" % (image, SUGGESTED_IMAGE)
    )


def said(text: str) -> str:
    """The line that matters, without what stands before each of them."""
    lines = [_bare(line) for line in text.splitlines()]
    telling = [line for line in lines if line and not line.lower().startswith(_SKIPPED)]
    return (telling[-1] if telling else "no reason given")[:_LONGEST].rstrip(". ")


def _meaning(text: str, container: Dict[str, Any]) -> Optional[str]:
    low = text.lower()
    for signs, sentence in _MEANINGS:
        if all(sign in low for sign in signs):
            return sentence.format(
                image=container["image"], program=container["program"], name=container["name"], said=said(text)
            )
    return None


def _bare(line: str) -> str:
    line, before = line.strip(), ""
    while line != before:
        before = line
        for noise in _NOISE:
            line = line[len(noise) :] if line.startswith(noise) else line
    return line
