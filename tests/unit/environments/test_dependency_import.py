"""``mlw project init`` imports the dependencies of a folder, whose files are untrusted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlworkbench.config.project_folder import init_project
from mlworkbench.environments import dependency_import
from mlworkbench.environments.dependency_files import read_dependencies
from mlworkbench.environments.dependency_import import ImportedDependencies, import_dependencies

SECRET = "hush-9d2e"
REQUIREMENTS = f"""
# of a colleague
--index-url https://ada:{SECRET}@index.example/simple
numpy>=1.26,<2   # a comment
scikit-learn[alldeps]==1.5.2; python_version >= "3.9"
-r more/base.txt
-r ../outside.txt
-r https://index.example/evil.txt
-c limits.txt
-e .
git+https://github.com/example/tool@v1#egg=tool
closed @ https://ada:{SECRET}@index.example/closed-1.0-py3-none-any.whl
wheels/ours-1.0-py3-none-any.whl
this is no package
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    path = tmp_path / "code"
    (path / "more").mkdir(parents=True)
    (path / "wheels").mkdir()
    (path / "wheels" / "ours-1.0-py3-none-any.whl").touch()
    (path / "train.py").write_text("print('hello')\n")
    (path / "more" / "base.txt").write_text("pandas\n-r ../requirements.txt\n-r base.txt\n")
    (path / "limits.txt").write_text("numpy<2\n")
    (tmp_path / "outside.txt").write_text("evil\n")
    monkeypatch.chdir(path)
    return path


def written(folder: Path, imported: ImportedDependencies) -> Path:
    template = (
        "# A comment.\nname: demo\n\n# Best first.\n#channels:\n#  - x\n\ndependencies:\n  - python=3.11\n\n  #- pip:\n"
    )
    path = folder / "aml_config" / "conda_dependencies.yml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(imported.rewrite(template))
    return path


def test_requirements(folder):
    (folder / "requirements.txt").write_text(REQUIREMENTS)
    imported = import_dependencies(folder)
    assert imported is not None and imported.pip == (
        "numpy<2,>=1.26",
        'scikit-learn[alldeps]==1.5.2 ; python_version >= "3.9"',
        "pandas",
        "tool @ git+https://github.com/example/tool@v1#egg=tool",
        "./wheels/ours-1.0-py3-none-any.whl",
    )
    left = "\n".join(imported.left_out)
    for text in (
        "requirements.txt:3: --index-url https://index.example/simple: pip options are not imported",
        "requirements.txt:7: -r ../outside.txt: ../outside.txt is outside the project",
        "requirements.txt:8: -r https://index.example/evil.txt: requirement files by URL are not supported",
        "limits.txt:1: numpy<2: constraints are not imported",
        "requirements.txt:10: -e .: editable installs are not supported",
        "requirements.txt:12: closed @ https://index.example/closed-1.0-py3-none-any.whl: the URL contains a secret",
        "requirements.txt:14: this is no package: ",
    ):
        assert text in left, left
    assert len(imported.left_out) == 7 and SECRET not in left
    dependencies = read_dependencies(written(folder, imported), folder)
    assert [package.name for package in dependencies.pip] == ["numpy", "scikit-learn", "pandas", "tool", "ours"]
    assert dependencies.python == "3.11" and dependencies.pip[-1].path == "wheels/ours-1.0-py3-none-any.whl"


def test_environment_file_takes_precedence(folder):
    (folder / "requirements.txt").write_text("requests\n")
    (folder / "environment.yml").write_text(
        "name: old\nprefix: /home/ada/conda\nchannels:\n  - conda-forge\n  - https://c.example/t/tk-1234/private\n"
        "dependencies:\n  - python=3.9\n  - numpy=1.26\n  - pip\n  - 'bad package ]['\n"
        "  - pip:\n    - six\n    - --pre\n"
    )
    imported = import_dependencies(folder)
    assert imported is not None and imported.file == "environment.yml"
    assert (imported.conda[:3], imported.pip, imported.channels) == (
        ("python=3.9", "numpy=1.26", "pip"),
        ("six",),
        ("conda-forge",),
    )
    left = "\n".join(imported.left_out)
    assert "prefix: this key is not imported" in left and "--pre: pip options" in left and "tk-1234" not in left
    assert "requirements.txt: ignored because environment.yml was imported" in left
    dependencies = read_dependencies(written(folder, imported), folder)
    assert (dependencies.python, dependencies.channels) == ("3.9", ("conda-forge",))


