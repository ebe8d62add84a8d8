"""Which attachment belongs to a .compute file."""

from __future__ import annotations

import pytest

from mlworkbench.attachments import Attachments
from mlworkbench.paths import UserPaths


@pytest.fixture
def attachments(tmp_path):
    found = Attachments(UserPaths(tmp_path))

    def add(address: str, port: int = 22, **more):
        draft = found.draft(f"ada@10.0.0.7:{port}", address=address, username="ada", port=port, **more)
        return found.save(draft)

    found.add = add
    return found


def test_another_port_is_another_machine(attachments):
    saved = attachments.add("10.0.0.7", 2222)
    assert attachments.find("10.0.0.7", "ada", 2222) == saved
    assert attachments.find("10.0.0.7", "ada") is None, "no port means 22"
    assert attachments.find("10.0.0.7", "ada", 22) is None
    assert saved.file_port == 2222


def test_a_missing_port_is_the_one_of_sshs_configuration(attachments):
    saved = attachments.add("box", 2222, default_port=2222)
    assert attachments.find("BOX") == attachments.find("box", "ada", 2222) == saved
    typed = attachments.add("box", 22, default_port=2222)
    assert attachments.find("box") == saved and attachments.find("box", port=22) == typed
    assert (saved.file_port, typed.file_port) == (2222, 22), "the file is for others, too, whose port may be another"


def test_another_way_is_another_machine(attachments):
    one, two = (attachments.add("10.0.0.7", jump=jump) for jump in ("eve@Gate:2200,inner", "bob@gate"))
    assert attachments.find("10.0.0.7", "ada", 22, "eve@gate:2200,INNER") == one
    assert attachments.find("10.0.0.7", "ada", None, "bob@gate") == two
    for other in (None, "gate", "Bob@gate", "bob@gate:22", "eve@gate:2200", "inner,eve@gate:2200"):
        assert attachments.find("10.0.0.7", "ada", None, other) is None, other
    direct = attachments.add("10.0.0.7", default_way="gate")
    assert attachments.find("10.0.0.7") == direct and direct.where == "ada@10.0.0.7:22 through gate"


def test_each_way_has_its_own_entry_in_the_keyring(attachments):
    """Without a jump host, the entry's name is the same as in older versions."""
    names = [attachments.add("10.0.0.7", jump=jump).keyring_name for jump in (None, "gate", "other")]
    assert names == ["ssh:ada@10.0.0.7:22", "ssh:ada@10.0.0.7:22 through gate", "ssh:ada@10.0.0.7:22 through other"]
