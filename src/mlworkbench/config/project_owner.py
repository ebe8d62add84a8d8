"""Ownership of projects: a project that another user created is refused.

In a shared folder such as /tmp, any user can create a project above the folders of other users.
"""

from __future__ import annotations

import os

from ..errors import ConfigError
from .place import FOLDER


def refuse_planted(root: str, start: str) -> None:
    """Raise ConfigError if the project in ``root``, found from ``start``, belongs to another user."""
    owner = _foreign_owner(root, start)
    if owner is not None:
        raise ConfigError(
            f"the project in {root} belongs to {_user_name(owner)}, but {start} does not; the project was not used",
            "run 'mlw project init' to create your own project in this folder, or ask the owner for a copy",
        )


def _foreign_owner(root: str, start: str) -> int | None:
    """The owner of the project in ``root``, if not trusted.

    Trusted are the current user, root, and the owner of ``start``: working in that folder was a choice.
    """
    if os.name != "posix":
        return None
    while not os.path.exists(start):  # the project is above it, so a folder above it is there
        start = os.path.dirname(os.path.abspath(start))
    trusted = {os.geteuid(), 0, os.stat(start).st_uid}
    for name in (FOLDER, ".azureml"):
        try:
            owner = os.lstat(os.path.join(root, name)).st_uid
        except OSError:
            continue  # a project has either of them
        if owner not in trusted:
            return owner
    return None


def _user_name(user: int) -> str:
    import pwd  # noqa: PLC0415 - not on Windows

    try:
        return f"user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"user {user}"
