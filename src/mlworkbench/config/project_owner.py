"""Check that a project belongs to a trusted user.

In a shared folder such as /tmp, any user can create a project above other users' folders.
"""

from __future__ import annotations

import os

from ..errors import ConfigError
from .project_files import FOLDER


def check_owner(root: str, start: str) -> None:
    """Raise ConfigError if the project in ``root``, found from ``start``, belongs to another user."""
    owner = _foreign_owner(root, start)
    if owner is not None:
        raise ConfigError(
            f"the project in {root} belongs to {_user_name(owner)}, but {start} does not; the project was not used",
            "run 'mlw project init' to create your own project in this folder, or ask the owner for a copy",
        )


def _foreign_owner(root: str, start: str) -> int | None:
    """Return the owner of the project in ``root`` if the owner is not trusted, else None.

    Trusted owners are the current user, root, and the owner of ``start``, because the user chose to
    work in that folder.
    """
    if os.name != "posix":
        return None
    while not os.path.exists(start):  # the project is above `start`, so a parent exists
        start = os.path.dirname(os.path.abspath(start))
    trusted = {os.geteuid(), 0, os.stat(start).st_uid}
    for name in (FOLDER, ".azureml"):
        try:
            owner = os.lstat(os.path.join(root, name)).st_uid
        except OSError:
            continue  # a project needs only one of the two
        if owner not in trusted:
            return owner
    return None


def _user_name(user: int) -> str:
    import pwd  # noqa: PLC0415 - not on Windows

    try:
        return f"user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"user {user}"
