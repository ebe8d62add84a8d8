"""Which files of a project a snapshot contains."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlworkbench.errors import SnapshotError
from mlworkbench.paths import DATA_MARK

from .project_trees import SnapshotWorkspace


@pytest.fixture
def workspace(tmp_path: Path) -> SnapshotWorkspace:
    return SnapshotWorkspace(tmp_path)


def test_never_travels(workspace: SnapshotWorkspace) -> None:
    for path in (
        ".git/config",
        ".hg/x",
        "sub/.svn/x",
        "outputs/model.bin",
        "__pycache__/a.pyc",
        "sub/__pycache__/a.pyc",
        ".ipynb_checkpoints/n.ipynb",
        "azureml-logs/x",
        ".azuremlhistory_git/x",
        ".DS_Store",
        "sub/.DS_Store",
        "diagnostics-demo-swift-otter-7k2q.zip",
        "sub/diagnostics-my-own-project-swift-otter-7k2q.zip",
        ".diagnostics-demo-swift-otter-7k2q.zip.0123456789ab.part",
        "got/.mlw-unfinished",
        "got/.mlw-0123456789abcdef01234567.part",
        "got.mlw-0123456789abcdef.part/files/model.bin",
        ".mlw-restore-0123456789abcdef/0",
        "venv/pyvenv.cfg",
        "venv/lib/python3/x.py",
        "deep/er/conda/conda-meta/history",
        "deep/er/conda/bin/python",
    ):
        workspace.write(path)
    kept = ["deep/er/kept", "diagnostics-2026.zip", "sub/azureml-logs/kept", "sub/outputs/kept.txt", "train.py"]
    for path in kept:
        workspace.write(path)
    digest = workspace.take().digest
    assert workspace.paths(digest) == kept
    assert workspace.manifest(digest)["folders"] == ["got"]


def test_outputs_of_any_kind(workspace: SnapshotWorkspace) -> None:
    workspace.write("train.py")
    os.symlink("/data", workspace.project / "outputs")
    assert workspace.manifest(workspace.take().digest)["links"] == []


def test_three_ignore_files(workspace: SnapshotWorkspace) -> None:
    workspace.write(".gitignore", "*.bin\n*.csv\n")
    workspace.write(".amlignore", "*.tmp\n!b.csv\n")
    workspace.write(".mlwignore", "!keep.bin\nnotes/\n")
    for path in ("a.bin", "keep.bin", "a.csv", "b.csv", "c.tmp", "notes/x", "train.py"):
        workspace.write(path)
    assert workspace.paths(workspace.take().digest) == [
        ".amlignore",
        ".gitignore",
        ".mlwignore",
        "b.csv",
        "keep.bin",
        "train.py",
    ]


def test_nested_ignore_files(workspace: SnapshotWorkspace) -> None:
    workspace.write(".gitignore", "*.log\n/top.txt\npruned/\n")
    workspace.write("sub/.gitignore", "!kept.log\n/top.txt\nlocal\n")
    workspace.write("pruned/.gitignore", "!*\n")
    for path in (
        "a.log",
        "top.txt",
        "sub/a.log",
        "sub/kept.log",
        "sub/top.txt",
        "sub/in/top.txt",
        "sub/in/local",
        "local",
        "pruned/x",
    ):
        workspace.write(path)
    assert workspace.paths(workspace.take().digest) == [
        ".gitignore",
        "local",
        "sub/.gitignore",
        "sub/in/top.txt",
        "sub/kept.log",
    ]


def test_content_reincluded(workspace: SnapshotWorkspace) -> None:
    workspace.write(".gitignore", "data/**\n!data/keep.csv\nother\n!other/keep.csv\n")
    for path in ("data/a.csv", "data/keep.csv", "other/keep.csv"):
        workspace.write(path)
    assert workspace.paths(workspace.take().digest) == [".gitignore", "data/keep.csv"]


def test_changed_ignore_file(workspace: SnapshotWorkspace) -> None:
    """A cached decision becomes invalid when the rules change."""
    workspace.write("sub/a.txt")
    workspace.write("sub/in/a.txt")
    workspace.write("sub/in/b.bin")
    assert workspace.paths(workspace.take().digest) == ["sub/a.txt", "sub/in/a.txt", "sub/in/b.bin"]
    workspace.write("sub/.gitignore", "a.txt\n")
    assert workspace.paths(workspace.take().digest) == ["sub/.gitignore", "sub/in/b.bin"]
    workspace.write("sub/.gitignore", "b.bin\n")
    assert workspace.paths(workspace.take().digest) == ["sub/.gitignore", "sub/a.txt", "sub/in/a.txt"]
    os.unlink(workspace.project / "sub/.gitignore")
    assert workspace.paths(workspace.take().digest) == ["sub/a.txt", "sub/in/a.txt", "sub/in/b.bin"]


def test_same_name_other_kind(workspace: SnapshotWorkspace) -> None:
    """`name/` in an ignore file matches only folders, even if the name was a file in the previous snapshot."""
    workspace.write(".gitignore", "thing/\n")
    workspace.write("thing")
    assert "thing" in workspace.paths(workspace.take().digest)
    os.unlink(workspace.project / "thing")
    workspace.write("thing/x")
    assert workspace.paths(workspace.take().digest) == [".gitignore"]
    os.unlink(workspace.project / "thing/x")
    os.rmdir(workspace.project / "thing")
    workspace.write("thing")
    assert "thing" in workspace.paths(workspace.take().digest)


def test_environment_comes_and_goes(workspace: SnapshotWorkspace) -> None:
    workspace.write("env/lib/a.py")
    assert workspace.paths(workspace.take().digest) == ["env/lib/a.py"]
    workspace.write("env/pyvenv.cfg")
    assert workspace.paths(workspace.take().digest) == []
    os.unlink(workspace.project / "env/pyvenv.cfg")
    assert workspace.paths(workspace.take().digest) == ["env/lib/a.py"]


def test_usual_folders_are_left_out_with_a_line(workspace: SnapshotWorkspace) -> None:
    for path in (
        "venv/pyvenv.cfg",
        "venv/lib/a.py",
        "conda/conda-meta/history",
        "web/node_modules/left-pad/index.js",
        ".pytest_cache/v",
        "own-cache/CACHEDIR.TAG",
        "train.py",
    ):
        workspace.write(path)
    snapshot = workspace.take()
    assert workspace.paths(snapshot.digest) == ["train.py"]
    assert snapshot.notes == (), "not a warning"
    assert snapshot.left_out == (
        "5 folders excluded by default (environments, caches, and similar): .pytest_cache/, conda/, own-cache/, and"
        " 2 more; to include one, add !.pytest_cache to .mlwignore"
    )
    again = workspace.take()
    assert (again.notes, again.left_out) == (snapshot.notes, snapshot.left_out)


def test_usual_folders_asked_for(workspace: SnapshotWorkspace) -> None:
    workspace.write("venv/pyvenv.cfg")
    workspace.write("venv/lib/a.py")
    workspace.write("web/node_modules/left-pad/node_modules/x/index.js")
    workspace.write(".mypy_cache/a")
    workspace.write(".gitignore", "!.mypy_cache\n")  # .gitignore cannot include folders excluded by default
    workspace.write(".mlwignore", "!venv\n!node_modules/\n")
    snapshot = workspace.take()
    inner = "web/node_modules/left-pad/node_modules/x/index.js"
    assert workspace.paths(snapshot.digest) == [".gitignore", ".mlwignore", "venv/lib/a.py", "venv/pyvenv.cfg", inner]
    left_out = "1 folder excluded by default (environments, caches, and similar): .mypy_cache/"
    assert (snapshot.left_out or "").partition(";")[0] == left_out


def test_a_data_folder_of_ours_never_travels(workspace: SnapshotWorkspace) -> None:
    workspace.write(f"data/{DATA_MARK}")
    workspace.write("data/keys/id")
    workspace.write(".mlwignore", "!data\n")
    assert workspace.paths(workspace.take().digest) == [".mlwignore"]


def test_odd_ignore_files(workspace: SnapshotWorkspace) -> None:
    """A link is not followed (as in git), a FIFO is not opened, and bytes that are not UTF-8 match themselves."""
    workspace.write("rules", "train.py\n")
    os.symlink("rules", workspace.project / ".gitignore")
    os.mkfifo(workspace.project / ".amlignore")
    workspace.write(".mlwignore", b"caf\xe9.txt\n")
    workspace.write(b"caf\xe9.txt")
    workspace.write("train.py")
    assert workspace.paths(workspace.take().digest) == [".mlwignore", "rules", "train.py"]


SECRETS = (
    ".env",
    ".env.local",
    "conf/.env.production",
    "server.pem",
    "server.KEY",
    "id_rsa",
    "id_ed25519_work",
    "x.p12",
    "x.pfx",
    ".netrc",
    ".git-credentials",
    ".aws/credentials",
    ".ssh/config",
)
NO_SECRETS = (".env.example", ".env.sample", ".env.template", "id_rsa.pub", "keys.py", "environment.env.py")


def test_secrets_left_out(workspace: SnapshotWorkspace) -> None:
    for path in SECRETS + NO_SECRETS:
        workspace.write(path, "canary-s3cret" if path in SECRETS else "fine")
    snapshot = workspace.take()
    assert workspace.paths(snapshot.digest) == sorted(NO_SECRETS)
    [note] = snapshot.notes
    assert note.startswith("13 paths excluded (possible secrets): .aws/, .env, .env.local, and 10 more")
    assert "!" in note and ".mlwignore" in note
    for folder, _, names in os.walk(workspace.folder / "home"):
        assert not any(b"canary" in Path(folder, name).read_bytes() for name in names)


def test_secret_asked_for(workspace: SnapshotWorkspace) -> None:
    workspace.write(".env")
    workspace.write("test/cert.pem")
    workspace.write(".ssh/known_hosts")
    workspace.write(".mlwignore", "!.env\n!/test/cert.pem\n!.ssh/\n")
    snapshot = workspace.take()
    assert workspace.paths(snapshot.digest) == [".env", ".mlwignore", ".ssh/known_hosts", "test/cert.pem"]
    assert snapshot.notes == ()


def test_gitignore_reveals_no_secret(workspace: SnapshotWorkspace) -> None:
    """A pattern such as `!.env` in .gitignore does not include a secret. Ignored files cause no note."""
    workspace.write(".env")
    workspace.write("a.pem")
    workspace.write(".gitignore", "!.env\na.pem\n")
    snapshot = workspace.take()
    assert workspace.paths(snapshot.digest) == [".gitignore"]
    assert len(snapshot.notes) == 1 and "a.pem" not in snapshot.notes[0]


def test_store_inside_project(workspace: SnapshotWorkspace) -> None:
    workspace.write("train.py")
    workspace.root = type(workspace.root)(os.fspath(workspace.project / ".mlw"))
    workspace.cache = workspace.project / ".mlw" / "cache"
    first = workspace.take().digest
    assert workspace.paths(first) == ["train.py"]
    assert workspace.take().digest == first


def test_huge_ignore_file(workspace: SnapshotWorkspace) -> None:
    workspace.write(".gitignore", b"x\n" * 600_000)
    with pytest.raises(SnapshotError, match=r"\.gitignore \(larger than 1 MB\)"):
        workspace.take()
