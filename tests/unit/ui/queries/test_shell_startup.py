"""Start of a terminal: no project folder is on PATH, and the printed text is sanitized."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlworkbench.config.project_folder import find_project
from mlworkbench.paths import UserPaths
from mlworkbench.ui import shell_sessions
from mlworkbench.ui.queries.shell_startup import prompt


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "project"
    (folder / "aml_config").mkdir(parents=True)
    (folder / "aml_config" / "project.json").write_text('{"Id": "1c4a6a3c-5e3a-4a8e-9f6b-0f8f3e0f9d11", "Name": "p"}')
    return folder


def create_programs(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


def start_prompt(root: Path, location: str | None = None) -> tuple[list[str], list[str]]:
    more = f"pythonLocation: {location!r}\n" if location else ""
    (root / "aml_config" / "local.compute").write_text(f"type: local\n{more}")
    start = prompt(find_project(root), UserPaths(root.parent / "store"))
    return start.folders, start.lines


@pytest.mark.parametrize("where", ["project/.venv/bin", "elsewhere/bin"])
def test_project_python_is_reported_but_not_on_path(root, tmp_path, where):
    folder = create_programs(tmp_path / where, "python", "git")
    folders, lines = start_prompt(root, str(folder / "python"))
    assert str(folder) not in folders
    assert lines[0] == f"Python for target local: {folder}/python (pythonLocation; not checked)"
    assert lines[1].endswith(f"if you trust the project, run: PATH={folder}:$PATH")
    (folder / "activate").touch()
    assert start_prompt(root, str(folder / "python"))[1][1].endswith(f": . {folder}/activate")


def test_python_outside_the_project_is_first_on_path(root, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", os.path.dirname(os.path.realpath(sys.executable)))
    folders, lines = start_prompt(root)
    assert folders[0] == os.environ["PATH"] and len(lines) == 1 and "not checked" not in lines[0]
    own = create_programs(root / ".venv" / "bin", "python")
    monkeypatch.setenv("PATH", str(own))
    folders, lines = start_prompt(root)
    assert str(own) not in folders and "not checked" in lines[0] and str(own) in lines[1]


@pytest.mark.parametrize("name", ["\x1b]0;x\x07", "a;id", "$(id)", "a'b", "a\\\\'b", "a`id`", "\u202eabc"])
def test_unquotable_path_gives_no_command(root, tmp_path, name):
    folder = create_programs(root / name / "bin", "python")
    (root / "aml_config" / "local.compute").write_bytes(b"")
    folders, lines = start_prompt(root, str(folder / "python"))
    assert all(line.isprintable() for line in lines) and not any("if you trust" in line for line in lines)
    assert str(folder) not in folders


@pytest.mark.parametrize("kind", ["bash", "sh"])
def test_startup_files_run_without_project_folders(root, tmp_path, monkeypatch, kind):
    """PATH contains no relative folders and no project folders while the startup files run."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".bashrc").write_text(f'echo "$PATH" > {tmp_path}/started\nPATH=/usr/bin:/bin\n')
    (root / ".shrc").write_text(f"touch {tmp_path}/read\n")
    for name, value in {"HOME": str(home), "SHELL": f"/bin/{kind}", "ENV": ".shrc", "ZDOTDIR": "."}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f".::{root}/bin:/usr/bin:/bin")
    arguments, environment = shell_sessions._shell_command(["/opt/mine"])
    done = subprocess.run(arguments, cwd=root, env=environment, input=b'echo "now $PATH"\n', capture_output=True)
    assert not (tmp_path / "read").exists()
    if kind == "bash":
        assert (tmp_path / "started").read_text() == "/usr/bin:/bin\n"
        assert b"now /opt/mine:/usr/bin:/bin" in done.stdout
    else:
        assert b"now /usr/bin:/bin:/opt/mine" in done.stdout


def test_shell_with_relative_path_is_not_started(root, monkeypatch):
    create_programs(root, "bash")
    monkeypatch.chdir(root)
    monkeypatch.setenv("SHELL", "./bash")
    assert shell_sessions._shell_command([])[0][0] == "/bin/sh"
