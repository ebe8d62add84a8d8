"""File pane: slow disk access never mixes up the contents of two files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from nicegui import Client, ui

import mlworkbench.ui
from mlworkbench.config.project_folder import create_project
from mlworkbench.ui.components import page_setup
from mlworkbench.ui.components.file_pane import FilePane
from mlworkbench.ui.components.page_frame import ProjectScope
from mlworkbench.ui.drafts import Draft, Drafts
from mlworkbench.ui.queries.files import Content


class SlowBackend:
    """Fake backend. If ``slow`` returns true for a result, the call waits until ``resume`` is set."""

    def __init__(self, place):
        self.drafts = Drafts(place)
        self.resume = asyncio.Event()
        self.slow = lambda result: False

    async def call(self, work, *arguments):
        result = work(None, *arguments)
        if self.slow(result):
            await self.resume.wait()
        return result


class Pane(FilePane):
    """Pane with helpers for tests."""

    def type(self, text):
        self._set_text(text)
        self._update_draft()

    @property
    def text(self):
        return self._editor.value

    @property
    def message(self):
        return self._banner.message


@pytest.fixture
def project(tmp_path):
    project = create_project("demo", tmp_path)
    (project.root / "a.py").write_text("a = 1\n")
    (project.root / "b.py").write_text("b = 1\n")
    return project


def run_scenario(project, tmp_path, scenario):
    """Run a scenario with a pane on a page without a browser."""

    async def play():
        backend = SlowBackend(tmp_path / "drafts")
        with Client(ui.page("/nowhere"), request=None) as client:
            pane = Pane(backend, ProjectScope("k", project), lambda: None)
            await scenario(pane, backend)
            client.delete()

    asyncio.run(play())


async def start_click(work):
    """Start work as a click would, and let it run until it has to wait."""

    async def clicked():
        with client:
            await work

    client = ui.context.client
    task = asyncio.ensure_future(clicked())
    for _ in range(50):
        await asyncio.sleep(0)
    return task


def test_open_another_file_during_save(project, tmp_path):
    async def scenario(pane, backend):
        await pane.open("a.py")
        pane.type("a = 2\n")
        backend.slow = lambda result: isinstance(result, str)  # a save returns the digest of the file
        saving = await start_click(pane.save())
        await pane.open("b.py")
        backend.resume.set()
        await saving
        assert (pane.path, pane.text) == ("b.py", "b = 1\n") and not pane.unsaved
        assert backend.drafts.for_project("k") == {}
        pane.type("b = 2\n")
        await pane.save()
        assert (project.root / "a.py").read_text() == "a = 2\n"
        assert (project.root / "b.py").read_text() == "b = 2\n"

    run_scenario(project, tmp_path, scenario)


def test_edit_during_save(project, tmp_path):
    """During the save, the user opens another file, returns to this one, and edits it."""

    async def scenario(pane, backend):
        await pane.open("a.py")
        pane.type("a = 2\n")
        backend.slow = lambda result: isinstance(result, str)
        saving = await start_click(pane.save())
        await pane.open("b.py")
        await pane.open("a.py")
        pane.type("a = 3\n")
        backend.resume.set()
        await saving
        await pane._poll()
        assert (
            pane.text == backend.drafts.for_project("k")["a.py"].text == "a = 3\n" and pane.unsaved and not pane.message
        )
        await pane._poll()
        await pane.save()
        assert (project.root / "a.py").read_text() == "a = 3\n" and backend.drafts.for_project("k") == {}

    run_scenario(project, tmp_path, scenario)


def test_last_requested_file_is_shown(project, tmp_path):
    async def scenario(pane, backend):
        backend.slow = lambda result: isinstance(result, Content) and result.path == "a.py"
        first = await start_click(pane.open("a.py"))
        await pane.open("b.py")
        backend.resume.set()
        await first
        assert (pane.path, pane.text) == ("b.py", "b = 1\n")

    run_scenario(project, tmp_path, scenario)


def test_open_another_file_during_poll(project, tmp_path):
    """Changes to the first file do not affect the second one, and the pane does not switch back."""

    async def scenario(pane, backend):
        await pane.open("a.py")
        (project.root / "a.py").write_text("a = 'theirs'\n")
        backend.slow = lambda result: isinstance(result, Content) and result.path == "a.py"
        looking = await start_click(pane._poll())
        await pane.open("b.py")
        backend.drafts.put("k", Draft("a.py", "a = 'typed by another'\n", "", False, False, "another page"))
        backend.resume.set()
        await looking
        assert (pane.path, pane.text) == ("b.py", "b = 1\n") and not pane.unsaved

    run_scenario(project, tmp_path, scenario)


def test_open_another_file_during_form_change(project, tmp_path):
    async def scenario(pane, backend):
        path = "aml_config/local.compute"
        await pane.open(path)
        backend.slow = lambda result: isinstance(result, str) and "2g" in result
        filling = await start_click(pane._set_field("shmSize", "2g"))
        await pane.open("b.py")
        backend.resume.set()
        await filling
        assert (pane.path, pane.text) == ("b.py", "b = 1\n") and not pane.unsaved
        kept = backend.drafts.for_project("k")
        assert list(kept) == [path] and 'shmSize: "2g"' in kept[path].text

    run_scenario(project, tmp_path, scenario)


@pytest.mark.parametrize("kind", ["gone", "binary", "link", "folder"])
def test_edits_of_a_deleted_file_are_kept(project, tmp_path, kind):
    """The user can still save or discard the edited text."""

    async def scenario(pane, backend):
        file = project.root / "a.py"
        await pane.open("a.py")
        pane.type("a = 2\n")
        file.unlink()
        if kind == "binary":
            file.write_bytes(b"\0")
        elif kind == "link":
            file.symlink_to("b.py")
        elif kind == "folder":
            file.mkdir()
        for _ in range(3):
            await pane._poll()
            assert pane.text == "a = 2\n" and pane.unsaved and pane.message
        if kind == "gone":
            assert pane.message == "a.py was deleted on disk."
        await pane.open("b.py")
        await pane.open("a.py")
        message = pane.message
        assert pane.text == "a = 2\n" and pane.unsaved and message
        await pane._poll()
        assert pane.message == message
        await pane._overwrite()
        if kind in ("gone", "binary"):
            assert (
                file.read_text() == "a = 2\n"
                and backend.drafts.for_project("k") == {}
                and not pane.unsaved
                and not pane.message
            )
        else:
            assert backend.drafts.for_project("k")["a.py"].text == "a = 2\n"
            await pane._reload("a.py")
            assert backend.drafts.for_project("k") == {} and pane.path == ""
        assert (project.root / "b.py").read_text() == "b = 1\n"

    run_scenario(project, tmp_path, scenario)


def test_deleted_file_is_created_again(project, tmp_path):
    async def scenario(pane, backend):
        file = project.root / "a.py"
        await pane.open("a.py")
        pane.type("a = 2\n")
        before = file.read_text()
        file.unlink()
        await pane._poll()
        file.write_text("a = 'other'\n")
        await pane._overwrite()
        assert file.read_text() == "a = 'other'\n", "nobody has chosen to replace that"
        await pane._poll()
        assert "changed on disk" in pane.message and pane.text == "a = 2\n"
        file.unlink()
        await pane._poll()
        file.write_text(before)
        await pane._poll()
        assert not pane.message and pane.unsaved
        await pane.save()
        assert file.read_text() == "a = 2\n"

    run_scenario(project, tmp_path, scenario)


def test_every_page_has_a_response_timeout():
    """Without a longer timeout, NiceGUI shows its own error page after three seconds."""
    sources = (Path(mlworkbench.ui.__file__).parent / "pages").rglob("*.py")
    assert [path.name for path in sources if "@ui.page(" in path.read_text()] == []
    assert page_setup.app_page("/nowhere").response_timeout == page_setup.RESPONSE_TIMEOUT >= 60