def test_a_pyproject(folder):
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "x"\nrequires-python = ">=3.10, <3.13"\ndependencies = [\n  "torch>=2",\n  "-r x", 3,\n]\n'
        'dynamic = ["dependencies"]\n[project.optional-dependencies]\ndev = ["ruff"]\n'
        '[[tool.uv.index]]\nurl = "https://index.example"\n[tool.poetry.dependencies]\nrequests = "*"\n'
    )
    imported = import_dependencies(folder)
    assert imported is not None and imported.packages == ("python>=3.10,<3.13", "torch>=2", "requests")
    left = "\n".join(imported.left_out)
    for text in ("[project.optional-dependencies] is not imported: dev", "[tool.uv.index] is not"):
        assert text in left, left
    assert "dynamic dependencies are not imported: they require the build backend" in left
    assert read_dependencies(written(folder, imported), folder).python == ">=3.10,<3.13"


def test_hostile_files(folder):
    """Limits apply, links are not followed, and imported entries are read back unchanged."""
    path = folder / "requirements.txt"
    path.symlink_to("/etc/passwd")
    imported = import_dependencies(folder)
    assert imported is not None and not imported.packages and "is outside the project" in imported.left_out[0]
    path.unlink()
    for text in (
        b"a" * 3000,
        b"\xff\xfe\x00",
        b"x==1\x1b[31m\n",
        b"\n".join(b"p%d" % number for number in range(1001)),
        b"-r " + b"../" * 500 + b"x",
        b" " * 900_000 + b"x",
        b"a" * (1 << 21),
    ):
        path.write_bytes(text)
        imported = import_dependencies(folder)
        assert imported is not None and not [package for package in imported.packages if package != "x"], text[:40]
        assert imported.left_out or imported.packages == ("x",), text[:40]
    path.unlink()
    os.mkfifo(path)
    assert import_dependencies(folder) is None
    path.unlink()
    nasty = ["null", "yes", "on", 'x; python_version == "3"', "x @ https://h.example/#a: b'\"", "no-such.é"]
    path.write_text("\n".join(nasty))
    imported = import_dependencies(folder)
    assert imported is not None and {"null", "yes", "on"} <= set(imported.pip)
    dependencies = read_dependencies(written(folder, imported), folder)
    assert len(dependencies.pip) == len(imported.pip)


def test_a_file_without_packages_does_not_hide_the_next(folder):
    project = '[project]\nname = "x"\ndependencies = ["torch>=2"]\n'
    (folder / "pyproject.toml").write_text(project)
    for name, text, reason in (
        ("requirements.txt", "# empty\n", "requirements.txt: no packages found"),
        ("requirements.txt", "-e .\n", "requirements.txt:1: -e .: editable installs"),
        ("environment.yml", "dependencies: [\n", "the whole file: environment.yml:"),
        ("environment.yml", "name: x\n", "environment.yml: no packages found"),
    ):
        (folder / name).write_text(text)
        imported = import_dependencies(folder)
        assert imported is not None and (imported.file, imported.pip) == ("pyproject.toml", ("torch>=2",)), name
        assert [message for message in imported.left_out if message.startswith(reason)], imported.left_out
        (folder / name).unlink()
    (folder / "pyproject.toml").write_text("")
    (folder / "requirements.txt").write_text("")
    nothing = import_dependencies(folder)
    assert nothing is not None and (nothing.file, nothing.packages) == ("requirements.txt, pyproject.toml", ())


def test_requirements_that_an_environment_file_includes_count_as_read(folder):
    (folder / "requirements.txt").write_text("six\n")
    (folder / "environment.yml").write_text("dependencies:\n  - pip:\n    - -r requirements.txt\n")
    imported = import_dependencies(folder)
    assert imported is not None and (imported.pip, imported.left_out) == (("six",), ())


