"""What this user lets containers have of a machine: folders and networks. Kept outside of any project. Pure.

A folder that containers can write is mounted as a whole or not at all: below it a container could put a link, or swap
one in between our look and the engine's. Below a folder that they can only read, others may be mounted read-only.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from .errors import UsageError

MOUNT, NETWORK = "mount", "network"
FREE_NETWORKS = ("bridge", "none", "default")  # the container's own, or none: they need no consent

# The engine's sockets are as good as root, and /proc leads to all files of the user. The target looks closer.
_NEVER = ("/", "/run", "/run/user", "/var", "/var/run", "/proc")
_SOCKETS = ("docker.sock", "podman.sock", "containerd.sock", "crio.sock", "buildkitd.sock")


@dataclass(frozen=True)
class Consent:
    """One thing that containers may have."""

    kind: str
    value: str  # a path as it was typed, or a value of the key ``network``
    mode: str = ""  # of a mount: "rw" or "ro"
    real: str | None = None  # of a mount: target of the path when it was allowed; None: not resolved yet

    @property
    def text(self) -> str:
        """As it is typed after its option."""
        return f"{self.value}:ro" if self.mode == "ro" else self.value

    @property
    def shown(self) -> str:
        """As people see it: also where it leads."""
        return self.text if self.real in (None, self.value) else f"{self.text} (resolves to {self.real})"

    @property
    def forms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.value, self.real or self.value)))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Consent:
        return Consent(**{one.name: data[one.name] for one in fields(Consent) if one.name in data})


def mount_consent(text: str, option: str = "--allow-mount") -> Consent:
    """``/data``, or ``/data:ro``."""
    mode = "ro" if text.endswith(":ro") else "rw"
    path = text.removesuffix(":ro").removesuffix(":rw")
    if not posixpath.isabs(path) or normal(path) == "/" or ":" in path or not path.isprintable():
        raise UsageError(
            f"{option} {text} is not an absolute path on the target", "use a full path, such as /data or /data:ro"
        )
    return Consent(MOUNT, normal(path), mode)


def network_consent(text: str, option: str = "--allow-network") -> Consent:
    """A value of the key ``network``, exactly as in the file."""
    if not text.isprintable() or not text.strip() or text.startswith("-"):
        raise UsageError(
            f"{option} {text} is not a valid network name", "for example: host, or the name of a Docker network"
        )
    return Consent(NETWORK, text)


def asked_consents(mounts: Iterable[str], networks: Iterable[str]) -> tuple[Consent, ...]:
    return (*map(mount_consent, mounts), *map(network_consent, networks))


def merge(old: Iterable[Consent], new: Iterable[Consent]) -> tuple[Consent, ...]:
    """The same path or network once; the newer one counts."""
    found = {(one.kind, one.value): one for one in old}
    found.update({(one.kind, one.value): one for one in new})
    return tuple(found.values())


def of_kind(consents: Iterable[Consent], kind: str) -> tuple[Consent, ...]:
    return tuple(one for one in consents if one.kind == kind)


def resolved_prefixes(consents: Iterable[Consent], places: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Paths that are links, and their targets: for ``remote.mounts.translate``."""
    pairs = {**places, **{one.value: one.real for one in consents if one.kind == MOUNT and one.real}}
    return tuple(sorted((path, real) for path, real in pairs.items() if path != real))


@dataclass(frozen=True)
class Refusal:
    """Why containers may not have something. ``hint`` None: the user's consent is all that is missing."""

    message: str
    hint: str | None = None


def conflict(consents: Iterable[Consent], own: Iterable[str]) -> Refusal | None:
    """Why these cannot all be allowed, if so. ``own``: folders of ML Workbench there, with and without links."""
    folders, mounts = tuple(own), of_kind(consents, MOUNT)
    for one in mounts:
        for path in one.forms:
            reason = _never(path, folders) or _below_writable(path, mounts)
            if reason:
                return reason
            if one.mode == "rw" and _holds(path, folders):
                return _holding(path)
    return None


def refusal(source: str, mode: str, consents: Iterable[Consent], own: Iterable[str]) -> Refusal | None:
    """Why a container may not mount a folder, if so."""
    folders, mounts = tuple(own), of_kind(consents, MOUNT)
    reason = _never(source, folders) or _below_writable(source, mounts)
    if reason:
        return reason
    if mode == "rw" and _holds(source, folders):
        return _holding(source)
    fitting = [one for one in mounts if _covers(one, source, mode)]
    if not fitting:
        how = "" if mode == "ro" else " for writing"
        return Refusal(f"you have not allowed containers to mount {source}{how}")
    if all(one.real is None for one in fitting):
        return Refusal(f"cannot resolve {source} on the target")
    return None


def _never(path: str, own: Iterable[str]) -> Refusal | None:
    if path in _NEVER or path.startswith("/proc/") or posixpath.basename(path) in _SOCKETS:
        return Refusal(
            f"{path} can never be mounted: it gives access to the socket of a container engine, and so to root",
            "mount a folder of data instead",
        )
    place = next((place for place in own if is_below(path, place)), None)
    if place is None:
        return None
    return Refusal(
        f"{path} is in {place}, a folder of ML Workbench where containers can write", "use a folder outside it"
    )


def _holds(path: str, own: Iterable[str]) -> bool:
    return any(is_below(place, path) for place in own)


def _holding(path: str) -> Refusal:
    return Refusal(f"{path} contains ML Workbench folders, which containers may not write to", f"use {path}:ro")


def _below_writable(path: str, mounts: Iterable[Consent]) -> Refusal | None:
    for one in mounts:
        if one.mode == "rw" and any(path != place and is_below(path, place) for place in one.forms):
            return Refusal(
                f"{path} is under {one.value}, which containers can write to, so only that folder itself can be"
                " mounted",
                f"mount {one.value}, or allow {one.value}:ro instead and mount {path} read-only",
            )
    return None


def _covers(consent: Consent, source: str, mode: str) -> bool:
    if consent.mode == "ro":
        return mode == "ro" and any(is_below(source, place) for place in consent.forms)
    return source in consent.forms


def normal(path: str) -> str:
    """An absolute path in one form only; POSIX leaves two slashes at its beginning."""
    return "/" + posixpath.normpath(path).lstrip("/")


def is_below(path: str, place: str) -> bool:
    """Whether it is the place itself, or below it."""
    return path == place or path.startswith(place.rstrip("/") + "/")
