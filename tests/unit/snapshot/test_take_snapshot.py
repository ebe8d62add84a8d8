"""A snapshot contains the project unchanged: odd names, links, special files, and files that change meanwhile."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlworkbench.errors import SnapshotError
from mlworkbench.remote.shared.folder_tree import remove
from mlworkbench.snapshot.ignore_rules import exclusion_reason

from .project_trees import SOURCE, SnapshotWorkspace, drop_privileges, fork, in_child, read_tree

ODD_NAMES = [
    b"with space",
    b" leading",
    b"trailing ",
    b"trailing.",
    b"quote'\"`$;&|",
    b"new\nline",
    b"tab\t",
    b"-rf",
    b"--",
    b"caf\xc3\xa9",
    b"cafe\xcc\x81",
    b"\xff\xfe not utf-8",
    b"\xf0\x9f\x90\x99",
    b"\xe2\x80\xaeright to left",
    b"CON",
    b"a:b",
    b"back\\slash",
    b"*",
    b"?",
    b"[x]",
    b"#hash",
    b"!bang",
    b"\x01\x1b[31m",
    b"x" * 255,
    b"\xc3\xa9" * 127,
]


@pytest.fixture
def workspace(tmp_path: Path) -> SnapshotWorkspace:
    return SnapshotWorkspace(tmp_path)


@pytest.fixture
def open_workspace() -> Iterator[SnapshotWorkspace]:
    """A workspace that other users can access. pytest's temporary folders are private."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield SnapshotWorkspace(Path(folder))


opened: list[str] = []
watching = False


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if watching and event == "open":
        opened.append(os.fsdecode(arguments[0]) if isinstance(arguments[0], (str, bytes)) else str(arguments[0]))


sys.addaudithook(_watch)


def take_watched(workspace: SnapshotWorkspace) -> tuple[str, list[str]]:
    """Take a snapshot. Return its digest and the names of all opened files and folders."""
    global watching
    opened.clear()
    watching = True
    try:
        return workspace.take().digest, list(opened)
    finally:
        watching = False


# -- content of a snapshot ----------------------------------------------------------------------------


def test_manifest(workspace: SnapshotWorkspace) -> None:
    workspace.write("train.py", "print(1)\n")
    workspace.write("bin/go", "#!/bin/sh\n", mode=0o700)
    workspace.write("z/empty", b"")
    os.makedirs(workspace.project / "hollow/inner")
    os.symlink("train.py", workspace.project / "alias")
    snapshot = workspace.take()
    sha256 = {data: hashlib.sha256(data).hexdigest() for data in (b"print(1)\n", b"#!/bin/sh\n", b"")}
    assert workspace.manifest(snapshot.digest) == {
        "version": 1,
        "files": [
            ["bin/go", sha256[b"#!/bin/sh\n"], 10, 0o755],
            ["train.py", sha256[b"print(1)\n"], 9, 0o644],
            ["z/empty", sha256[b""], 0, 0o644],
        ],
        "links": [["alias", "train.py"]],
        "folders": ["hollow/inner"],
    }
    assert (snapshot.files, snapshot.size, snapshot.notes, snapshot.git) == (3, 19, (), None)
    assert workspace.check_store() == 3


def test_everything_private(workspace: SnapshotWorkspace) -> None:
    workspace.write("sub/a")
    before = os.umask(0)
    try:
        digest = workspace.take().digest
    finally:
        os.umask(before)
    for folder, _, names in os.walk(workspace.root.path):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        assert all(stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) == 0o600 for name in names)
    assert stat.S_IMODE(workspace.cache.stat().st_mode) == 0o600
    assert stat.S_IMODE(workspace.cache.parent.stat().st_mode) == 0o700
    assert workspace.paths(digest) == ["sub/a"]


def test_mode_is_only_executable_or_not(workspace: SnapshotWorkspace) -> None:
    for mode in (0o600, 0o666, 0o755, 0o4755, 0o711, 0o444):
        workspace.write(f"m{mode:o}", mode=mode)
    modes = {file[0]: file[3] for file in workspace.manifest(workspace.take().digest)["files"]}
    assert modes == {"m600": 0o644, "m666": 0o644, "m755": 0o755, "m4755": 0o755, "m711": 0o755, "m444": 0o644}


