"""All folders that mlw uses on this machine. ``remote/shared/layout.py`` defines the files in run folders."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from .errors import HistoryError
from .remote.shared.layout import Root, RunFolder

__all__ = ["Root", "RunFolder", "UserPaths", "data_folder", "user_name", "user_paths"]


DATA_MARK = ".mlworkbench"  # a folder that contains this file is never uploaded with a project, whatever MLW_HOME is
_MARK_TEXT = "Data folder of ML Workbench: run history, caches, and SSH keys. It does not belong to any project.\n"


@dataclass(frozen=True)
class UserPaths:
    """Folders for this user's runs, code, and caches."""

    home: Path

    @property
    def root(self) -> Root:
        return Root(str(self.home))

    @property
    def database(self) -> Path:
        return self.home / "history.db"

    @property
    def share(self) -> Path:
        return self.home / "share"

    @property
    def client(self) -> Path:
        return self.home / "client.json"

    @property
    def interpreters(self) -> Path:
        return self.home / "cache" / "interpreters.json"

    def digests(self, project_id: str) -> Path:
        return self.home / "cache" / f"digests-{project_id}.json"


def user_paths() -> UserPaths:
    """Return the paths in ``MLW_HOME`` or the platform's data folder.

    The folder is created on first use and is private.
    """
    home = data_folder()
    if home == Path(home.anchor):
        raise HistoryError("MLW_HOME is the root of the file system", "set MLW_HOME to a dedicated folder")
    try:
        for folder in (home, home / "runs", home / "cache"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_foreign(home)
        if not (home / DATA_MARK).exists():
            _mark(home / DATA_MARK)
    except OSError as error:
        raise HistoryError(
            f"cannot use {home} for the run history: {error.strerror}",
            "set MLW_HOME to a writable folder",
            more="history-unusable",
        ) from error
    return UserPaths(home)


def _mark(path: Path) -> None:
    try:
        with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(_MARK_TEXT)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES):  # a read-only folder is still usable for reading
            raise


def data_folder() -> Path:
    """Return the path of the data folder without creating it."""
    given = os.environ.get("MLW_HOME")
    if not given:
        return _default()
    try:
        return Path(given).expanduser().absolute()
    except RuntimeError:
        problem = f"MLW_HOME is {given}, but there is no such user"
    except OSError as error:  # MLW_HOME is relative, and the current folder was deleted
        problem = f"MLW_HOME is {given}, but the current folder cannot be used: {error.strerror}"
    raise HistoryError(problem, "set MLW_HOME to a writable folder", more="history-unusable")


def user_name() -> str:
    """Return the name of the current user on this machine."""
    import getpass  # noqa: PLC0415 - not needed by most commands

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in containers
        return f"user {os.getuid()}"


def _default() -> Path:
    if os.name == "posix" and not os.environ.get("XDG_DATA_HOME") and os.uname().sysname == "Linux":
        # Same result as platformdirs, whose import would cost every command 20 ms.
        return _home() / ".local" / "share" / "mlworkbench"
    import platformdirs  # noqa: PLC0415 - slow to import, and not needed on most machines

    return Path(platformdirs.user_data_dir("mlworkbench", appauthor=False))


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise HistoryError("this account has no home folder", "set MLW_HOME to a writable folder") from None


def _refuse_foreign(home: Path) -> None:
    """Reject a data folder that another user owns or can write to: that user could replace its files."""
    if os.name != "posix":
        return
    facts = home.stat()
    if facts.st_uid != os.getuid():
        raise HistoryError(f"{home} belongs to another user", "set MLW_HOME to a folder that you own")
    if stat.S_IMODE(facts.st_mode) & 0o022:
        raise HistoryError(f"{home} is writable by other users", f"run: chmod 700 {home}")