def test_entries_of_an_environment_file_that_are_not_packages(folder):
    path = folder / "environment.yml"
    path.write_text("channels: forge\ndependencies:\n  - six\n  - {conda: x}\n  - null\n  - pip: [y, null]\n  - [z]\n")
    imported = import_dependencies(folder)
    assert imported is not None and imported.packages == ("six", "y")
    assert imported.left_out == (
        "environment.yml:1: channels: forge: not a list",
        "environment.yml:4: conda: x: only `pip:` can have nested entries",
        "environment.yml:5: null: not a package",
        "environment.yml:6: null: not a package",
        "environment.yml:7: a list: not a package",
    )
    path.write_text("dependencies: numpy\n")
    imported = import_dependencies(folder)
    assert imported is not None and imported.left_out == ("environment.yml:1: dependencies: numpy: not a list",)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_encodings_with_a_byte_order_mark(folder, encoding):
    """PowerShell writes files in these encodings, and pip reads them."""

    def write(name: str, text: str) -> None:
        mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
        (folder / name).write_bytes(mark + text.encode(encoding))

    write("requirements.txt", "six==1.16.0\r\n")
    imported = import_dependencies(folder)
    assert imported is not None and (imported.pip, imported.left_out) == (("six==1.16.0",), ())
    assert [package.name for package in read_dependencies(folder / "requirements.txt", folder).pip] == ["six"]
    write("environment.yml", "dependencies:\r\n- numpy\r\n")
    imported = import_dependencies(folder)
    assert imported is not None and imported.conda == ("numpy",)


POETRY = """
[tool.poetry]
name = "x"
[tool.poetry.dependencies]
python = "^3.10"
numpy = "^1.26.4"
small = "^0.2.3"
near = "~1.2.3"
wide = "~1"
plain = "2.0"
any = "*"
both = ">=1.0, <2.0,!=1.5"
extra = {version = "^0.0.3", extras = ["a", "b"]}
ours = {git = "https://github.com/example/ours.git"}
either = "^1 || ^2"
[tool.poetry.group.dev.dependencies]
pytest = "*"
"""


def test_poetry(folder):
    (folder / "pyproject.toml").write_text(POETRY)
    imported = import_dependencies(folder)
    assert imported is not None and imported.conda == ("python>=3.10,<4",)
    assert imported.pip == (
        *("numpy<2,>=1.26.4", "small<0.3,>=0.2.3", "near<1.3,>=1.2.3", "wide<2,>=1", "plain==2.0", "any"),
        *("both!=1.5,<2.0,>=1.0", "extra[a,b]<0.0.4,>=0.0.3"),
    )
    assert [message.partition(";")[0] for message in imported.left_out] == [
        "pyproject.toml:14: ours: not a plain version",
        "pyproject.toml:15: either: not a plain version",
        "pyproject.toml: [tool.poetry.group] is not imported: dev",
    ]
    assert all("poetry export -f requirements.txt" in message for message in imported.left_out)
    assert len(read_dependencies(written(folder, imported), folder).pip) == len(imported.pip)


def test_dynamic_dependencies_of_setuptools(folder):
    """Files that setuptools would read are imported, except those outside the project."""
    (folder / "deps.txt").write_text("six\n")
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "x"\ndynamic = ["dependencies"]\n'
        '[tool.setuptools.dynamic]\ndependencies = {file = ["deps.txt", "../outside.txt"]}\n'
    )
    imported = import_dependencies(folder)
    assert imported is not None and imported.pip == ("six",)
    assert imported.left_out == ("pyproject.toml:5: -r ../outside.txt: ../outside.txt is outside the project",)


def test_a_setup_script_is_not_the_script_to_run(folder):
    (folder / "train.py").unlink()
    (folder / "setup.py").write_text("from setuptools import setup\nsetup()\n")
    assert init_project(folder).runconfig("local").argument_vector == ()


def test_too_many_entries_are_refused_fast(folder, monkeypatch):
    looked = []
    monkeypatch.setattr(dependency_import, "_find_line", lambda text, entry: looked.append(entry) or 1)
    entries = "".join(f'"a{number}",\n' for number in range(5000))
    (folder / "pyproject.toml").write_text(f'[project]\nname = "x"\ndependencies = [\n{entries}]\n')
    imported = import_dependencies(folder)
    assert any("more than 1000 entries" in message for message in imported.left_out)
    assert len(looked) < 1100