def test_odd_names(workspace: SnapshotWorkspace) -> None:
    for number, name in enumerate(ODD_NAMES):
        workspace.write(name, b"%d" % number)
        workspace.write(os.path.join(b"sub", name, name), b"%d below" % number)
        os.symlink(name, os.path.join(os.fsencode(workspace.project), b"sub", name, b"link"))
    digest = workspace.take().digest
    assert read_tree(workspace.place(digest).work, outputs=False) == read_tree(workspace.project)
    assert workspace.take().digest == digest


def test_deep_folders(workspace: SnapshotWorkspace, request: pytest.FixtureRequest) -> None:
    """The depth exceeds the limits of open files and of recursion in Python, so pytest cannot remove the folders."""
    request.addfinalizer(lambda: remove(os.fspath(workspace.folder)))
    handle = os.open(workspace.project, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=handle)
        inner = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=handle))
    os.close(handle)
    digest = workspace.take().digest
    assert workspace.paths(digest) == ["d/" * 1100 + "leaf"]
    run = workspace.place(digest)
    workspace.recycle(digest, run)
    assert os.path.exists(workspace.place(digest).work + "/d" * 1100 + "/leaf")


def test_links_of_all_kinds(workspace: SnapshotWorkspace) -> None:
    workspace.write("sub/file")
    inside = {"to_file": "sub/file", "to_folder": "sub", "dangling": "nothing", "loop": "loop", "sub/up": "../sub/file"}
    outside = {"absolute": "/etc/passwd", "above": "../elsewhere", "sub/far": "../../x", "root": "/"}
    for name, text in {**inside, **outside}.items():
        os.symlink(text, workspace.project / name)
    snapshot = workspace.take()
    assert dict(workspace.manifest(snapshot.digest)["links"]) == {**inside, **outside}
    assert workspace.paths(snapshot.digest) == ["sub/file"]
    [note] = snapshot.notes
    assert note == "4 links to files outside the project kept as links: above, absolute, root, and 1 more"
    assert read_tree(workspace.place(snapshot.digest).work, outputs=False) == read_tree(workspace.project)


