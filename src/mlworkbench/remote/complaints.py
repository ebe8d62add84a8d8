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
        "this user may not use Docker; hint: let an administrator add the user to the group"
        " 'docker' (who is in it is as good as root), or use rootless Docker or podman",
    ),
    (
        ("additional uids or gids",),
        "podman has no subordinate IDs for this user; hint: let an administrator run usermod --add-subuids"
        " 100000-165535 --add-subgids 100000-165535 for the user on that machine",
    ),
    (("cannot connect: ", "no such file"), "{program} is not there: {said}; hint: install Docker or podman"),
    (("cannot connect",), "the Docker engine does not answer ({said}); hint: start it (systemctl start docker)"),
    (("failed to connect",), "the Docker engine does not answer ({said}); hint: start it (systemctl start docker)"),
    (("container-init binary not found",), "podman lacks its init program there; hint: install catatonit"),
    (
        ("could not select device driver",),
        "the engine has no way to give a container GPUs; hint: install NVIDIA's container"
        " toolkit on that machine (nvidia-ctk runtime configure) and restart the engine, or set nvidiaDocker: false",
    ),
    (
        ("unresolvable cdi device",),
        "the engine does not know these GPUs; hint: let an administrator call nvidia-ctk cdi generate on that machine",
    ),
    (("nvidia-container-cli", "unknown device"), "the engine does not find the GPU that was asked for: {said}"),
    (
        ("nvidia-container-cli",),
        "NVIDIA's container toolkit failed: {said}; hint: check that nvidia-smi works on that machine",
    ),
    (("is already in use by container",), "a container named {name} is already there, and it is not this run's"),
    (("already in use",), "a container named {name} is already there, and it is not this run's"),
    (("no space left on device",), "the engine's disk is full; hint: free some (docker system prune)"),
    (
        ("permission denied", "mount"),
        "the engine may not look into a folder to be mounted: {said}; hint: a home folder on NFS keeps even root out;"
        " put ours on a disk of that machine",
    ),
    (("bind source path does not exist",), "a folder to be mounted is not on that machine: {said}"),
    (("statfs", "no such file"), "a folder to be mounted is not on that machine: {said}"),
    (("network", "not found"), "the engine has no such network: {said}; hint: see the key network"),
    (("exec format error",), "image {image} is made for another kind of processor"),
    (("no matching manifest",), "image {image} is made for another kind of processor: {said}"),
    (("/bin/sh", "no such file"), "image {image} has no /bin/sh, which the start needs"),
    (("/bin/sh", "not found"), "image {image} has no /bin/sh, which the start needs"),
    (("minimum memory limit",), "the key memory is too small for a container: {said}"),
    (("range of cpus",), "the key cpus asks for more than that machine has: {said}"),
    (("invalid reference format",), "{image} is no name of an image; hint: see baseDockerImage"),
    (("unauthorized",), "the registry of image {image} refused the log-in: {said}"),
    (("no basic auth credentials",), "the registry of image {image} wants a log-in; hint: see registryUsername"),
    (("toomanyrequests",), "the registry of image {image} wants no more pulls for now: {said}"),
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
            "image %s is not on that machine, and the registry cannot be reached: %s; hint: pull it there by hand, or"
            " load it (docker load), or set baseDockerImage to one of docker images" % (image, said(text))
        )
    if any(word in low for word in _ABSENT):
        return missing(image)
    return "image %s cannot be had: %s" % (image, said(text))


def missing(image: str) -> str:
    """There is no such image, here or in a registry."""
    if "microsoft/mmlspark" in image:
        return (
            "image %s is gone: its maker has withdrawn it; hint: set baseDockerImage in the .compute file to %s,"
            " and list the packages that the script needs" % (image, SUGGESTED_IMAGE)
        )
    return (
        "there is no image %s, or it is private; hint: look at its spelling, log in (registryUsername), or set"
        " baseDockerImage to %s" % (image, SUGGESTED_IMAGE)
    )


def said(text: str) -> str:
    """The line that matters, without what stands before each of them."""
    lines = [_bare(line) for line in text.splitlines()]
    telling = [line for line in lines if line and not line.lower().startswith(_SKIPPED)]
    return (telling[-1] if telling else "it did not say why")[:_LONGEST].rstrip(". ")


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
