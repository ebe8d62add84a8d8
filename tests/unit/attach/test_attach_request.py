"""Settings that an attach takes from the .compute file of a cloned project, and settings that the user must confirm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlworkbench.attach import attach_request as request
from mlworkbench.attach.attach_request import AttachRequest
from mlworkbench.config.project_folder import Project
from mlworkbench.errors import UsageError

FILE = "type: remote\naddress: old.example\nusername: eve\nport: 2222\njumpHost: x@evil\n"


@pytest.fixture
def project(tmp_path):
    (tmp_path / "aml_config").mkdir()
    (tmp_path / "aml_config" / "box.compute").write_text(FILE)
    return Project(tmp_path, "1b4e28ba-2fa1-4d2b-883f-0016d3cca427", "demo")


class FakePrompter:
    """A user who answers every question in the same way. Records the questions."""

    def __init__(self, answer: bool | None) -> None:
        self.answer, self.asked = answer, []

    def confirm(self, question: str) -> bool | None:
        self.asked.append(question)
        return self.answer


def test_with_replace_nothing_comes_from_the_file(project):
    typed = AttachRequest("box", address="gpu.corp", username="ada", replace=True)
    filled, there = request.complete(project, typed)
    assert filled == replace(typed, kind="remotedocker") and there is None
    with pytest.raises(UsageError, match="--address is missing"):
        request.complete(project, AttachRequest("box", replace=True))


def test_with_replace_the_files_of_the_same_target_stay(project):
    typed = AttachRequest("box", "remote", "old.example", "eve", 2222, "x@evil", replace=True)
    assert request.complete(project, typed) == (typed, project.compute("box"))


@pytest.mark.parametrize("other", [{"jump": "ada@gate"}, {"port": 22}, {"username": "ada"}, {"address": "gpu.corp"}])
def test_another_way_needs_another_file(project, other):
    with pytest.raises(
        UsageError, match="already exists for another machine: remote eve@old.example:2222 through x@evil"
    ) as caught:
        request.complete(project, AttachRequest("box", **other))
    assert "--replace" in caught.value.hint


def test_what_the_user_typed_is_not_asked_about(project):
    person = FakePrompter(None)
    typed = AttachRequest("box", address="old.example", port=2222, jump="x@evil")
    request.confirm_route(typed, request.complete(project, typed)[0], "eve@old.example:2222 through x@evil", person)
    assert person.asked == []


@pytest.mark.parametrize("answer", [True, False, None])
def test_what_comes_from_the_file_is_asked_about(project, answer):
    person, typed = FakePrompter(answer), AttachRequest("box", address="old.example")
    filled, there = request.complete(project, typed)
    assert (filled.port, filled.jump) == (2222, "x@evil") and there == project.compute("box")
    machine = "eve@old.example:2222 through x@evil"
    if answer:
        request.confirm_route(typed, filled, machine, person)
    else:
        with pytest.raises(
            UsageError, match=f"nothing was attached: aml_config/box.compute contains the address {machine}"
        ) as caught:
            request.confirm_route(typed, filled, machine, person)
        assert caught.value.hint.endswith("add: --port 2222 --jump x@evil")
    assert person.asked == [f"Connect to {machine}, the address in aml_config/box.compute?"]
