"""A snapshot holds the project as it is: odd names, links, special files, files that do not hold still."""

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
from mlworkbench.remote.shared.tree import remove
from mlworkbench.snapshot.ignore import judge

from .snapshot_trees import SOURCE, Desk, drop_privileges, fork, in_child, read_tree

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
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def open_desk() -> Iterator[Desk]:
    """One that another user can reach: pytest's own folders are private."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Desk(Path(folder))


opened: list[str] = []
watching = False


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if watching and event == "open":
        opened.append(os.fsdecode(arguments[0]) if isinstance(arguments[0], (str, bytes)) else str(arguments[0]))


sys.addaudithook(_watch)


def take_watched(desk: Desk) -> tuple[str, list[str]]:
    """The digest and the names of all files and folders that were opened."""
    global watching
    opened.clear()
    watching = True
    try:
        return desk.take().digest, list(opened)
    finally:
        watching = False


# -- what is in it ------------------------------------------------------------------------------------


def test_manifest(desk: Desk) -> None:
    desk.write("train.py", "print(1)\n")
    desk.write("bin/go", "#!/bin/sh\n", mode=0o700)
    desk.write("z/empty", b"")
    os.makedirs(desk.project / "hollow/inner")
    os.symlink("train.py", desk.project / "alias")
    snapshot = desk.take()
    sha256 = {data: hashlib.sha256(data).hexdigest() for data in (b"print(1)\n", b"#!/bin/sh\n", b"")}
    assert desk.manifest(snapshot.digest) == {
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
    assert desk.check_store() == 3


def test_everything_private(desk: Desk) -> None:
    desk.write("sub/a")
    before = os.umask(0)
    try:
        digest = desk.take().digest
    finally:
        os.umask(before)
    for folder, _, names in os.walk(desk.root.path):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        assert all(stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) == 0o600 for name in names)
    assert stat.S_IMODE(desk.cache.stat().st_mode) == 0o600
    assert stat.S_IMODE(desk.cache.parent.stat().st_mode) == 0o700
    assert desk.paths(digest) == ["sub/a"]


def test_mode_is_only_executable_or_not(desk: Desk) -> None:
    for mode in (0o600, 0o666, 0o755, 0o4755, 0o711, 0o444):
        desk.write(f"m{mode:o}", mode=mode)
    modes = {file[0]: file[3] for file in desk.manifest(desk.take().digest)["files"]}
    assert modes == {"m600": 0o644, "m666": 0o644, "m755": 0o755, "m4755": 0o755, "m711": 0o755, "m444": 0o644}


def test_odd_names(desk: Desk) -> None:
    for number, name in enumerate(ODD_NAMES):
        desk.write(name, b"%d" % number)
        desk.write(os.path.join(b"sub", name, name), b"%d below" % number)
        os.symlink(name, os.path.join(os.fsencode(desk.project), b"sub", name, b"link"))
    digest = desk.take().digest
    assert read_tree(desk.place(digest).work, outputs=False) == read_tree(desk.project)
    assert desk.take().digest == digest


def test_deep_folders(desk: Desk, request: pytest.FixtureRequest) -> None:
    """Deeper than handles may be open, and deeper than Python recurses; pytest could not even clean up."""
    request.addfinalizer(lambda: remove(os.fspath(desk.folder)))
    handle = os.open(desk.project, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=handle)
        inner = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=handle))
    os.close(handle)
    digest = desk.take().digest
    assert desk.paths(digest) == ["d/" * 1100 + "leaf"]
    run = desk.place(digest)
    desk.recycle(digest, run)
    assert os.path.exists(desk.place(digest).work + "/d" * 1100 + "/leaf")


def test_links_of_all_kinds(desk: Desk) -> None:
    desk.write("sub/file")
    inside = {"to_file": "sub/file", "to_folder": "sub", "dangling": "nothing", "loop": "loop", "sub/up": "../sub/file"}
    outside = {"absolute": "/etc/passwd", "above": "../elsewhere", "sub/far": "../../x", "root": "/"}
    for name, text in {**inside, **outside}.items():
        os.symlink(text, desk.project / name)
    snapshot = desk.take()
    assert dict(desk.manifest(snapshot.digest)["links"]) == {**inside, **outside}
    assert desk.paths(snapshot.digest) == ["sub/file"]
    [note] = snapshot.notes
    assert note == "4 links to files outside the project kept as links: above, absolute, root, and 1 more"
    assert read_tree(desk.place(snapshot.digest).work, outputs=False) == read_tree(desk.project)


def test_special_files(desk: Desk) -> None:
    """Never opened: opening a FIFO would wait for ever."""
    desk.write("train.py")
    os.mkfifo(desk.project / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(desk.project)
        try:
            server.bind("sock")
        finally:
            os.chdir(here)
        for _ in range(2):  # the second time from memory
            snapshot = desk.take()
            assert snapshot.notes == ("2 special files (FIFO, socket, or device) skipped: pipe, sock",)
    assert desk.paths(snapshot.digest) == ["train.py"]


def test_sparse_file_stays_sparse(desk: Desk) -> None:
    name = desk.write("sparse", b"begin")
    os.truncate(name, 300_000_000)
    with open(name, "r+b") as file:
        file.seek(200_000_000)
        file.write(b"middle")
    snapshot = desk.take()
    assert snapshot.size == 300_000_000
    run = desk.place(snapshot.digest)
    for path in (desk.root.blob(desk.manifest(snapshot.digest)["files"][0][1]), os.path.join(run.work, "sparse")):
        assert os.stat(path).st_size == 300_000_000
        assert os.stat(path).st_blocks * 512 < 10_000_000
    with open(os.path.join(run.work, "sparse"), "rb") as file:
        assert file.read(5) == b"begin"
        file.seek(200_000_000)
        assert file.read(7) == b"middle\0"


def test_a_file_of_an_absurd_size_is_refused_unread(desk: Desk) -> None:
    """8 TB that take no room on the disk: to read its zeros would take hours."""
    desk.write("train.py")
    os.truncate(desk.write("data/raw/hole.bin"), 8 << 40)
    with pytest.raises(SnapshotError, match=r"^data/raw/hole\.bin has 8\.8 TB; .*at most 100 GB") as told:
        desk.take()
    assert ".mlwignore" in str(told.value.hint)
    assert not os.path.exists(desk.root.blobs)
    desk.write(".mlwignore", "*.bin\n")
    assert desk.paths(desk.take().digest) == [".mlwignore", "train.py"]


def test_many_large_files_are_refused_unread(desk: Desk) -> None:
    for number in range(11):
        os.truncate(desk.write(f"data/{number}"), 99 * 10**9)
    with pytest.raises(SnapshotError, match=r"^the project has 1\.1 TB in 11 files; .*at most 1\.0 TB"):
        desk.take()
    assert not os.path.exists(desk.root.blobs)


def test_links_to_devices_stay_links(desk: Desk) -> None:
    desk.write("train.py")
    for name, goal in (("zeros.csv", "/dev/zero"), (".gitignore", "/dev/zero"), ("tty", "/dev/tty")):
        (desk.project / name).symlink_to(goal)
    snapshot = desk.take()
    assert desk.paths(snapshot.digest) == ["train.py"]
    assert [link[0] for link in desk.manifest(snapshot.digest)["links"]] == [".gitignore", "tty", "zeros.csv"]


def test_collisions_noted(desk: Desk) -> None:
    for name in ("Model.py", "model.py", "sub/caf\u00e9", "sub/cafe\u0301", "other/model.py"):
        desk.write(name)
    [note] = desk.take().notes
    assert note.startswith("2 pairs of names would collide on macOS and Windows: Model.py and model.py")


def test_size_noted(desk: Desk) -> None:
    """The largest first, and down to where the data really is: a file in the project's own folder counts, too."""
    desk.write("train.py")
    large = (("data/raw/2019/a", 150), ("data/raw/b", 9), ("big.bin", 60), ("models/b", 20), ("models/deep/c", 20))
    for name, size in large:
        path = desk.write(name)
        os.truncate(path, size * 1_000_000)
    [note] = desk.take().notes
    assert note == (
        "the project is large, 259 MB in 6 files; largest: data/raw/2019/a (150 MB), big.bin (60.0 MB), "
        "models/ (40.0 MB in 2 files), train.py (1 B); list what the run does not need in .mlwignore"
    )
    assert desk.take().notes == (note,)


