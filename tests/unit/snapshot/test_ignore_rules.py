"""Which files of a project travel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlworkbench.errors import SnapshotError
from mlworkbench.paths import DATA_MARK

from .snapshot_trees import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_never_travels(desk: Desk) -> None:
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
        desk.write(path)
    kept = ["deep/er/kept", "diagnostics-2026.zip", "sub/azureml-logs/kept", "sub/outputs/kept.txt", "train.py"]
    for path in kept:
        desk.write(path)
    digest = desk.take().digest
    assert desk.paths(digest) == kept
    assert desk.manifest(digest)["folders"] == ["got"]


def test_outputs_of_any_kind(desk: Desk) -> None:
    desk.write("train.py")
    os.symlink("/data", desk.project / "outputs")
    assert desk.manifest(desk.take().digest)["links"] == []


def test_three_ignore_files(desk: Desk) -> None:
    desk.write(".gitignore", "*.bin\n*.csv\n")
    desk.write(".amlignore", "*.tmp\n!b.csv\n")
    desk.write(".mlwignore", "!keep.bin\nnotes/\n")
    for path in ("a.bin", "keep.bin", "a.csv", "b.csv", "c.tmp", "notes/x", "train.py"):
        desk.write(path)
    assert desk.paths(desk.take().digest) == [
        ".amlignore",
        ".gitignore",
        ".mlwignore",
        "b.csv",
        "keep.bin",
        "train.py",
    ]


def test_nested_ignore_files(desk: Desk) -> None:
    desk.write(".gitignore", "*.log\n/top.txt\npruned/\n")
    desk.write("sub/.gitignore", "!kept.log\n/top.txt\nlocal\n")
    desk.write("pruned/.gitignore", "!*\n")
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
        desk.write(path)
    assert desk.paths(desk.take().digest) == [
        ".gitignore",
        "local",
        "sub/.gitignore",
        "sub/in/top.txt",
        "sub/kept.log",
    ]


def test_content_reincluded(desk: Desk) -> None:
    desk.write(".gitignore", "data/**\n!data/keep.csv\nother\n!other/keep.csv\n")
    for path in ("data/a.csv", "data/keep.csv", "other/keep.csv"):
        desk.write(path)
    assert desk.paths(desk.take().digest) == [".gitignore", "data/keep.csv"]


def test_changed_ignore_file(desk: Desk) -> None:
    """A remembered decision must not outlive the rule behind it."""
    desk.write("sub/a.txt")
    desk.write("sub/in/a.txt")
    desk.write("sub/in/b.bin")
    assert desk.paths(desk.take().digest) == ["sub/a.txt", "sub/in/a.txt", "sub/in/b.bin"]
    desk.write("sub/.gitignore", "a.txt\n")
    assert desk.paths(desk.take().digest) == ["sub/.gitignore", "sub/in/b.bin"]
    desk.write("sub/.gitignore", "b.bin\n")
    assert desk.paths(desk.take().digest) == ["sub/.gitignore", "sub/a.txt", "sub/in/a.txt"]
    os.unlink(desk.project / "sub/.gitignore")
    assert desk.paths(desk.take().digest) == ["sub/a.txt", "sub/in/a.txt", "sub/in/b.bin"]


def test_same_name_other_kind(desk: Desk) -> None:
    """`name/` in an ignore file is about folders only, also when the name was something else before."""
    desk.write(".gitignore", "thing/\n")
    desk.write("thing")
    assert "thing" in desk.paths(desk.take().digest)
    os.unlink(desk.project / "thing")
    desk.write("thing/x")
    assert desk.paths(desk.take().digest) == [".gitignore"]
    os.unlink(desk.project / "thing/x")
    os.rmdir(desk.project / "thing")
    desk.write("thing")
    assert "thing" in desk.paths(desk.take().digest)


def test_environment_comes_and_goes(desk: Desk) -> None:
    desk.write("env/lib/a.py")
    assert desk.paths(desk.take().digest) == ["env/lib/a.py"]
    desk.write("env/pyvenv.cfg")
    assert desk.paths(desk.take().digest) == []
    os.unlink(desk.project / "env/pyvenv.cfg")
    assert desk.paths(desk.take().digest) == ["env/lib/a.py"]


def test_usual_folders_are_left_out_with_a_line(desk: Desk) -> None:
    for path in (
        "venv/pyvenv.cfg",
        "venv/lib/a.py",
        "conda/conda-meta/history",
        "web/node_modules/left-pad/index.js",
        ".pytest_cache/v",
        "own-cache/CACHEDIR.TAG",
        "train.py",
    ):
        desk.write(path)
    snapshot = desk.take()
    assert desk.paths(snapshot.digest) == ["train.py"]
    assert snapshot.notes == (), "not a warning"
    assert snapshot.left_out == (
        "5 folders excluded by default (environments, caches, and similar): .pytest_cache/, conda/, own-cache/, and"
        " 2 more; to include one, add !.pytest_cache to .mlwignore"
    )
    again = desk.take()
    assert (again.notes, again.left_out) == (snapshot.notes, snapshot.left_out)


def test_usual_folders_asked_for(desk: Desk) -> None:
    desk.write("venv/pyvenv.cfg")
    desk.write("venv/lib/a.py")
    desk.write("web/node_modules/left-pad/node_modules/x/index.js")
    desk.write(".mypy_cache/a")
    desk.write(".gitignore", "!.mypy_cache\n")  # git may have it; that does not mean that it is to travel
    desk.write(".mlwignore", "!venv\n!node_modules/\n")
    snapshot = desk.take()
    inner = "web/node_modules/left-pad/node_modules/x/index.js"
    assert desk.paths(snapshot.digest) == [".gitignore", ".mlwignore", "venv/lib/a.py", "venv/pyvenv.cfg", inner]
    left_out = "1 folder excluded by default (environments, caches, and similar): .mypy_cache/"
    assert (snapshot.left_out or "").partition(";")[0] == left_out


def test_a_data_folder_of_ours_never_travels(desk: Desk) -> None:
    desk.write(f"data/{DATA_MARK}")
    desk.write("data/keys/id")
    desk.write(".mlwignore", "!data\n")
    assert desk.paths(desk.take().digest) == [".mlwignore"]


def test_odd_ignore_files(desk: Desk) -> None:
    """A link is not followed, as in git; a FIFO is not opened; bytes that are no UTF-8 match themselves."""
    desk.write("rules", "train.py\n")
    os.symlink("rules", desk.project / ".gitignore")
    os.mkfifo(desk.project / ".amlignore")
    desk.write(".mlwignore", b"caf\xe9.txt\n")
    desk.write(b"caf\xe9.txt")
    desk.write("train.py")
    assert desk.paths(desk.take().digest) == [".mlwignore", "rules", "train.py"]


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


def test_secrets_left_out(desk: Desk) -> None:
    for path in SECRETS + NO_SECRETS:
        desk.write(path, "canary-s3cret" if path in SECRETS else "fine")
    snapshot = desk.take()
    assert desk.paths(snapshot.digest) == sorted(NO_SECRETS)
    [note] = snapshot.notes
    assert note.startswith("13 paths excluded (possible secrets): .aws/, .env, .env.local, and 10 more")
    assert "!" in note and ".mlwignore" in note
    for folder, _, names in os.walk(desk.folder / "home"):
        assert not any(b"canary" in Path(folder, name).read_bytes() for name in names)


def test_secret_asked_for(desk: Desk) -> None:
    desk.write(".env")
    desk.write("test/cert.pem")
    desk.write(".ssh/known_hosts")
    desk.write(".mlwignore", "!.env\n!/test/cert.pem\n!.ssh/\n")
    snapshot = desk.take()
    assert desk.paths(snapshot.digest) == [".env", ".mlwignore", ".ssh/known_hosts", "test/cert.pem"]
    assert snapshot.notes == ()


def test_gitignore_reveals_no_secret(desk: Desk) -> None:
    """That git may have it does not mean that it is to travel; what is ignored anyway is not worth a note."""
    desk.write(".env")
    desk.write("a.pem")
    desk.write(".gitignore", "!.env\na.pem\n")
    snapshot = desk.take()
    assert desk.paths(snapshot.digest) == [".gitignore"]
    assert len(snapshot.notes) == 1 and "a.pem" not in snapshot.notes[0]


def test_store_inside_project(desk: Desk) -> None:
    desk.write("train.py")
    desk.root = type(desk.root)(os.fspath(desk.project / ".mlw"))
    desk.cache = desk.project / ".mlw" / "cache"
    first = desk.take().digest
    assert desk.paths(first) == ["train.py"]
    assert desk.take().digest == first


def test_huge_ignore_file(desk: Desk) -> None:
    desk.write(".gitignore", b"x\n" * 600_000)
    with pytest.raises(SnapshotError, match=r"\.gitignore \(larger than 1 MB\)"):
        desk.take()
