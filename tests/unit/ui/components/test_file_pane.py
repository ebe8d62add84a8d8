"""The file that is looked at, and what happens while the disk is waited for: nothing of one file gets into another."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from nicegui import Client, ui

import mlworkbench.ui
from mlworkbench.config.project import create_project
from mlworkbench.ui.answers.files import Content
from mlworkbench.ui.drafts import Draft, Drafts
from mlworkbench.ui.parts import opening
from mlworkbench.ui.parts.filepane import FilePane
from mlworkbench.ui.parts.frame import Here


class SlowDesk:
    """As the desk; an answer that ``slow`` says so of waits until the gate is opened."""

    def __init__(self, place):
        self.drafts = Drafts(place)
        self.gate = asyncio.Event()
        self.slow = lambda told: False

    async def ask(self, work, *words):
        told = work(None, *words)
        if self.slow(told):
            await self.gate.wait()
        return told


class Pane(FilePane):
    """With what a test asks of it."""

    def type(self, text):
        self._set(text)
        self._keep()

    @property
    def text(self):
        return self._editor.value

    @property
    def asks(self):
        return self._banner.words


@pytest.fixture
def project(tmp_path):
    made = create_project("demo", tmp_path)
    (made.root / "a.py").write_text("a = 1\n")
    (made.root / "b.py").write_text("b = 1\n")
    return made


def looked_at(project, tmp_path, story):
    """Plays a story with a pane on a page of its own, that no browser sees."""

    async def play():
        desk = SlowDesk(tmp_path / "drafts")
        with Client(ui.page("/nowhere"), request=None) as client:
            pane = Pane(desk, Here("k", project), lambda: None)
            await story(pane, desk)
            client.delete()

    asyncio.run(play())


async def begun(work):
    """Set off as by a click on the page, and as far as it goes now."""

    async def clicked():
        with client:
            await work

    client = ui.context.client
    task = asyncio.ensure_future(clicked())
    for _ in range(50):
        await asyncio.sleep(0)
    return task


def test_another_file_is_opened_while_one_is_saved(project, tmp_path):
    async def story(pane, desk):
        await pane.open("a.py")
        pane.type("a = 2\n")
        desk.slow = lambda told: isinstance(told, str)  # the digest of what was written
        saving = await begun(pane.save())
        await pane.open("b.py")
        desk.gate.set()
        await saving
        assert (pane.path, pane.text) == ("b.py", "b = 1\n") and not pane.unsaved
        assert desk.drafts.of("k") == {}
        pane.type("b = 2\n")
        await pane.save()
        assert (project.root / "a.py").read_text() == "a = 2\n"
        assert (project.root / "b.py").read_text() == "b = 2\n"

    looked_at(project, tmp_path, story)


def test_what_is_typed_on_while_a_file_is_saved(project, tmp_path):
    """Another file was looked at meanwhile, and then this one again."""

    async def story(pane, desk):
        await pane.open("a.py")
        pane.type("a = 2\n")
        desk.slow = lambda told: isinstance(told, str)
        saving = await begun(pane.save())
        await pane.open("b.py")
        await pane.open("a.py")
        pane.type("a = 3\n")
        desk.gate.set()
        await saving
        await pane._look()
        assert pane.text == desk.drafts.of("k")["a.py"].text == "a = 3\n" and pane.unsaved and not pane.asks
        await pane._look()
        await pane.save()
        assert (project.root / "a.py").read_text() == "a = 3\n" and desk.drafts.of("k") == {}

    looked_at(project, tmp_path, story)


def test_the_file_that_was_asked_for_last_is_in_sight(project, tmp_path):
    async def story(pane, desk):
        desk.slow = lambda told: isinstance(told, Content) and told.path == "a.py"
        first = await begun(pane.open("a.py"))
        await pane.open("b.py")
        desk.gate.set()
        await first
        assert (pane.path, pane.text) == ("b.py", "b = 1\n")

    looked_at(project, tmp_path, story)


def test_the_disk_is_looked_at_while_another_file_is_opened(project, tmp_path):
    """What others typed or wrote in one file does not get into the other, and nobody is sent back."""

    async def story(pane, desk):
        await pane.open("a.py")
        (project.root / "a.py").write_text("a = 'theirs'\n")
        desk.slow = lambda told: isinstance(told, Content) and told.path == "a.py"
        looking = await begun(pane._look())
        await pane.open("b.py")
        desk.drafts.put("k", Draft("a.py", "a = 'typed by another'\n", "", False, False, "another page"))
        desk.gate.set()
        await looking
        assert (pane.path, pane.text) == ("b.py", "b = 1\n") and not pane.unsaved

    looked_at(project, tmp_path, story)


def test_a_field_is_filled_in_while_another_file_is_opened(project, tmp_path):
    async def story(pane, desk):
        path = "aml_config/local.compute"
        await pane.open(path)
        desk.slow = lambda told: isinstance(told, str) and "2g" in told
        filling = await begun(pane._fill("shmSize", "2g"))
        await pane.open("b.py")
        desk.gate.set()
        await filling
        assert (pane.path, pane.text) == ("b.py", "b = 1\n") and not pane.unsaved
        kept = desk.drafts.of("k")
        assert list(kept) == [path] and 'shmSize: "2g"' in kept[path].text

    looked_at(project, tmp_path, story)


@pytest.mark.parametrize("way", ["gone", "binary", "link", "folder"])
def test_what_was_typed_in_a_file_that_is_gone(project, tmp_path, way):
    """It can be written anew or discarded, also much later."""

    async def story(pane, desk):
        file = project.root / "a.py"
        await pane.open("a.py")
        pane.type("a = 2\n")
        file.unlink()
        if way == "binary":
            file.write_bytes(b"\0")
        elif way == "link":
            file.symlink_to("b.py")
        elif way == "folder":
            file.mkdir()
        for _ in range(3):
            await pane._look()
            assert pane.text == "a = 2\n" and pane.unsaved and pane.asks
        if way == "gone":
            assert pane.asks == "a.py was deleted on disk."
        await pane.open("b.py")
        await pane.open("a.py")
        asked = pane.asks
        assert pane.text == "a = 2\n" and pane.unsaved and asked
        await pane._look()
        assert pane.asks == asked
        await pane._overwrite()
        if way in ("gone", "binary"):
            assert file.read_text() == "a = 2\n" and desk.drafts.of("k") == {} and not pane.unsaved and not pane.asks
        else:
            assert desk.drafts.of("k")["a.py"].text == "a = 2\n"
            await pane._reload("a.py")
            assert desk.drafts.of("k") == {} and pane.path == ""
        assert (project.root / "b.py").read_text() == "b = 1\n"

    looked_at(project, tmp_path, story)


def test_a_file_that_comes_back(project, tmp_path):
    async def story(pane, desk):
        file = project.root / "a.py"
        await pane.open("a.py")
        pane.type("a = 2\n")
        before = file.read_text()
        file.unlink()
        await pane._look()
        file.write_text("a = 'other'\n")
        await pane._overwrite()
        assert file.read_text() == "a = 'other'\n", "nobody has chosen to replace that"
        await pane._look()
        assert "changed on disk" in pane.asks and pane.text == "a = 2\n"
        file.unlink()
        await pane._look()
        file.write_text(before)
        await pane._look()
        assert not pane.asks and pane.unsaved
        await pane.save()
        assert file.read_text() == "a = 2\n"

    looked_at(project, tmp_path, story)


def test_every_page_has_time_to_be_made():
    """NiceGUI gives a page up after three seconds, with an answer that is none of our words."""
    sources = (Path(mlworkbench.ui.__file__).parent / "pages").rglob("*.py")
    assert [one.name for one in sources if "@ui.page(" in one.read_text()] == []
    assert opening.our_page("/nowhere").response_timeout == opening.PATIENCE >= 60
