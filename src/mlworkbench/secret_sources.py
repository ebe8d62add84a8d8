"""Where the value of a script's secret comes from. It is never written anywhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

import click

from .errors import UsageError

SERVICE = "mlworkbench"
HANDED = "MLW_SECRET_"  # before the name of a secret that whoever started us hands over, whatever it is called
# Taken out of the environment before anything is started: no other program inherits them.
_handed = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(HANDED)}


def find_secret(name: str, ask: bool = True) -> str:
    """From the environment, else the operating system's keyring, else asked for on the terminal."""
    value = _handed.get(HANDED + name) or os.environ.get(name) or _from_keyring(name)
    if value:
        return value
    if ask and sys.stdin is not None and sys.stdin.isatty():
        return str(click.prompt(f"{name}", hide_input=True, err=True))
    raise UsageError(
        f"secret {name} not found",
        f"set the environment variable {name}, or store it: keyring set {SERVICE} {name}",
    )


def known_values(names: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Secrets that can be had without asking, by name, and the names of the others."""
    values: dict[str, str] = {}
    unknown: list[str] = []
    for name in names:
        try:
            values[name] = find_secret(name, ask=False)
        except UsageError:
            unknown.append(name)
    return values, unknown


def registry_password(server: str, username: str, ask: bool = True) -> str:
    """For pulling an image. The project names the registry, so the user's word must name it too: a stranger's
    project must not get a password sent to a server of its own."""
    where = server or "the default registry of the engine"
    if os.environ.get("MLW_REGISTRY_SERVER", "") == server and "MLW_REGISTRY_PASSWORD" in os.environ:
        return os.environ["MLW_REGISTRY_PASSWORD"]
    name = f"registry:{username}@{server}"
    kept = stored(name)
    if kept:
        return kept
    if ask and sys.stdin is not None and sys.stdin.isatty():
        return str(click.prompt(f"Password for {username} at {where}", hide_input=True, err=True))
    raise UsageError(
        f"password for {username} at {where} not found",
        f"set MLW_REGISTRY_PASSWORD, and MLW_REGISTRY_SERVER to {server!r}; or run: keyring set {SERVICE} '{name}'",
    )


def stored(name: str) -> str | None:
    """What the keyring has under this name."""
    return _from_keyring(name)


def keep(name: str, value: str) -> bool:
    """Put it into the keyring; False if this machine has none."""
    import keyring  # noqa: PLC0415 - slow to import, and most targets take keys
    from keyring.errors import KeyringError  # noqa: PLC0415

    try:
        keyring.set_password(SERVICE, name, value)
    except KeyringError:
        return False
    return stored(name) == value


def forget(name: str) -> None:
    """Take it out of the keyring, if it is there."""
    import keyring  # noqa: PLC0415
    from keyring.errors import KeyringError  # noqa: PLC0415

    try:
        keyring.delete_password(SERVICE, name)
    except KeyringError:
        pass  # it is not there


def _from_keyring(name: str) -> str | None:
    import keyring  # noqa: PLC0415 - slow to import, and most runs have no secrets
    from keyring.errors import KeyringError  # noqa: PLC0415

    try:
        found: str | None = keyring.get_password(SERVICE, name)
    except KeyringError:
        return None  # no keyring on this machine
    return found
