"""What a command prompt begins with: nothing of the project is on its PATH, and what is printed is plain."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlworkbench.config.project import find_project
from mlworkbench.paths import UserPaths
from mlworkbench.ui import shells
from mlworkbench.ui.answers.prompt import prompt


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "project"
    (folder / "aml_config").mkdir(parents=True)
    (folder / "aml_config" / "project.json").write_text('{"Id": "1c4a6a3c-5e3a-4a8e-9f6b-0f8f3e0f9d11", "Name": "p"}')
    return folder


def programs(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


def begun(root: Path, location: str | None = None) -> tuple[list[str], list[str]]:
    more = f"pythonLocation: {location!r}\n" if location else ""
    (root / "aml_config" / "local.compute").write_text(f"type: local\n{more}")
    made = prompt(find_project(root), UserPaths(root.parent / "store"))
    return made.folders, made.lines


@pytest.mark.parametrize("where", ["project/.venv/bin", "elsewhere/bin"])
def test_what_a_project_names_is_told_and_not_put_on_path(root, tmp_path, where):
    folder = programs(tmp_path / where, "python", "git")
    folders, lines = begun(root, str(folder / "python"))
    assert str(folder) not in folders
    assert lines[0] == f"Python for target local: {folder}/python (pythonLocation; not checked)"
    assert lines[1].endswith(f"if you trust the project, run: PATH={folder}:$PATH")
    (folder / "activate").touch()
    assert begun(root, str(folder / "python"))[1][1].endswith(f": . {folder}/activate")


def test_what_is_on_path_outside_the_project_goes_first(root, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", os.path.dirname(os.path.realpath(sys.executable)))
    folders, lines = begun(root)
    assert folders[0] == os.environ["PATH"] and len(lines) == 1 and "not checked" not in lines[0]
    own = programs(root / ".venv" / "bin", "python")
    monkeypatch.setenv("PATH", str(own))
    folders, lines = begun(root)
    assert str(own) not in folders and "not checked" in lines[0] and str(own) in lines[1]


@pytest.mark.parametrize("name", ["\x1b]0;x\x07", "a;id", "$(id)", "a'b", "a\\\\'b", "a`id`", "\u202eabc"])
def test_a_path_that_a_shell_could_take_for_words_gives_no_command(root, tmp_path, name):
    folder = programs(root / name / "bin", "python")
    (root / "aml_config" / "local.compute").write_bytes(b"")
    folders, lines = begun(root, str(folder / "python"))
    assert all(line.isprintable() for line in lines) and not any("if you trust" in line for line in lines)
    assert str(folder) not in folders


@pytest.mark.parametrize("kind", ["bash", "sh"])
def test_start_up_files_run_without_anything_of_the_project(root, tmp_path, monkeypatch, kind):
    """Their PATH has no relative folder and none of a project; the folders of this machine come after them."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".bashrc").write_text(f'echo "$PATH" > {tmp_path}/started\nPATH=/usr/bin:/bin\n')
    (root / ".shrc").write_text(f"touch {tmp_path}/read\n")
    for name, value in {"HOME": str(home), "SHELL": f"/bin/{kind}", "ENV": ".shrc", "ZDOTDIR": "."}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f".::{root}/bin:/usr/bin:/bin")
    words, environment = shells._shell(["/opt/mine"])
    done = subprocess.run(words, cwd=root, env=environment, input=b'echo "now $PATH"\n', capture_output=True)
    assert not (tmp_path / "read").exists()
    if kind == "bash":
        assert (tmp_path / "started").read_text() == "/usr/bin:/bin\n"
        assert b"now /opt/mine:/usr/bin:/bin" in done.stdout
    else:
        assert b"now /usr/bin:/bin:/opt/mine" in done.stdout


def test_a_shell_that_is_named_by_a_relative_path_is_not_started(root, monkeypatch):
    programs(root, "bash")
    monkeypatch.chdir(root)
    monkeypatch.setenv("SHELL", "./bash")
    assert shells._shell([])[0][0] == "/bin/sh"
