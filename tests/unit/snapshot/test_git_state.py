"""Reading the state of a repository runs no program that the repository configures."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from mlworkbench.model import Git
from mlworkbench.snapshot import git_state as module
from mlworkbench.snapshot.git_state import GitReader

REAL_GIT = shutil.which("git") or "git"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "train.py").write_text("print(1)\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "data.bin").write_bytes(bytes(range(256)))
    commit(folder)
    return folder


def git(folder: Path, *words: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": os.fspath(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    answer = subprocess.run([REAL_GIT, *identity, *words], cwd=folder, env=environment, check=True, capture_output=True)
    return answer.stdout.decode().strip()


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "work")


def read_git(project: Path) -> tuple[Git, bytes] | None:
    reader = GitReader(project)
    try:
        return reader.finish()
    finally:
        reader.close()


def read(project: Path) -> tuple[Git, bytes]:
    state = read_git(project)
    assert state is not None
    return state


def test_clean(repo: Path) -> None:
    assert read(repo) == (Git(git(repo, "rev-parse", "HEAD"), "main", False), b"")


def test_no_repository(tmp_path: Path) -> None:
    assert read_git(tmp_path) is None


def test_nothing_left_behind(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", os.fspath(scratch))
    before = sorted((os.fspath(p), p.lstat().st_mtime_ns) for p in repo.rglob("*"))
    (repo / "train.py").write_text("print(2)  # changed\n")
    read(repo)
    assert list(scratch.iterdir()) == []
    after = sorted((os.fspath(p), p.lstat().st_mtime_ns) for p in repo.rglob("*"))
    assert [p for p in before if p[0] != os.fspath(repo / "train.py")] == [
        p for p in after if p[0] != os.fspath(repo / "train.py")
    ]


def test_diff_can_be_applied(repo: Path, tmp_path: Path) -> None:
    git(repo, "clone", "-q", ".", os.fspath(tmp_path / "other"))
    (repo / "train.py").write_text("print(2)\nprint('\u00fc')\n")
    (repo / "sub" / "data.bin").write_bytes(bytes(range(255, -1, -1)))
    (repo / "new.py").write_text("staged\n")
    git(repo, "add", "new.py")
    (repo / "untracked").write_text("not in the diff\n")
    state, diff = read(repo)
    assert state.dirty and b"untracked" not in diff
    patch = tmp_path / "patch"
    patch.write_bytes(diff)
    git(tmp_path / "other", "apply", os.fspath(patch))
    for name in ("train.py", "sub/data.bin", "new.py"):
        assert (tmp_path / "other" / name).read_bytes() == (repo / name).read_bytes()


def test_quick_edit_is_seen(repo: Path) -> None:
    """The file changes in the same second as the index and keeps its size, which git calls "racily clean"."""
    for number in range(5):
        (repo / "train.py").write_text(f"print({number})\n")
        git(repo, "add", "-A")
        (repo / "train.py").write_text(f"print({number + 1})\n")
        git(repo, "commit", "-q", "--allow-empty", "-m", "x")
        assert read(repo)[0].dirty, number


def test_subfolder_is_the_project(repo: Path) -> None:
    (repo / "train.py").write_text("elsewhere\n")
    state, diff = read(repo / "sub")
    assert state == Git(git(repo, "rev-parse", "HEAD"), "main", False) and diff == b""
    (repo / "sub" / "data.bin").write_bytes(b"new")
    state, diff = read(repo / "sub")
    assert state.dirty and b"sub/data.bin" in diff and b"train.py" not in diff


def test_project_with_odd_name(tmp_path: Path) -> None:
    top = tmp_path / 'new\nline "quoted" \\ :(glob)*'
    project = top / "*[x]"
    project.mkdir(parents=True)
    git(top, "init", "-q", "-b", "main")
    (project / "a b\n.py").write_text("1\n")
    commit(top)
    (project / "a b\n.py").write_text("22\n")
    state, diff = read(project)
    assert state.dirty and b"+22\n" in diff


def test_packed_detached_unborn(repo: Path, tmp_path: Path) -> None:
    head = git(repo, "rev-parse", "HEAD")
    git(repo, "checkout", "-q", "-b", "feature/new-thing")
    git(repo, "pack-refs", "--all")
    git(repo, "gc", "-q")
    assert read(repo)[0] == Git(head, "feature/new-thing", False)
    git(repo, "checkout", "-q", "--detach")
    assert read(repo)[0] == Git(head, None, False)
    new = tmp_path / "new"
    new.mkdir()
    git(new, "init", "-q", "-b", "trunk")
    assert read(new) == (Git(None, "trunk", False), b"")


def test_linked_work_tree(repo: Path, tmp_path: Path) -> None:
    git(repo, "worktree", "add", "-q", "-b", "side", os.fspath(tmp_path / "linked"))
    (tmp_path / "linked" / "train.py").write_text("side work\n")
    state, diff = read(tmp_path / "linked")
    assert state == Git(git(repo, "rev-parse", "HEAD"), "side", True) and b"+side work" in diff
    assert not read(repo)[0].dirty


def test_submodule(repo: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q", "-b", "main")
    git(outer, "submodule", "add", "-q", os.fspath(repo), "inner")
    commit(outer)
    (outer / "inner" / "train.py").write_text("print('changed inside')\n")
    assert not read(outer)[0].dirty
    state, diff = read(outer / "inner")
    assert state.dirty and b"changed inside" in diff


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize(
    "name", ["../secret.txt", "sub/../../secret.txt", "{secret}", ".git/secret", "sub/.GIT/secret", ".//../secret.txt"]
)
def test_an_index_with_names_of_files_elsewhere(repo: Path, tmp_path: Path, name: str, version: int) -> None:
    for secret in (tmp_path / "secret.txt", repo / ".git" / "secret", repo / "sub" / ".GIT" / "secret"):
        secret.parent.mkdir(exist_ok=True)
        secret.write_text("SECRET OF THE USER\n")
    (repo / "train.py").write_text("print(2)\n")
    names = [name.format(secret=tmp_path / "secret.txt"), "train.py"]
    write_index(repo, sorted(names), version)
    state, diff = read(repo)
    assert diff == b"# mlw: the diff is incomplete: the index contains files outside the work tree\n"
    assert state.commit == git(repo, "rev-parse", "HEAD")


@pytest.mark.parametrize("version", [2, 4])
def test_an_index_with_odd_names(repo: Path, version: int) -> None:
    names = ["..a", ".a/b..", ".gitignore", "a\n..\nb", "b/..c/...", "train.py", "x.git/y"]
    write_index(repo, names, version)
    (repo / "..a").write_text("NEW TEXT\n")
    state, diff = read(repo)
    assert state.dirty and b"NEW TEXT" in diff and b"# mlw" not in diff


def write_index(repo: Path, names: list[str], version: int) -> None:
    """Write an index as a hostile project can contain it. git itself refuses some of the names."""
    blob = bytes.fromhex(git(repo, "rev-parse", "HEAD:train.py"))
    data, before = struct.pack(">4sII", b"DIRC", version, len(names)), b""
    for text in names:
        name = os.fsencode(text)
        entry = struct.pack(">10I", 0, 0, 0, 0, 0, 0, 0o100644, 0, 0, 0) + blob + struct.pack(">H", len(name))
        if version == 4:  # drop the whole previous name, then append this one
            entry += bytes([len(before)]) + name + b"\0"
        else:
            entry += name + b"\0" * (8 - (len(entry) + len(name)) % 8)
        data, before = data + entry, name
    (repo / ".git" / "index").write_bytes(data + hashlib.sha1(data).digest())


def test_split_index(repo: Path) -> None:
    git(repo, "update-index", "--split-index")
    assert list((repo / ".git").glob("sharedindex.*"))
    (repo / "train.py").write_text("print('split')\n")
    state, diff = read(repo)
    assert state.dirty and b"split" in diff and b"data.bin" not in diff


def test_sha256_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main", "--object-format=sha256", "long")
    repo = tmp_path / "long"
    (repo / "a").write_text("1\n")
    commit(repo)
    (repo / "a").write_text("22\n")
    state, diff = read(repo)
    assert state.commit is not None and len(state.commit) == 64 and b"+22" in diff


def test_reference_table(repo: Path) -> None:
    """mlw does not read the binary table of a repository created with `git init --ref-format=reftable`."""
    (repo / ".git" / "HEAD").write_text("ref: refs/heads/.invalid\n")
    assert read_git(repo) is None


@pytest.mark.parametrize(
    ("settings", "change"),
    [(["core.fileMode", "false"], "mode"), (["core.autocrlf", "true"], "crlf"), (["core.autocrlf", "input"], "crlf")],
)
def test_harmless_settings_are_kept(repo: Path, settings: list[str], change: str) -> None:
    git(repo, "config", *settings)
    if change == "mode":
        os.chmod(repo / "train.py", 0o755)
    else:
        (repo / "train.py").write_bytes(b"print(1)\r\n")
    assert not read(repo)[0].dirty
    git(repo, "config", "--unset", settings[0])
    assert read(repo)[0].dirty


def test_without_git(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = git(repo, "rev-parse", "HEAD")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert read(repo) == (Git(head, "main", False), b"# mlw: the diff is incomplete: git is not installed\n")


def test_large_diff_is_cut(repo: Path) -> None:
    (repo / "train.py").write_bytes(b"line of text\n" * 1_000_000)
    state, diff = read(repo)
    assert state.dirty
    assert diff.endswith(b"# mlw: the diff is incomplete: it is larger than 10 MB\n")
    assert len(diff) < 10_000_100


def test_slow_git_is_left(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ncase $* in *ls-files*) exit 0 ;; esac\necho begun\nexec sleep 1000\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", os.fspath(program.parent))
    monkeypatch.setattr(module, "TIME_LIMIT", 0.5)
    _, diff = read(repo)
    assert diff.startswith(b"begun\n# mlw: the diff is incomplete: git took more than")


def test_damaged_repository(repo: Path) -> None:
    shutil.rmtree(repo / ".git" / "objects")
    state, diff = read(repo)
    assert state.branch == "main" and diff.startswith(b"# mlw: the diff is incomplete: git could not read")


@pytest.mark.parametrize("content", [b"", b"nonsense", b"gitdir: /nonexistent", b"gitdir: .", b"\xff" * 100])
def test_strange_git_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".git").write_bytes(content)
    assert read_git(tmp_path) is None


@pytest.mark.parametrize("head", ["", "nonsense", "ref: ../../etc/passwd", "ref: refs/heads/../../x", "\xff", "ref: "])
def test_strange_head(repo: Path, head: str) -> None:
    (repo / ".git" / "HEAD").write_text(head)
    state = read_git(repo)
    assert state is not None and state[0].commit is None


def test_fifos_do_not_block(repo: Path) -> None:
    for name in ("index", "config", "packed-refs"):
        (repo / ".git" / name).unlink(missing_ok=True)
        os.mkfifo(repo / ".git" / name)
    read(repo)
    (repo / ".git" / "HEAD").unlink()
    os.mkfifo(repo / ".git" / "HEAD")
    assert read_git(repo) is None


# -- hostile repositories -----------------------------------------------------------------------------


@pytest.fixture
def canary(tmp_path: Path) -> tuple[str, Path]:
    """A program that creates a file when it runs."""
    mark = tmp_path / "MARK"
    program = tmp_path / "canary.sh"
    program.write_text(f"#!/bin/sh\ntouch '{mark}'\ncat\n")
    program.chmod(0o755)
    return os.fspath(program), mark


HOSTILE: dict[str, list[list[str]]] = {
    "fsmonitor": [["core.fsmonitor", "{}"]],
    "hooks": [["core.hooksPath", "hooks"]],
    "filter": [["filter.evil.clean", "{}"], ["filter.evil.smudge", "{}"], ["filter.evil.required", "true"]],
    "process": [["filter.evil.process", "{}"], ["filter.evil.required", "true"]],
    "external": [["diff.external", "{}"]],
    "driver": [["diff.evil.command", "{}"]],
    "textconv": [["diff.evil.textconv", "{}"]],
    "alias": [["alias.diff", "!{}"]],
    "pager": [["core.pager", "{}"], ["pager.diff", "{}"]],
    "include": [["include.path", "../more-config"]],
    "other": [
        ["core.sshCommand", "{}"],
        ["core.editor", "{}"],
        ["credential.helper", "!{}"],
        ["gpg.program", "{}"],
        ["core.askPass", "{}"],
        ["core.gitProxy", "{}"],
        ["uploadpack.packObjectsHook", "{}"],
    ],
}


def poison(repo: Path, kind: str, program: str) -> None:
    (repo / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (repo / "more-config").write_text(f"[core]\n\tfsmonitor = {program}\n[diff]\n\texternal = {program}\n")
    commit(repo)
    (repo / "hooks").mkdir()
    for hook in ("post-index-change", "fsmonitor-watchman", "pre-commit", "post-checkout", "reference-transaction"):
        for place in (repo / "hooks", repo / ".git" / "hooks"):
            place.mkdir(exist_ok=True)
            shutil.copy(program, place / hook)
    for name, value in HOSTILE[kind]:
        git(repo, "config", name, value.format(program))
    os.utime(repo / ".gitattributes", (1, 1))  # git then writes its index, which runs a hook
    (repo / "train.py").write_text("print('changed')\n")


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_repository(repo: Path, canary: tuple[str, Path], kind: str) -> None:
    program, mark = canary
    poison(repo, kind, program)
    mark.unlink(missing_ok=True)  # git may have run the program while the test prepared the repository
    for project in (repo, repo / "sub"):
        read(project)
    assert b"print('changed')" in read(repo)[1]
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["fsmonitor", "hooks", "filter", "external", "driver", "textconv", "include"])
def test_the_traps_are_real(repo: Path, canary: tuple[str, Path], kind: str) -> None:
    """Plain git runs the canary in the same repository. Otherwise, the test above would prove nothing."""
    program, mark = canary
    poison(repo, kind, program)
    mark.unlink(missing_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": "/"}
    for words in (["diff", "HEAD"], ["status"]):
        subprocess.run([REAL_GIT, *words], cwd=repo, env=environment, check=False, capture_output=True)
    assert mark.exists()


def test_hostile_environment(repo: Path, canary: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    program, mark = canary
    (repo / "train.py").write_text("print('changed')\n")
    for name in ("GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_TRACE_HOOK"):
        monkeypatch.setenv(name, program)
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nonexistent")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "diff.external")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", program)
    assert b"print('changed')" in read(repo)[1]
    assert not mark.exists()


def test_git_program_in_project(repo: Path, canary: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """PATH entries that are relative or lead into the project, even through links, are skipped."""
    program, mark = canary
    (repo / "bin").mkdir()
    shutil.copy(program, repo / "bin" / "git")
    shutil.copy(program, repo / "git")
    os.symlink(repo / "bin", repo.parent / "link-to-bin")
    monkeypatch.chdir(repo)
    places = [".", "", "bin", repo / "bin", repo, repo.parent / "link-to-bin", repo / "sub" / ".." / "bin"]
    monkeypatch.setenv("PATH", ":".join([*map(str, places), os.path.dirname(REAL_GIT)]))
    (repo / "train.py").write_text("print('changed')\n")
    for project in (repo, repo / "sub"):
        read(project)
    assert b"print('changed')" in read(repo)[1]
    assert not mark.exists()


@pytest.mark.parametrize("way", ["file", "link", "commondir", "parts"])
def test_another_repository_is_not_read_through_the_project(tmp_path: Path, way: str) -> None:
    """The diff is shown and exported, so it must not contain files of another repository that the project refers to."""
    private = tmp_path / "private"
    private.mkdir()
    git(private, "init", "-q", "-b", "main")
    (private / "letter").write_text("dear diary\n")
    commit(private)
    project = tmp_path / "hostile"
    project.mkdir()
    inner = project / ".git"
    if way == "file":
        inner.write_text(f"gitdir: {private / '.git'}\n")
    elif way == "link":
        inner.symlink_to(private / ".git")
    else:
        inner.mkdir()
        (inner / "index").write_bytes((private / ".git" / "index").read_bytes())
        if way == "commondir":
            (inner / "HEAD").write_text("ref: refs/heads/main\n")
            (inner / "commondir").write_text(f"{private / '.git'}\n")
        else:
            for name in ("HEAD", "refs", "objects"):
                (inner / name).symlink_to(private / ".git" / name)
    state, diff = read(project)
    assert b"diary" not in diff
    assert state.commit is None or b"the repository is outside the project" in diff


@pytest.mark.parametrize("way", ["alternates", "quoted", "chain", "pack", "packs", "loose", "objects"])
def test_objects_of_another_repository_are_not_borrowed(tmp_path: Path, way: str) -> None:
    """A hostile project that refers to a commit of a private repository must not get its files."""
    private = tmp_path / "private"
    private.mkdir()
    git(private, "init", "-q", "-b", "main")
    (private / "letter").write_text("dear diary\n")
    commit(private)
    if way in ("pack", "packs"):
        git(private, "gc", "-q")
    theirs = private / ".git" / "objects"
    project = tmp_path / "hostile"
    project.mkdir()
    git(project, "init", "-q", "-b", "main")
    ours = project / ".git" / "objects"
    (project / ".git" / "HEAD").write_text(git(private, "rev-parse", "HEAD") + "\n")
    if way == "chain":
        (ours / "inner" / "info").mkdir(parents=True)
        (ours / "inner" / "info" / "alternates").write_text(f"{theirs}\n")
    if way in ("alternates", "quoted", "chain"):
        named = {"alternates": f"# theirs\n{theirs}\n", "quoted": f'"{theirs}"\n', "chain": f"{ours}/inner\n"}[way]
        (ours / "info" / "alternates").write_text(named)
    elif way == "packs":
        (ours / "pack").rmdir()
        (ours / "pack").symlink_to(theirs / "pack")
    elif way == "pack":
        for path in (theirs / "pack").iterdir():
            (ours / "pack" / path.name).symlink_to(path)
    else:
        for folder in (path for path in theirs.iterdir() if len(path.name) == 2):
            if way == "loose":
                (ours / folder.name).symlink_to(folder)
                continue
            (ours / folder.name).mkdir()
            for path in folder.iterdir():
                (ours / folder.name / path.name).symlink_to(path)
    _, diff = read(project)
    assert b"diary" not in diff
    assert b"the repository uses objects of another repository" in diff


def test_an_empty_list_of_other_repositories_borrows_nothing(repo: Path) -> None:
    (repo / ".git" / "objects" / "info" / "alternates").write_text("# none\n\n")
    (repo / "train.py").write_text("print('changed')\n")
    _, diff = read(repo)
    assert b"print('changed')" in diff and b"# mlw" not in diff
