"""Find secrets and passwords in the environment, in the keyring, or with a prompt.

Only ``keep`` stores a value, and only in the keyring.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

import click

from .errors import UsageError

SERVICE = "mlworkbench"
PASSED_PREFIX = "MLW_SECRET_"  # prefix of variables for secrets from a parent process
# Removed from the environment before any program is started, so that no other program inherits them.
_passed_secrets = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(PASSED_PREFIX)}


def find_secret(name: str, ask: bool = True) -> str:
    """Return a secret from the environment, the keyring, or a prompt on the terminal, in this order."""
    value = _passed_secrets.get(PASSED_PREFIX + name) or os.environ.get(name) or _from_keyring(name)
    if value:
        return value
    if ask and sys.stdin is not None and sys.stdin.isatty():
        return str(click.prompt(f"{name}", hide_input=True, err=True))
    raise UsageError(
        f"secret {name} not found",
        f"set the environment variable {name}, or store it: keyring set {SERVICE} {name}",
    )


def known_values(names: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Return secrets that are available without a prompt, by name, and the names of missing ones."""
    values: dict[str, str] = {}
    unknown: list[str] = []
    for name in names:
        try:
            values[name] = find_secret(name, ask=False)
        except UsageError:
            unknown.append(name)
    return values, unknown


def registry_password(server: str, username: str, ask: bool = True) -> str:
    """Return the password for pulling an image.

    The project names the registry, so the user must have named it, too. Otherwise, an untrusted project
    could send a password to its own server.
    """
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
    """Return the value stored in the keyring, or None."""
    return _from_keyring(name)


def keep(name: str, value: str) -> bool:
    """Store a value in the keyring. Return False if this machine has no keyring."""
    import keyring  # noqa: PLC0415 - slow to import, and most targets take keys
    from keyring.errors import KeyringError  # noqa: PLC0415

    try:
        keyring.set_password(SERVICE, name, value)
    except KeyringError:
        return False
    return stored(name) == value


def forget(name: str) -> None:
    """Remove a value from the keyring, if it exists."""
    import keyring  # noqa: PLC0415
    from keyring.errors import KeyringError  # noqa: PLC0415

    try:
        keyring.delete_password(SERVICE, name)
    except KeyringError:
        pass  # it does not exist


def _from_keyring(name: str) -> str | None:
    import keyring  # noqa: PLC0415 - slow to import, and most runs have no secrets
    from keyring.errors import KeyringError  # noqa: PLC0415

    try:
        password: str | None = keyring.get_password(SERVICE, name)
    except KeyringError:
        return None  # no keyring on this machine
    return password
