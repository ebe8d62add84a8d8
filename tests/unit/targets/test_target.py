"""If the target reports missing files, the client uploads them and retries. It gives up if they are still missing."""

from __future__ import annotations

import pytest

from mlworkbench.environment_builds import build_in_advance
from mlworkbench.errors import LaunchError
from mlworkbench.remote.shared.layout import Root
from mlworkbench.targets.target import UploadSource

LOCK = {"kind": "managed", "digest": "0" * 64}


class Machine:
    """A host that returns the given responses in order and repeats the last one."""

    identity = "me@there"

    def __init__(self, *answers):
        self.answers = list(answers)
        self.heard = []

    def call(self, verb, run_id, words, message):
        self.heard.append(verb)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def send_code(self, digest, store, progress=None):
        self.heard.append(digest)

    def send_packages(self, packages, progress=None):
        self.heard.append(packages)


def uploads(tmp_path) -> UploadSource:
    return UploadSource(Root(str(tmp_path)), lambda lock, answer: (lock["kind"], answer["names"]))


def test_what_is_lacking_is_sent(tmp_path):
    machine = Machine({"lacks": "code"}, {"lacks": "packages", "names": ["numpy"]}, {"ok": True})
    answer = uploads(tmp_path).call_with_uploads(machine, lambda: machine.call("start", "r", [], {}), LOCK, "digest")
    assert answer == {"ok": True}
    assert machine.heard == ["start", "digest", "start", ("managed", ["numpy"]), "start"]


def test_a_machine_that_never_has_enough_is_given_up(tmp_path):
    machine = Machine({"ok": False, "lacks": "packages", "names": []})
    with pytest.raises(LaunchError, match="were sent but did not arrive"):
        build_in_advance(machine, LOCK, None, uploads(tmp_path), lambda data: None)
    assert machine.heard.count("build") == 7
