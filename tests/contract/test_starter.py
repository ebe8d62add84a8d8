"""The starter contract of `mlworkbench.testing` on every starter: the built-in ones and examples/sshscript."""

from __future__ import annotations

import shlex

import pytest

from mlworkbench.remote.shared.starter_names import DETACHED, SLURM
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


class TestSlurm(StarterContract):
    """The target's program runs on this computer; Slurm's programs run on the login machine of the cluster."""

    @pytest.fixture
    def tmp_path(self, slurm_plain):
        folder = slurm_plain.homes.home("ada") / "contract"  # the nodes have it at the same path
        folder.mkdir()
        return folder

    @pytest.fixture
    def environment(self, slurm_plain, tmp_path):
        programs = tmp_path / "programs"
        programs.mkdir()
        for name in ("sbatch", "squeue", "scancel", "sacct"):
            command = shlex.join([*slurm_plain.login.inside(), f"/usr/bin/{name}"])
            (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (programs / name).chmod(0o755)
        return {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(tmp_path)}

    @pytest.fixture
    def starter(self):
        return SLURM
