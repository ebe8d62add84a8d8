"""Links in outputs/: files of the working copy are collected with their content, all others are listed."""

from __future__ import annotations

import hashlib
import json
import os
from types import SimpleNamespace

import pytest

from mlworkbench.remote import linked_outputs
from mlworkbench.remote.linked_outputs import LinkedOutputs
from mlworkbench.remote.output_scan import iterate_outputs
from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.remote.shared.output_kinds import BROKEN, FOLDER, NOT_COPIED, OUTSIDE, SPECIAL_FILE
from mlworkbench.remote.shared.unread_files import MAX_NAMED

SCRIPT = """
import os, socket
os.makedirs("ckpt/deep")
open("ckpt/epoch3.pt", "w").write("weights")
os.symlink("deep/../epoch3.pt", "ckpt/best.pt")
os.symlink("ckpt", "latest")
open("outputs/report", "w").write("r")
os.mkdir("outputs/sub")
links = {
    "best.pt": "../ckpt/best.pt",
    "sub/far.pt": "../../latest/epoch3.pt",
    "absolute.pt": os.path.join(os.getcwd(), "ckpt/epoch3.pt"),
    "vocab": "../data/vocab",
    "same": "report",
    "around": "../outputs/report",
    "second": "best.pt",
    "sub/up": "../sub",
    "folder": "../ckpt",
    "outside": "/etc/hostname",
    "process": "/proc/self/cwd/ckpt/epoch3.pt",
    "climbs": "../../spec.json",
    "broken": "../nosuch",
    "loop": "loop",
    "to-pipe": "../pipe",
}
for name, to in links.items():
    os.symlink(to, "outputs/" + name)
os.mkfifo("pipe")
os.mkfifo("outputs/fifo")
socket.socket(socket.AF_UNIX).bind("outputs/socket")
"""


def listed(folder):
    return {output["path"]: output for output in json.loads((folder / "outputs.json").read_text())["outputs"]}


@pytest.mark.parametrize("where", ["place", "target"])
def test_files_of_the_working_copy_are_collected_and_the_rest_is_named(where, request):
    """The script runs as a plain process and in a container."""
    place = request.getfixturevalue(where)
    folder = place.run("r", SCRIPT, files={"data/vocab": "words"})
    place.start("r")
    ending = place.ended(folder)
    entries, outputs = listed(folder), folder / "work" / "outputs"
    for name in ("best.pt", "sub/far.pt", "absolute.pt"):
        assert entries[name]["sha256"] == hashlib.sha256(b"weights").hexdigest()
        assert not (outputs / name).is_symlink() and (outputs / name).read_text() == "weights"
    assert entries["vocab"]["kind"] == "file" and (outputs / "vocab").read_text() == "words", "recycled files stay, too"
    links = {name: output["to"] for name, output in entries.items() if output["kind"] == "link"}
    assert links == {"same": "report", "around": "report", "second": "best.pt", "sub/up": "../sub"}
    assert ending["outputs"] == len(entries) - len(ending["left_out"]), "what is not collected is no output"
    assert ending["uncollected"] == len(ending["left_out"])
    assert ending["output_bytes"] == 3 * len("weights") + len("words") + 1
    named = {line.partition(": ")[0]: line.partition(": ")[2] for line in ending["left_out"]}
    assert named == {
        "outputs/broken -> ../nosuch": BROKEN,
        "outputs/climbs -> ../../spec.json": OUTSIDE,
        "outputs/fifo": "fifo",
        "outputs/folder -> ../ckpt": FOLDER,
        "outputs/loop -> loop": BROKEN,
        "outputs/outside -> /etc/hostname": OUTSIDE,
        "outputs/process -> /proc/self/cwd/ckpt/epoch3.pt": OUTSIDE,
        "outputs/socket": "socket",
        "outputs/to-pipe -> ../pipe": SPECIAL_FILE,
    }


def test_outputs_that_are_a_link_themselves_are_named(place):
    folder = place.run("r", "import os\nos.rmdir('outputs')\nos.mkdir('ckpt')\nos.symlink('ckpt', 'outputs')\n")
    place.start("r")
    assert place.ended(folder)["left_out"] == [f"outputs -> ckpt: {FOLDER}"]


def test_any_number_of_links_has_few_names(place):
    folder = place.run("r", "import os\nfor n in range(999): os.symlink('/x/%d' % n, 'outputs/%d\\x1b[2J' % n)\n")
    place.start("r")
    left = place.ended(folder)["left_out"]
    assert len(left) == MAX_NAMED + 1 and left[-1] == f"{999 - MAX_NAMED} more: {OUTSIDE}"


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(str(tmp_path / "run"))
    os.makedirs(folder.outputs)
    return folder