def test_no_project(desk: Desk) -> None:
    os.rmdir(desk.project)
    with pytest.raises(SnapshotError, match="cannot read the project folder .*: No such file or directory"):
        desk.take()


def test_project_reached_through_a_link(desk: Desk) -> None:
    desk.write("a")
    os.symlink(desk.project, desk.folder / "link")
    digest = desk.take().digest
    desk.project = desk.folder / "link"
    assert desk.take().digest == digest


def test_empty_project(desk: Desk) -> None:
    snapshot = desk.take()
    assert (snapshot.files, snapshot.size) == (0, 0)
    assert os.listdir(desk.place(snapshot.digest).work) == ["outputs"]


def test_git_state_recorded(desk: Desk) -> None:
    desk.write("train.py", "print(1)\n")
    git = ["git", "-C", os.fspath(desk.project), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q", "-b", "work"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    assert desk.take().git_diff == b""
    desk.write("train.py", "print(22)\n", old=False)
    snapshot = desk.take()
    assert snapshot.git is not None and snapshot.git.branch == "work" and snapshot.git.dirty
    assert b"+print(22)\n" in snapshot.git_diff
    assert desk.paths(snapshot.digest) == ["train.py"]


# -- what is remembered -------------------------------------------------------------------------------


def test_unchanged_reads_nothing(desk: Desk) -> None:
    """Ten thousand files that did not change are looked at, not opened."""
    for number in range(10_000):
        name = f"sub{number // 500}/file{number}"
        desk.write(name, b"%d" % (number % 7))
    first = desk.take()
    assert (first.files, desk.check_store()) == (10_000, 7)
    time.sleep(2.1)  # younger files are not trusted
    assert desk.take().digest == first.digest
    digest, touched = take_watched(desk)
    assert digest == first.digest
    assert not [name for name in touched if name.startswith("file")]
    changed = desk.write("sub3/file1500", b"new")
    digest, touched = take_watched(desk)
    assert digest != first.digest
    assert [name for name in touched if name.startswith("file")] == [os.path.basename(os.fsdecode(changed))]


def test_touched_files_are_read_again(desk: Desk) -> None:
    desk.write("a", b"one")
    desk.write("big", b"b" * 3_000_000)
    first = desk.take().digest
    time.sleep(2.1)
    assert desk.take().digest == first
    os.utime(desk.project / "a")
    os.utime(desk.project / "big")
    digest, touched = take_watched(desk)
    assert digest == first
    assert {"a", "big"} <= set(touched)


def test_quick_changes_are_seen(desk: Desk) -> None:
    """Same size, same inode, same tick of the clock, even the time set back: still seen."""
    seen = set()
    for number in range(30):
        path = desk.project / "a.py"
        path.write_bytes(b"%02d" % number)
        os.utime(path, (1_600_000_000, 1_600_000_000))
        seen.add(desk.take().digest)
    assert len(seen) == 30


def test_mode_change_is_seen(desk: Desk) -> None:
    name = desk.write("go.sh")
    first = desk.take().digest
    os.chmod(name, 0o755)
    second = desk.take().digest
    assert first != second
    assert desk.manifest(second)["files"][0][3] == 0o755


@pytest.mark.parametrize("damage", [b"", b"{}", b"00000000\n{}", b"zz\n\xff\xff", None])
def test_damaged_memory_is_ignored(desk: Desk, damage: bytes | None) -> None:
    desk.write("a")
    digest = desk.take().digest
    whole = desk.cache.read_bytes()
    desk.cache.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    assert desk.take().digest == digest
    assert json.loads(desk.cache.read_bytes().partition(b"\n")[2])["snapshot"] == digest


def test_memory_of_another_project(desk: Desk) -> None:
    """A copy of the project has the same id, and must not be taken for the original."""
    desk.write("a", b"one")
    first = desk.take().digest
    desk.project = desk.folder / "copy"
    desk.project.mkdir()
    desk.write("a", b"two")
    assert desk.take().digest != first


def test_unwritable_memory(desk: Desk) -> None:
    desk.write("a")
    desk.cache.parent.mkdir()
    desk.cache.mkdir()
    digest = desk.take().digest
    assert desk.take().digest == digest


@pytest.mark.parametrize("loss", ["blob", "short", "manifest", "both"])
def test_lost_content_is_stored_anew(desk: Desk, loss: str) -> None:
    desk.write("a", b"one")
    desk.write("b", b"two")
    digest = desk.take().digest
    blob = Path(desk.root.blob(hashlib.sha256(b"one").hexdigest()))
    if loss in ("blob", "both"):
        blob.unlink()
    if loss == "short":
        blob.write_bytes(b"")
    os.unlink(desk.root.snapshot(digest))
    if loss == "both":
        desk.cache.unlink()
    assert desk.take().digest == digest
    assert desk.check_store() == 2


# -- what does not hold still -------------------------------------------------------------------------


def test_read_only_project(open_desk: Desk) -> None:
    open_desk.write("sub/a")
    before = read_tree(open_desk.project)

    def take_read_only() -> str:
        drop_privileges(open_desk.folder)
        for folder, _, _ in os.walk(open_desk.project):
            os.chmod(folder, 0o555)
        return open_desk.take().digest

    digest = in_child(take_read_only)
    assert open_desk.paths(digest) == ["sub/a"]
    assert read_tree(open_desk.project) == before


def test_unreadable_files(open_desk: Desk) -> None:
    for name in ("ok.py", "b.txt", "c.txt", "sub/d.txt", "e.txt", "f.txt"):
        open_desk.write(name, mode=0o644 if name == "ok.py" else 0o000)
    open_desk.write("closed/x")
    os.chmod(open_desk.project / "closed", 0o000)

    def take_refused() -> str:
        drop_privileges(open_desk.folder)
        texts = []
        for _ in range(2):
            try:
                texts.append(open_desk.take().digest)
            except SnapshotError as error:
                texts.append(f"{error.message} | {error.hint}")
            os.chmod(open_desk.project / "closed", 0o755)
        return "\n".join(texts)

    first, second = in_child(take_refused).split("\n")
    assert first.startswith("cannot read a file in the project: closed (Permission denied) | ")
    assert second.startswith("cannot read 5 files in the project: ") and " and 2 more | " in second
    assert "(Permission denied)" in second and second.endswith("if the run does not need them")
    assert ".mlwignore" in second
    assert not os.path.exists(open_desk.root.snapshots)


def test_unreadable_but_ignored(open_desk: Desk) -> None:
    open_desk.write("ok.py")
    open_desk.write("locked/x")
    os.chmod(open_desk.project / "locked", 0o000)
    open_desk.write(".mlwignore", "locked\n")

    def take_rest() -> str:
        drop_privileges(open_desk.folder)
        return open_desk.take().digest

    assert open_desk.paths(in_child(take_rest)) == [".mlwignore", "ok.py"]


def test_changed_under_way(desk: Desk) -> None:
    """Between the look at a file and its reading anything may happen to it."""
    desk.write("first", b"1" * 10)
    for name in ("in/vanishes", "in/to_link", "in/to_fifo", "in/to_folder", "in/grows", "swapped/x", "removed/x"):
        desk.write(name, b"content")
    secret = desk.folder / "secret"
    secret.mkdir()
    (secret / "x").write_text("canary")

    def disturb(done: int, total: int) -> None:
        inner = desk.project / "in"
        if not (inner / "vanishes").exists():
            return
        for name in ("vanishes", "to_link", "to_fifo", "to_folder"):
            (inner / name).unlink()
        (inner / "to_link").symlink_to(secret / "x")
        os.mkfifo(inner / "to_fifo")
        (inner / "to_folder").mkdir()
        (inner / "grows").write_bytes(b"content and more")
        (desk.project / "swapped").rename(desk.folder / "aside")
        (desk.project / "swapped").symlink_to(secret)
        (desk.project / "removed" / "x").unlink()
        (desk.project / "removed").rmdir()

    snapshot = desk.take(disturb)
    manifest = desk.manifest(snapshot.digest)
    assert [file[0] for file in manifest["files"]] == ["first", "in/grows"]
    assert manifest["files"][1][1:3] == [hashlib.sha256(b"content and more").hexdigest(), 16]
    [note] = snapshot.notes
    assert note.startswith("6 paths disappeared while being read, not included: ")
    desk.check_store()
    again = desk.take()
    assert desk.paths(again.digest) == ["first", "in/grows"] and len(again.notes) == 2


def test_file_written_all_the_time(desk: Desk) -> None:
    name = desk.write("growing.log", b"x" * 30_000_000)
    desk.write("steady", b"s")
    writer = fork()
    if writer == 0:
        file = os.open(name, os.O_WRONLY)
        while True:
            os.pwrite(file, os.urandom(8), 100)
    try:
        snapshot = desk.take()
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
    assert snapshot.notes == ("1 file changed while being read: growing.log",)
    desk.check_store()
    assert read_tree(desk.place(snapshot.digest).work)[b"steady"] == ("file", b"s", 0o644)
    assert desk.take().notes == ()


def test_progress(desk: Desk) -> None:
    for number in range(20):
        desk.write(f"f{number}", os.urandom(1_500_000))
    calls: list[tuple[int, int]] = []
    desk.take(lambda done, total: calls.append((done, total)))
    assert {total for _, total in calls} == {30_000_000}
    assert calls == sorted(calls) and calls[-1] == (30_000_000, 30_000_000)
    calls.clear()
    time.sleep(2.1)
    desk.take()
    desk.take(lambda done, total: calls.append((done, total)))
    assert calls == []


def test_two_at_once(desk: Desk) -> None:
    for number in range(300):
        desk.write(f"f{number}", b"%d" % number)
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for number in range(4):
            child = fork()
            if child == 0:
                Path(folder, str(number)).write_text(in_child(lambda: desk.take().digest))
                os._exit(0)
            children.append(child)
        assert all(os.waitpid(child, 0)[1] == 0 for child in children)
        [digest] = {path.read_text() for path in Path(folder).iterdir()}
    assert desk.check_store() == 300
    assert read_tree(desk.place(digest).work, outputs=False) == read_tree(desk.project)


def test_names_do_not_depend_on_locale(desk: Desk) -> None:
    desk.write("caf\u00e9/\u00fcber.py", b"1")
    desk.write(b"\xff", b"2")
    os.symlink("caf\u00e9", desk.project / "\u00e4")
    digest = desk.take().digest
    code = (
        "import sys; from pathlib import Path; from tests.unit.snapshot_trees import Desk;"
        "assert sys.getfilesystemencoding() != 'utf-8', sys.getfilesystemencoding();"
        "desk = Desk.__new__(Desk); desk.project = Path(sys.argv[1]); desk.cache = Path(sys.argv[2]);"
        "desk.root = __import__('mlworkbench.remote.shared.layout', fromlist=['x']).Root(sys.argv[3]); desk.runs = 10;"
        "digest = desk.take().digest; run = desk.place(digest); desk.recycle(digest, run); desk.place(digest);"
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
        [sys.executable, "-c", code, desk.project, desk.folder / "other", desk.root.path],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.stdout.strip(), answer.stderr) == (digest, "")
    assert read_tree(desk.root.run("run-12").work, outputs=False) == read_tree(desk.project)


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
    """Any tree arrives byte for byte, made anew and made from what was left of another one."""
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        for tree in (before, after, before):
            shutil.rmtree(os.fsencode(desk.project))
            _build(os.fsencode(desk.project), tree)
            digest = desk.take().digest
            run = desk.place(digest)
            assert read_tree(run.work, outputs=False) == read_tree(desk.project)
            assert os.listdir(run.outputs) == []
            desk.recycle(digest, run)
        desk.check_store()


def _build(path: bytes, tree: dict[bytes, object]) -> None:
    os.mkdir(path)
    for name, thing in tree.items():
        full = os.path.join(path, name)
        is_folder = isinstance(thing, dict)
        if judge((), "", os.fsdecode(name), is_folder):
            continue
        if isinstance(thing, dict):
            _build(full, thing)
        elif isinstance(thing, tuple) and thing[0] == "link":
            os.symlink(thing[1], full)
        elif isinstance(thing, tuple):
            with open(full, "wb") as file:
                file.write(thing[1])
            os.chmod(full, thing[2])
