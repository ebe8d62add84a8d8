"""The starter contract of `mlworkbench.testing` on every starter: the built-in one and examples/sshscript."""

from __future__ import annotations

import pytest

from mlworkbench.remote.shared.starter_names import DETACHED
from mlworkbench.testing import StarterContract
from tests.e2e.example_plugins import EXAMPLES, write_job_script


class TestDetached(StarterContract):
    @pytest.fixture
    def starter(self):
        return DETACHED


class TestSshscript(StarterContract):
    @pytest.fixture
    def starter(self, tmp_path):
        write_job_script(tmp_path)  # the contract uses tmp_path as the target's home folder
        return str(EXAMPLES / "sshscript" / "mlw_sshscript_starter.py")
