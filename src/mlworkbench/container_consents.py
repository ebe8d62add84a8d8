"""Folders and networks of a machine that this user allows containers to use. Pure functions.

Consents are stored outside any project. A folder that containers can write to is mounted as a whole
or not at all: a container could create a link in it, or replace a folder with a link between the
check and the mount. Subfolders of a read-only folder may be mounted read-only.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from .errors import UsageError

MOUNT, NETWORK = "mount", "network"
FREE_NETWORKS = ("bridge", "none", "default")  # the container's own network or none; no consent needed

# The engine's sockets give root access, and /proc exposes all of the user's files. The target checks again.
_NEVER = ("/", "/run", "/run/user", "/var", "/var/run", "/proc")
_SOCKETS = ("docker.sock", "podman.sock", "containerd.sock", "crio.sock", "buildkitd.sock")


@dataclass(frozen=True)
class Consent:
    """A folder or network that containers may use."""

    kind: str
    value: str  # a path as typed, or a value of the ``network`` key
    mode: str = ""  # for mounts: "rw" or "ro"
    real: str | None = None  # for mounts: resolved path at the time of consent; None if not resolved yet

    @property
    def text(self) -> str:
        """Return the option value that grants this consent."""
        return f"{self.value}:ro" if self.mode == "ro" else self.value

    @property
    def shown(self) -> str:
        """Format the consent for messages, with the resolved path."""
        return self.text if self.real in (None, self.value) else f"{self.text} (resolves to {self.real})"

    @property
    def forms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.value, self.real or self.value)))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Consent:
        return Consent(**{item.name: data[item.name] for item in fields(Consent) if item.name in data})


def mount_consent(text: str, option: str = "--allow-mount") -> Consent:
    """Parse ``/data`` or ``/data:ro``."""
    mode = "ro" if text.endswith(":ro") else "rw"
    path = text.removesuffix(":ro").removesuffix(":rw")
    if not posixpath.isabs(path) or normal(path) == "/" or ":" in path or not path.isprintable():
        raise UsageError(
            f"{option} {text} is not an absolute path on the target", "use a full path, such as /data or /data:ro"
        )
    return Consent(MOUNT, normal(path), mode)


def network_consent(text: str, option: str = "--allow-network") -> Consent:
    """Parse a value of the ``network`` key, exactly as in the file."""
    if not text.isprintable() or not text.strip() or text.startswith("-"):
        raise UsageError(
            f"{option} {text} is not a valid network name", "for example: host, or the name of a Docker network"
        )
    return Consent(NETWORK, text)


def asked_consents(mounts: Iterable[str], networks: Iterable[str]) -> tuple[Consent, ...]:
    return (*map(mount_consent, mounts), *map(network_consent, networks))


def merge(old: Iterable[Consent], new: Iterable[Consent]) -> tuple[Consent, ...]:
    """Merge consents. A new consent replaces an old one for the same path or network."""
    merged = {(consent.kind, consent.value): consent for consent in old}
    merged.update({(consent.kind, consent.value): consent for consent in new})
    return tuple(merged.values())


def of_kind(consents: Iterable[Consent], kind: str) -> tuple[Consent, ...]:
    return tuple(consent for consent in consents if consent.kind == kind)


def resolved_prefixes(consents: Iterable[Consent], places: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return paths that are links, with their targets, for ``remote.bind_mounts.translate``."""
    pairs = {
        **places,
        **{consent.value: consent.real for consent in consents if consent.kind == MOUNT and consent.real},
    }
    return tuple(sorted((path, real) for path, real in pairs.items() if path != real))


@dataclass(frozen=True)
class MountRefusal:
    """Reason why a container may not mount a folder. Without a ``hint``, only consent is missing."""

    message: str
    hint: str | None = None


def conflict(consents: Iterable[Consent], own_folders: Iterable[str]) -> MountRefusal | None:
    """Return why one of these consents is not allowed, or None.

    ``own_folders`` contains the ML Workbench folders, with and without resolved links.
    """
    folders, mounts = tuple(own_folders), of_kind(consents, MOUNT)
    for mount in mounts:
        for path in mount.forms:
            reason = _forbidden_mount(path, folders) or _below_writable(path, mounts)
            if reason:
                return reason
            if mount.mode == "rw" and _contains_own_folder(path, folders):
                return _own_folder_refusal(path)
    return None


def mount_refusal(
    source: str, mode: str, consents: Iterable[Consent], own_folders: Iterable[str]
) -> MountRefusal | None:
    """Return why a container may not mount a folder, or None."""
    folders, mounts = tuple(own_folders), of_kind(consents, MOUNT)
    reason = _forbidden_mount(source, folders) or _below_writable(source, mounts)
    if reason:
        return reason
    if mode == "rw" and _contains_own_folder(source, folders):
        return _own_folder_refusal(source)
    fitting = [mount for mount in mounts if _covers(mount, source, mode)]
    if not fitting:
        how = "" if mode == "ro" else " for writing"
        return MountRefusal(f"you have not allowed containers to mount {source}{how}")
    if all(mount.real is None for mount in fitting):
        return MountRefusal(f"cannot resolve {source} on the target")
    return None


def _forbidden_mount(path: str, own_folders: Iterable[str]) -> MountRefusal | None:
    if path in _NEVER or path.startswith("/proc/") or posixpath.basename(path) in _SOCKETS:
        return MountRefusal(
            f"{path} can never be mounted: it gives access to the socket of a container engine, and so to root",
            "mount a folder of data instead",
        )
    place = next((place for place in own_folders if is_below(path, place)), None)
    if place is None:
        return None
    return MountRefusal(
        f"{path} is in {place}, a folder of ML Workbench where containers can write", "use a folder outside it"
    )


def _contains_own_folder(path: str, own_folders: Iterable[str]) -> bool:
    return any(is_below(place, path) for place in own_folders)


def _own_folder_refusal(path: str) -> MountRefusal:
    return MountRefusal(f"{path} contains ML Workbench folders, which containers may not write to", f"use {path}:ro")


def _below_writable(path: str, mounts: Iterable[Consent]) -> MountRefusal | None:
    for mount in mounts:
        if mount.mode == "rw" and any(path != place and is_below(path, place) for place in mount.forms):
            return MountRefusal(
                f"{path} is under {mount.value}, which containers can write to, so only that folder itself can be"
                " mounted",
                f"mount {mount.value}, or allow {mount.value}:ro instead and mount {path} read-only",
            )
    return None


def _covers(consent: Consent, source: str, mode: str) -> bool:
    if consent.mode == "ro":
        return mode == "ro" and any(is_below(source, place) for place in consent.forms)
    return source in consent.forms


def normal(path: str) -> str:
    """Normalize an absolute path. ``normpath`` alone would preserve two leading slashes."""
    return "/" + posixpath.normpath(path).lstrip("/")


def is_below(path: str, place: str) -> bool:
    """Return whether a path is ``place`` itself or inside it."""
    return path == place or path.startswith(place.rstrip("/") + "/")
