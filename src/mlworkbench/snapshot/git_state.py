"""State of the project's Git repository, read without running anything that the project configures.

A cloned project is untrusted: its ``.git/config`` may name programs (fsmonitor, filters, diff
drivers, hooks) that Git would start. The commit and branch are read directly from files. Git
creates the diff in a temporary repository that shares only the project's objects and a copy of its
index.
"""

from __future__ import annotations

import os
import re
import selectors
import stat
import subprocess
import time
from itertools import chain
from pathlib import Path

from ..model import Git
from ..remote.shared.folder_tree import CLOEXEC, NEW, remove
from ..remote.shared.program_lookup import is_shim

LARGEST_DIFF = 10_000_000
TIME_LIMIT = 10.0
_GRACE = 2.0
_LARGEST_INDEX = 1 << 30
_LARGEST_LIST = 1 << 27  # maximum bytes of all names in the index
# Git never adds these names itself, but would read such files even outside of the work tree.
_OUTSIDE = re.compile(rb"(?:\A|[\0/])(?:\.{0,2}|\.git)(?=[\0/])", re.IGNORECASE)
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF = re.compile(r"refs/(?!.*\.\.)[^\x00-\x20\x7f~^:?*\[\\]+")
# Settings for how the work tree is stored, with their allowed values. Without them, every file in a repository
# on a disk without mode bits, or with CRLF line endings, would look changed.
_HARMLESS = {
    "filemode": ("true", "false"),
    "symlinks": ("true", "false"),
    "ignorecase": ("true", "false"),
    "autocrlf": ("true", "false", "input"),
    "eol": ("lf", "crlf", "native"),
}
_WORKTREE = re.compile(r"^\s*worktree\s*=\s*\"?(.+?)\"?\s*$", re.MULTILINE)
_SETTING = re.compile(r"\s*(\w+)\s*=\s*\"?(\w+)\"?\s*")
_DIFF = (
    "diff",
    "--no-ext-diff",
    "--no-textconv",
    "--ignore-submodules",
    "--no-color",
    "--no-renames",
    "--binary",
    "HEAD",
)


class GitReader:
    """Reader of the Git state. It starts Git in the background, and the caller must call ``close``."""

    def __init__(self, project: Path) -> None:
        self._state: Git | None = None
        self._problem = ""
        self._scratch = ""
        self._listing: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._deadline = time.monotonic() + TIME_LIMIT
        repository = _Repository.find(os.path.realpath(project))
        if repository is None:
            return
        self._state = Git(repository.commit, repository.branch)
        try:
            self._start(repository, os.path.realpath(project))
        except OSError as error:
            self._problem = error.strerror or str(error)

    def _start(self, repository: _Repository, project: str) -> None:
        program = find_program(repository.top)
        if repository.commit is None:
            self._problem = "there is no commit yet"
        elif not repository.is_own():
            self._problem = (
                "the repository is outside the project and does not list this folder as one of its work trees"
            )
        elif repository.uses_foreign_objects():
            self._problem = "the repository uses objects of another repository"
        elif program is None:
            self._problem = "git is not installed"
        else:
            self._scratch = _private_folder()
            repository.replicate_to(self._scratch)
            # Run both in parallel: the diff is discarded if the list contains files outside of the work tree.
            self._listing = self._run(program, repository.top, ["ls-files", "--cached", "-z"])
            self._process = self._run(program, repository.top, [*_DIFF, "--", os.path.relpath(project, repository.top)])

    def _run(self, program: str, top: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                program,
                "--no-pager",
                f"--git-dir={self._scratch}",
                f"--work-tree={top}",
                "-c",
                "core.fsmonitor=false",
                "-c",
                "core.hooksPath=/dev/null",
                *arguments,
            ],
            cwd=top,
            env=_environment(self._scratch),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def finish(self) -> tuple[Git, bytes] | None:
        """Return the state and the diff. An incomplete diff ends with a line that states the reason."""
        if self._state is None:
            return None
        diff = self._collect() if self._process is not None and self._stays_inside() else b""
        dirty = bool(diff)
        if self._problem and self._state.commit is not None:
            diff += f"# mlw: the diff is incomplete: {self._problem}\n".encode()
        return Git(self._state.commit, self._state.branch, dirty), diff

    def _stays_inside(self) -> bool:
        """Return whether all names in the index are files in the work tree. The index is untrusted."""
        assert self._listing is not None
        names, self._problem = self._read(self._listing, _LARGEST_LIST)
        if not self._problem and _OUTSIDE.search(names):
            self._problem = "the index contains files outside the work tree"
        return not self._problem

    def _collect(self) -> bytes:
        assert self._process is not None
        diff, self._problem = self._read(self._process, LARGEST_DIFF)
        return diff

    def _read(self, process: subprocess.Popen[bytes], limit: int) -> tuple[bytes, str]:
        """Return at most ``limit`` bytes of output and the reason if it is incomplete, otherwise an empty string."""
        assert process.stdout is not None
        parts: list[bytes] = []
        size = 0
        problem = ""
        # Git may have been blocked while the caller was busy, so it always gets some time.
        deadline = max(self._deadline, time.monotonic() + _GRACE)
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while size <= limit:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    problem = f"git took more than {TIME_LIMIT:.0f} seconds"
                    break
                part = os.read(process.stdout.fileno(), 1 << 16)
                if not part:
                    if process.wait() != 0:
                        problem = f"git could not read the repository (exit code {process.returncode})"
                    break
                parts.append(part)
                size += len(part)
            else:
                problem = f"it is larger than {limit // 1_000_000} MB"
        return b"".join(parts)[:limit], problem

    def close(self) -> None:
        for process in (self._listing, self._process):
            if process is not None:
                process.kill()
                process.wait()
                assert process.stdout is not None
                process.stdout.close()
        self._listing = self._process = None
        if self._scratch:
            remove(self._scratch)
            self._scratch = ""


