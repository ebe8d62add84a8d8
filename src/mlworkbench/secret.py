"""Where the value of a script's secret comes from. It is never written anywhere."""

from __future__ import annotations

import os
import sys

import click

from .errors import UsageError

SERVICE = "mlworkbench"


def find_secret(name: str, ask: bool = True) -> str:
    """From the environment, else the operating system's keyring, else asked for on the terminal."""
    value = os.environ.get(name) or _from_keyring(name)
    if value:
        return value
    if ask and sys.stdin is not None and sys.stdin.isatty():
        return str(click.prompt(f"{name}", hide_input=True, err=True))
    raise UsageError(
        f"the secret {name} is nowhere to be found",
        f"set the variable {name}, or keep it with: keyring set {SERVICE} {name}",
    )


def _from_keyring(name: str) -> str | None:
    import keyring  # noqa: PLC0415 - slow to import, and most runs have no secrets
    from keyring.errors import KeyringError  # noqa: PLC0415

    try:
        found: str | None = keyring.get_password(SERVICE, name)
    except KeyringError:
        return None  # no keyring on this machine
    return found