def put(run, path, text="x"):
    place = os.path.join(run.work, path)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place, "w") as file:
        file.write(text)


def collected(run):
    with LinkedOutputs(run) as links:
        return {output["path"]: output for output in iterate_outputs(run.outputs, lambda: False, links)}


def test_a_link_that_is_swapped_meanwhile_leads_nowhere_else(run, tmp_path, monkeypatch):
    """A link to a secret replaces the file between the check and the open."""
    (tmp_path / "secret").write_text("secret")
    put(run, "ckpt/epoch.pt")
    os.symlink("../ckpt/epoch.pt", os.path.join(run.outputs, "best.pt"))
    really = os.stat

    def swap(path, *arguments, **more):
        result = really(path, *arguments, **more)
        if path == "epoch.pt" and not os.path.islink(os.path.join(run.work, "ckpt/epoch.pt")):
            os.unlink(os.path.join(run.work, "ckpt/epoch.pt"))
            os.symlink(tmp_path / "secret", os.path.join(run.work, "ckpt/epoch.pt"))
        return result

    monkeypatch.setattr(os, "stat", swap)
    assert collected(run)["best.pt"]["kind"] == NOT_COPIED
    assert os.readlink(os.path.join(run.outputs, "best.pt")) == "../ckpt/epoch.pt"
    assert (tmp_path / "secret").stat().st_nlink == 1


def test_a_folder_that_is_swapped_for_a_link_is_not_listed(run, tmp_path, monkeypatch):
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("secret")
    put(run, "outputs/d/x")
    really = os.scandir

    def swap(handle):
        entries = list(really(handle))
        if any(entry.name == "d" for entry in entries):
            os.rename(os.path.join(run.outputs, "d"), os.path.join(run.work, "d"))
            os.symlink(tmp_path / "private", os.path.join(run.outputs, "d"))
        return really(handle) if not entries else Listing(entries)

    class Listing(list):
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(os, "scandir", swap)
    assert [(path, output["kind"]) for path, output in collected(run).items()] == [("d", "unreadable")]


def test_where_no_second_name_can_be_made_the_content_is_copied(run, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(1, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    put(run, "ckpt/best.pt", "weights")
    os.symlink("../ckpt/best.pt", os.path.join(run.outputs, "best.pt"))
    assert collected(run)["best.pt"]["sha256"] == hashlib.sha256(b"weights").hexdigest()
    assert sorted(os.listdir(run.path)) == ["work"]


def test_without_room_the_link_stays_and_is_named(run, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(1, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=4096))
    put(run, "ckpt/large", "x" * 9000)
    os.symlink("../ckpt/large", os.path.join(run.outputs, "large"))
    assert collected(run)["large"]["kind"] == NOT_COPIED
    assert os.path.islink(os.path.join(run.outputs, "large")) and sorted(os.listdir(run.path)) == ["work"]


@pytest.mark.parametrize("text", ["../../work/ckpt/best.pt", "../ckpt/../../work/ckpt/best.pt"])
def test_a_link_that_leaves_the_working_copy_and_comes_back_counts_as_not_collected(run, text):
    """The supervisor follows no path out of the working copy. It lists the link, so that the file is not deleted."""
    put(run, "ckpt/best.pt")
    os.symlink(text, os.path.join(run.outputs, "best.pt"))
    assert collected(run)["best.pt"] == {"path": "best.pt", "size": 0, "sha256": None, "kind": NOT_COPIED, "to": text}


def test_a_cancelled_run_does_not_wait_for_its_links(run):
    put(run, "ckpt/best.pt")
    os.symlink("../ckpt/best.pt", os.path.join(run.outputs, "best.pt"))
    with LinkedOutputs(run) as links:
        [output] = iterate_outputs(run.outputs, lambda: True, links)
    assert (output["kind"], output["to"]) == (NOT_COPIED, "../ckpt/best.pt")


def test_all_links_together_have_a_limit(run, monkeypatch):
    monkeypatch.setattr(linked_outputs, "MAX_TOTAL_STEPS", 5)
    put(run, "ckpt/best.pt")
    for name in ("a", "b", "c"):
        os.symlink("../ckpt/best.pt", os.path.join(run.outputs, name))
    assert [output.get("kind") for output in collected(run).values()].count(NOT_COPIED) == 2


def test_files_that_a_script_puts_in_the_run_folder_do_not_interfere(run):
    os.mkdir(os.path.join(run.path, "collecting.part"))
    put(run, "ckpt/best.pt")
    os.symlink("../ckpt/best.pt", os.path.join(run.outputs, "best.pt"))
    assert collected(run)["best.pt"]["sha256"]