def test_special_files(workspace: SnapshotWorkspace) -> None:
    """Special files are never opened: opening a FIFO would block forever."""
    workspace.write("train.py")
    os.mkfifo(workspace.project / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(workspace.project)
        try:
            server.bind("sock")
        finally:
            os.chdir(here)
        for _ in range(2):  # the second snapshot uses the cache
            snapshot = workspace.take()
            assert snapshot.notes == ("2 special files (FIFO, socket, or device) skipped: pipe, sock",)
    assert workspace.paths(snapshot.digest) == ["train.py"]


def test_sparse_file_stays_sparse(workspace: SnapshotWorkspace) -> None:
    name = workspace.write("sparse", b"begin")
    os.truncate(name, 300_000_000)
    with open(name, "r+b") as file:
        file.seek(200_000_000)
        file.write(b"middle")
    snapshot = workspace.take()
    assert snapshot.size == 300_000_000
    run = workspace.place(snapshot.digest)
    for path in (
        workspace.root.blob(workspace.manifest(snapshot.digest)["files"][0][1]),
        os.path.join(run.work, "sparse"),
    ):
        assert os.stat(path).st_size == 300_000_000
        assert os.stat(path).st_blocks * 512 < 10_000_000
    with open(os.path.join(run.work, "sparse"), "rb") as file:
        assert file.read(5) == b"begin"
        file.seek(200_000_000)
        assert file.read(7) == b"middle\0"


def test_a_file_of_an_absurd_size_is_refused_unread(workspace: SnapshotWorkspace) -> None:
    """A sparse file of 8 TB takes no disk space, but reading its zeros would take hours."""
    workspace.write("train.py")
    os.truncate(workspace.write("data/raw/hole.bin"), 8 << 40)
    with pytest.raises(SnapshotError, match=r"^data/raw/hole\.bin has 8\.8 TB; .*at most 100 GB") as told:
        workspace.take()
    assert ".mlwignore" in str(told.value.hint)
    assert not os.path.exists(workspace.root.blobs)
    workspace.write(".mlwignore", "*.bin\n")
    assert workspace.paths(workspace.take().digest) == [".mlwignore", "train.py"]


def test_many_large_files_are_refused_unread(workspace: SnapshotWorkspace) -> None:
    for number in range(11):
        os.truncate(workspace.write(f"data/{number}"), 99 * 10**9)
    with pytest.raises(SnapshotError, match=r"^the project has 1\.1 TB in 11 files; .*at most 1\.0 TB"):
        workspace.take()
    assert not os.path.exists(workspace.root.blobs)


def test_links_to_devices_stay_links(workspace: SnapshotWorkspace) -> None:
    workspace.write("train.py")
    for name, goal in (("zeros.csv", "/dev/zero"), (".gitignore", "/dev/zero"), ("tty", "/dev/tty")):
        (workspace.project / name).symlink_to(goal)
    snapshot = workspace.take()
    assert workspace.paths(snapshot.digest) == ["train.py"]
    assert [link[0] for link in workspace.manifest(snapshot.digest)["links"]] == [".gitignore", "tty", "zeros.csv"]


def test_collisions_noted(workspace: SnapshotWorkspace) -> None:
    for name in ("Model.py", "model.py", "sub/caf\u00e9", "sub/cafe\u0301", "other/model.py"):
        workspace.write(name)
    [note] = workspace.take().notes
    assert note.startswith("2 pairs of names would collide on macOS and Windows: Model.py and model.py")


def test_size_noted(workspace: SnapshotWorkspace) -> None:
    """The note lists the largest files and the deepest folders that contain the data, the largest first."""
    workspace.write("train.py")
    large = (("data/raw/2019/a", 150), ("data/raw/b", 9), ("big.bin", 60), ("models/b", 20), ("models/deep/c", 20))
    for name, size in large:
        path = workspace.write(name)
        os.truncate(path, size * 1_000_000)
    [note] = workspace.take().notes
    assert note == (
        "the project is large, 259 MB in 6 files; largest: data/raw/2019/a (150 MB), big.bin (60.0 MB), "
        "models/ (40.0 MB in 2 files), train.py (1 B); list what the run does not need in .mlwignore"
    )
    assert workspace.take().notes == (note,)


def test_no_project(workspace: SnapshotWorkspace) -> None:
    os.rmdir(workspace.project)
    with pytest.raises(SnapshotError, match="cannot read the project folder .*: No such file or directory"):
        workspace.take()


def test_project_reached_through_a_link(workspace: SnapshotWorkspace) -> None:
    workspace.write("a")
    os.symlink(workspace.project, workspace.folder / "link")
    digest = workspace.take().digest
    workspace.project = workspace.folder / "link"
    assert workspace.take().digest == digest


def test_empty_project(workspace: SnapshotWorkspace) -> None:
    snapshot = workspace.take()
    assert (snapshot.files, snapshot.size) == (0, 0)
    assert os.listdir(workspace.place(snapshot.digest).work) == ["outputs"]


def test_git_state_recorded(workspace: SnapshotWorkspace) -> None:
    workspace.write("train.py", "print(1)\n")
    git = ["git", "-C", os.fspath(workspace.project), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q", "-b", "work"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    assert workspace.take().git_diff == b""
    workspace.write("train.py", "print(22)\n", old=False)
    snapshot = workspace.take()
    assert snapshot.git is not None and snapshot.git.branch == "work" and snapshot.git.dirty
    assert b"+print(22)\n" in snapshot.git_diff
    assert workspace.paths(snapshot.digest) == ["train.py"]


# -- digest cache -------------------------------------------------------------------------------------


def test_unchanged_reads_nothing(workspace: SnapshotWorkspace) -> None:
    """Ten thousand unchanged files are listed, but not opened."""
    for number in range(10_000):
        name = f"sub{number // 500}/file{number}"
        workspace.write(name, b"%d" % (number % 7))
    first = workspace.take()
    assert (first.files, workspace.check_store()) == (10_000, 7)
    time.sleep(2.1)  # the digests of recently changed files are not cached
    assert workspace.take().digest == first.digest
    digest, touched = take_watched(workspace)
    assert digest == first.digest
    assert not [name for name in touched if name.startswith("file")]
    changed = workspace.write("sub3/file1500", b"new")
    digest, touched = take_watched(workspace)
    assert digest != first.digest
    assert [name for name in touched if name.startswith("file")] == [os.path.basename(os.fsdecode(changed))]


def test_touched_files_are_read_again(workspace: SnapshotWorkspace) -> None:
    workspace.write("a", b"one")
    workspace.write("big", b"b" * 3_000_000)
    first = workspace.take().digest
    time.sleep(2.1)
    assert workspace.take().digest == first
    os.utime(workspace.project / "a")
    os.utime(workspace.project / "big")
    digest, touched = take_watched(workspace)
    assert digest == first
    assert {"a", "big"} <= set(touched)


def test_quick_changes_are_seen(workspace: SnapshotWorkspace) -> None:
    """A change is detected even with the same size, inode, and clock tick, and with a reset modification time."""
    seen = set()
    for number in range(30):
        path = workspace.project / "a.py"
        path.write_bytes(b"%02d" % number)
        os.utime(path, (1_600_000_000, 1_600_000_000))
        seen.add(workspace.take().digest)
    assert len(seen) == 30


def test_mode_change_is_seen(workspace: SnapshotWorkspace) -> None:
    name = workspace.write("go.sh")
    first = workspace.take().digest
    os.chmod(name, 0o755)
    second = workspace.take().digest
    assert first != second
    assert workspace.manifest(second)["files"][0][3] == 0o755


@pytest.mark.parametrize("damage", [b"", b"{}", b"00000000\n{}", b"zz\n\xff\xff", None])
def test_damaged_memory_is_ignored(workspace: SnapshotWorkspace, damage: bytes | None) -> None:
    workspace.write("a")
    digest = workspace.take().digest
    whole = workspace.cache.read_bytes()
    workspace.cache.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    assert workspace.take().digest == digest
    assert json.loads(workspace.cache.read_bytes().partition(b"\n")[2])["snapshot"] == digest


def test_memory_of_another_project(workspace: SnapshotWorkspace) -> None:
    """A copy of the project has the same ID, but must not use the cached digests of the original."""
    workspace.write("a", b"one")
    first = workspace.take().digest
    workspace.project = workspace.folder / "copy"
    workspace.project.mkdir()
    workspace.write("a", b"two")
    assert workspace.take().digest != first


def test_unwritable_memory(workspace: SnapshotWorkspace) -> None:
    workspace.write("a")
    workspace.cache.parent.mkdir()
    workspace.cache.mkdir()
    digest = workspace.take().digest
    assert workspace.take().digest == digest


@pytest.mark.parametrize("loss", ["blob", "short", "manifest", "both"])
def test_lost_content_is_stored_anew(workspace: SnapshotWorkspace, loss: str) -> None:
    workspace.write("a", b"one")
    workspace.write("b", b"two")
    digest = workspace.take().digest
    blob = Path(workspace.root.blob(hashlib.sha256(b"one").hexdigest()))
    if loss in ("blob", "both"):
        blob.unlink()
    if loss == "short":
        blob.write_bytes(b"")
    os.unlink(workspace.root.snapshot(digest))
    if loss == "both":
        workspace.cache.unlink()
    assert workspace.take().digest == digest
    assert workspace.check_store() == 2


# -- unreadable and changing files --------------------------------------------------------------------


def test_read_only_project(open_workspace: SnapshotWorkspace) -> None:
    open_workspace.write("sub/a")
    before = read_tree(open_workspace.project)

    def take_read_only() -> str:
        drop_privileges(open_workspace.folder)
        for folder, _, _ in os.walk(open_workspace.project):
            os.chmod(folder, 0o555)
        return open_workspace.take().digest

    digest = in_child(take_read_only)
    assert open_workspace.paths(digest) == ["sub/a"]
    assert read_tree(open_workspace.project) == before


def test_unreadable_files(open_workspace: SnapshotWorkspace) -> None:
    for name in ("ok.py", "b.txt", "c.txt", "sub/d.txt", "e.txt", "f.txt"):
        open_workspace.write(name, mode=0o644 if name == "ok.py" else 0o000)
    open_workspace.write("closed/x")
    os.chmod(open_workspace.project / "closed", 0o000)

    def take_refused() -> str:
        drop_privileges(open_workspace.folder)
        texts = []
        for _ in range(2):
            try:
                texts.append(open_workspace.take().digest)
            except SnapshotError as error:
                texts.append(f"{error.message} | {error.hint}")
            os.chmod(open_workspace.project / "closed", 0o755)
        return "\n".join(texts)

    first, second = in_child(take_refused).split("\n")
    assert first.startswith("cannot read a file in the project: closed (Permission denied) | ")
    assert second.startswith("cannot read 5 files in the project: ") and " and 2 more | " in second
    assert "(Permission denied)" in second and second.endswith("if the run does not need them")
    assert ".mlwignore" in second
    assert not os.path.exists(open_workspace.root.snapshots)


def test_unreadable_but_ignored(open_workspace: SnapshotWorkspace) -> None:
    open_workspace.write("ok.py")
    open_workspace.write("locked/x")
    os.chmod(open_workspace.project / "locked", 0o000)
    open_workspace.write(".mlwignore", "locked\n")

    def take_rest() -> str:
        drop_privileges(open_workspace.folder)
        return open_workspace.take().digest

    assert open_workspace.paths(in_child(take_rest)) == [".mlwignore", "ok.py"]


def test_changed_under_way(workspace: SnapshotWorkspace) -> None:
    """A file can change in any way between the listing and the reading."""
    workspace.write("first", b"1" * 10)
    for name in ("in/vanishes", "in/to_link", "in/to_fifo", "in/to_folder", "in/grows", "swapped/x", "removed/x"):
        workspace.write(name, b"content")
    secret = workspace.folder / "secret"
    secret.mkdir()
    (secret / "x").write_text("canary")

    def disturb(done: int, total: int) -> None:
        inner = workspace.project / "in"
        if not (inner / "vanishes").exists():
            return
        for name in ("vanishes", "to_link", "to_fifo", "to_folder"):
            (inner / name).unlink()
        (inner / "to_link").symlink_to(secret / "x")
        os.mkfifo(inner / "to_fifo")
        (inner / "to_folder").mkdir()
        (inner / "grows").write_bytes(b"content and more")
        (workspace.project / "swapped").rename(workspace.folder / "aside")
        (workspace.project / "swapped").symlink_to(secret)
        (workspace.project / "removed" / "x").unlink()
        (workspace.project / "removed").rmdir()

    snapshot = workspace.take(disturb)
    manifest = workspace.manifest(snapshot.digest)
    assert [file[0] for file in manifest["files"]] == ["first", "in/grows"]
    assert manifest["files"][1][1:3] == [hashlib.sha256(b"content and more").hexdigest(), 16]
    [note] = snapshot.notes
    assert note.startswith("6 paths disappeared while being read, not included: ")
    workspace.check_store()
    again = workspace.take()
    assert workspace.paths(again.digest) == ["first", "in/grows"] and len(again.notes) == 2


def test_file_written_all_the_time(workspace: SnapshotWorkspace) -> None:
    name = workspace.write("growing.log", b"x" * 30_000_000)
    workspace.write("steady", b"s")
    writer = fork()
    if writer == 0:
        file = os.open(name, os.O_WRONLY)
        while True:
            os.pwrite(file, os.urandom(8), 100)
    try:
        snapshot = workspace.take()
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
    assert snapshot.notes == ("1 file changed while being read: growing.log",)
    workspace.check_store()
    assert read_tree(workspace.place(snapshot.digest).work)[b"steady"] == ("file", b"s", 0o644)
    assert workspace.take().notes == ()


def test_progress(workspace: SnapshotWorkspace) -> None:
    for number in range(20):
        workspace.write(f"f{number}", os.urandom(1_500_000))
    calls: list[tuple[int, int]] = []
    workspace.take(lambda done, total: calls.append((done, total)))
    assert {total for _, total in calls} == {30_000_000}
    assert calls == sorted(calls) and calls[-1] == (30_000_000, 30_000_000)
    calls.clear()
    time.sleep(2.1)
    workspace.take()
    workspace.take(lambda done, total: calls.append((done, total)))
    assert calls == []


def test_two_at_once(workspace: SnapshotWorkspace) -> None:
    for number in range(300):
        workspace.write(f"f{number}", b"%d" % number)
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for number in range(4):
            child = fork()
            if child == 0:
                Path(folder, str(number)).write_text(in_child(lambda: workspace.take().digest))
                os._exit(0)
            children.append(child)
        assert all(os.waitpid(child, 0)[1] == 0 for child in children)
        [digest] = {path.read_text() for path in Path(folder).iterdir()}
    assert workspace.check_store() == 300
    assert read_tree(workspace.place(digest).work, outputs=False) == read_tree(workspace.project)


def test_names_do_not_depend_on_locale(workspace: SnapshotWorkspace) -> None:
    workspace.write("caf\u00e9/\u00fcber.py", b"1")
    workspace.write(b"\xff", b"2")
    os.symlink("caf\u00e9", workspace.project / "\u00e4")
    digest = workspace.take().digest
    code = (
        "import sys; from pathlib import Path; from tests.unit.snapshot.project_trees import SnapshotWorkspace;"
        "assert sys.getfilesystemencoding() != 'utf-8', sys.getfilesystemencoding();"
        "space = SnapshotWorkspace.__new__(SnapshotWorkspace); space.project = Path(sys.argv[1]);"
        "space.cache = Path(sys.argv[2]); space.runs = 10;"
        "space.root = __import__('mlworkbench.remote.shared.layout', fromlist=['x']).Root(sys.argv[3]);"
        "digest = space.take().digest; run = space.place(digest); space.recycle(digest, run); space.place(digest);"
        "print(digest)"
    )
    environment = {
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "LC_ALL": "C",
        "PYTHONPATH": f"{SOURCE}:{SOURCE.parent}",
        "PATH": os.environ["PATH"],
    }
    answer = subprocess.run(
        [sys.executable, "-c", code, workspace.project, workspace.folder / "other", workspace.root.path],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.stdout.strip(), answer.stderr) == (digest, "")
    assert read_tree(workspace.root.run("run-12").work, outputs=False) == read_tree(workspace.project)


# -- round trip ---------------------------------------------------------------------------------------

NAMES = st.one_of(
    st.sampled_from(ODD_NAMES),
    st.binary(min_size=1, max_size=12).map(lambda name: name.replace(b"/", b"_").replace(b"\0", b"_")),
).filter(lambda name: name not in (b".", b"..") and not name.endswith(b"ignore"))
THINGS = st.recursive(
    st.one_of(
        st.tuples(st.just("file"), st.binary(max_size=200), st.sampled_from([0o644, 0o755])),
        st.tuples(st.just("link"), NAMES),
    ),
    lambda inner: st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=25,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(before=st.dictionaries(NAMES, THINGS, max_size=6), after=st.dictionaries(NAMES, THINGS, max_size=6))
def test_round_trip(before: dict[bytes, object], after: dict[bytes, object]) -> None:
    """Any tree is reproduced exactly, in a new working copy and from the warm copy of another tree."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = SnapshotWorkspace(Path(folder))
        for tree in (before, after, before):
            shutil.rmtree(os.fsencode(workspace.project))
            _build(os.fsencode(workspace.project), tree)
            digest = workspace.take().digest
            run = workspace.place(digest)
            assert read_tree(run.work, outputs=False) == read_tree(workspace.project)
            assert os.listdir(run.outputs) == []
            workspace.recycle(digest, run)
        workspace.check_store()


def _build(path: bytes, tree: dict[bytes, object]) -> None:
    os.mkdir(path)
    for name, thing in tree.items():
        full = os.path.join(path, name)
        is_folder = isinstance(thing, dict)
        if exclusion_reason((), "", os.fsdecode(name), is_folder):
            continue
        if isinstance(thing, dict):
            _build(full, thing)
        elif isinstance(thing, tuple) and thing[0] == "link":
            os.symlink(thing[1], full)
        elif isinstance(thing, tuple):
            with open(full, "wb") as file:
                file.write(thing[1])
            os.chmod(full, thing[2])