class _Repository:
    """Content of a repository's files, read without Git."""

    def __init__(self, top: str, folder: str) -> None:
        self.top = top
        self.folder = folder
        common = _own_line(folder, "commondir")  # exists in a linked work tree
        self.common = os.path.join(folder, common) if common else folder
        head = _own_line(folder, "HEAD") or ""
        name = head[5:].strip() if head.startswith("ref: ") else ""
        self.branch = name[len("refs/heads/") :] if name.startswith("refs/heads/") else None
        self.commit = self._resolve(name) if _REF.fullmatch(name) else head if _HASH.fullmatch(head) else None

    @staticmethod
    def find(project: str) -> _Repository | None:
        top = project
        while True:
            folder = os.path.join(top, ".git")
            if os.path.isfile(folder):
                line = _read_line(folder) or ""
                folder = os.path.join(top, line[8:]) if line.startswith("gitdir: ") else ""
            if folder and os.path.isfile(os.path.join(folder, "HEAD")):
                repository = _Repository(top, folder)
                # With reftable, the file HEAD names a branch that cannot exist.
                return None if repository.branch == ".invalid" else repository
            if os.path.lexists(os.path.join(top, ".git")) or top == os.path.dirname(top):
                return None
            top = os.path.dirname(top)

    def _resolve(self, name: str) -> str | None:
        for _ in range(5):  # a reference may point to another one
            text = _own_line(self.folder, name) or _own_line(self.common, name) or ""
            if _HASH.fullmatch(text):
                return text
            if not text.startswith("ref: ") or not _REF.fullmatch(text[5:]):
                break
            name = text[5:]
        packed = _own_file(self.common, "packed-refs", 1 << 26) or b""
        line = rb"^([0-9a-f]{40}|[0-9a-f]{64}) " + re.escape(os.fsencode(name)) + rb"$"
        match = re.search(line, packed, re.MULTILINE)
        return match[1].decode("ascii") if match else None

    def is_own(self) -> bool:
        """Return whether the repository is in this work tree or lists it as one of its work trees.

        A project may refer to any of the user's repositories, in a file or through links, and the diff
        would expose its content.
        """
        dot, folder, common = (
            os.path.join(self.top, ".git"),
            os.path.realpath(self.folder),
            os.path.realpath(self.common),
        )
        if folder == dot:
            is_linked = common == folder
        elif common == folder:  # a submodule
            worktree = _WORKTREE.search(self._config())
            is_linked = worktree is not None and os.path.realpath(os.path.join(folder, worktree[1])) == self.top
        else:  # a linked work tree
            back = os.path.realpath(os.path.join(folder, _own_line(folder, "gitdir") or ""))
            is_linked = back == dot and os.path.dirname(folder) == os.path.join(common, "worktrees")
        parts = ((folder, "index"), (common, "objects"), (common, "config"))
        return is_linked and all(_is_below(base, name) for base, name in parts)

    def uses_foreign_objects(self) -> bool:
        """Return whether alternates or links lead to objects elsewhere, which may be private files."""
        objects = os.path.join(self.common, "objects")
        listed = os.path.join(objects, "info", "alternates")
        if os.path.lexists(listed):
            data = _read_file(listed, 1 << 16)
            if data is None or any(line and not line.startswith(b"#") for line in data.splitlines()):
                return True
        entries = _entries(objects)
        folders = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        return any(entry.is_symlink() for entry in chain(entries, *map(_entries, folders)))

    def _config(self) -> str:
        return (_own_file(self.common, "config", 1 << 20) or b"").decode("utf-8", "replace")

    def replicate_to(self, folder: str) -> None:
        """Create a repository in ``folder`` with the same commit and index, and shared objects."""
        assert self.commit is not None
        for name in ("objects", "objects/info", "refs"):
            os.mkdir(os.path.join(folder, name), 0o700)
        objects = os.fsencode(os.path.realpath(os.path.join(self.common, "objects")))
        quoted = objects.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
        _write(folder, "objects/info/alternates", b'"%s"\n' % quoted)
        _write(folder, "HEAD", self.commit.encode("ascii") + b"\n")
        _write(folder, "config", self._settings().encode("ascii"))
        names = ["index", *(name for name in os.listdir(self.folder) if name.startswith("sharedindex."))]
        for name in names:
            self._copy_index(name, folder)

    def _copy_index(self, name: str, folder: str) -> None:
        data = _own_file(self.folder, name, _LARGEST_INDEX)
        if data is None:
            return
        when = os.stat(os.path.join(self.folder, name)).st_mtime_ns
        _write(folder, name, data)
        # Git uses this time to detect entries that are too recent to be trusted.
        os.utime(os.path.join(folder, name), ns=(when, when))

    def _settings(self) -> str:
        lines = ["[core]", "bare = false", "attributesFile = /dev/null", "excludesFile = /dev/null"]
        if self.commit is not None and len(self.commit) == 64:
            lines += ["repositoryformatversion = 1", "[extensions]", "objectformat = sha256", "[core]"]
        else:
            lines += ["repositoryformatversion = 0"]
        section = ""
        for line in self._config().splitlines():
            if line.strip().startswith("["):
                section = line.strip().lower()
            setting = _SETTING.fullmatch(line)
            if section == "[core]" and setting and setting[2].lower() in _HARMLESS.get(setting[1].lower(), ()):
                lines.append(f"{setting[1]} = {setting[2]}")
        return "\n".join(lines) + "\n"


def find_program(top: str) -> str | None:
    """Return the path of Git, ignoring shims and PATH entries that are relative or inside the project."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        real = os.path.realpath(folder)
        if os.path.isabs(folder) and real != top and not real.startswith(top.rstrip(os.sep) + os.sep):
            program = os.path.join(folder, "git")
            if os.path.isfile(program) and os.access(program, os.X_OK) and not is_shim(program):
                return program
    return None


def _environment(home: str) -> dict[str, str]:
    return {
        "PATH": os.defpath,
        "HOME": home,
        "XDG_CONFIG_HOME": home,
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
    }


def _private_folder() -> str:
    """Create a temporary folder without ``tempfile``, whose import takes as long as a small project scan."""
    place = next((p for p in (os.environ.get("TMPDIR", ""), "/tmp") if os.path.isdir(p)), os.getcwd())
    path = os.path.join(os.path.abspath(place), f"mlw-git-{os.urandom(8).hex()}")
    os.mkdir(path, 0o700)
    return path


def _read_file(path: str, limit: int) -> bytes | None:
    """Return the content of a regular file of at most ``limit`` bytes; None for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        return file.read() if stat.S_ISREG(status.st_mode) and status.st_size <= limit else None


def _is_below(base: str, name: str) -> bool:
    """Return whether a path stays below its base folder when links are resolved."""
    return os.path.realpath(os.path.join(base, name)).startswith(os.path.realpath(base) + os.sep)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []  # Git is cleaning up, or will report the missing folder


def _own_file(base: str, name: str, limit: int) -> bytes | None:
    return _read_file(os.path.join(base, name), limit) if _is_below(base, name) else None


def _own_line(base: str, name: str) -> str | None:
    return _read_line(os.path.join(base, name)) if _is_below(base, name) else None


def _read_line(path: str) -> str | None:
    data = _read_file(path, 1 << 16)
    return None if data is None else os.fsdecode(data).rstrip("\n")


def _write(folder: str, name: str, data: bytes) -> None:
    with open(os.open(os.path.join(folder, name), NEW, 0o600), "wb") as file:
        file.write(data)
