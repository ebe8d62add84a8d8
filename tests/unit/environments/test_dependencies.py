"""The dependencies of a project: every entry of every kind of file, with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Parsed
from packaging.utils import canonicalize_name

from mlworkbench.environments.dependencies import Dependencies, Line, PipLine
from mlworkbench.environments.dependency_files import read_dependencies
from mlworkbench.environments.dependency_parser import parse_conda_entry, parse_pip_entry
from mlworkbench.environments.requirement import parse_requirement
from mlworkbench.errors import ConfigError

CONDA = """\
# [AzureMlVersion] = 2
name: project_environment
channels: [conda-forge]
dependencies:
  - python=3.5.2   # the original's own
  - conda-forge::scikit-learn >=0.19,<0.20
  - pip:
    # The API for Azure Machine Learning Model Management Service.
    - --extra-index-url https://index.example/simple
    - "tensorflow_gpu[x] == 1.4.0 ; python_version < '3.7'"
    - https://wheels.example/GPU/cntk-2.2-cp35-cp35m-linux_x86_64.whl
    - wheels/own-1.0-py3-none-any.whl
    - -r more.txt
"""


def read(folder: Path, name: str, text: str) -> Dependencies:
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    return read_dependencies(path, folder)


def test_conda_file_with_every_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "own-1.0-py3-none-any.whl").touch()
    (tmp_path / "more.txt").write_text("\nsix\n")
    dependencies = read(tmp_path, "aml_config/conda_dependencies.yml", CONDA)
    assert (dependencies.file, dependencies.kind, dependencies.name) == (
        "aml_config/conda_dependencies.yml",
        "conda",
        "project_environment",
    )
    assert (dependencies.python, dependencies.python_line.line if dependencies.python_line else None) == ("3.5.2", 5)
    assert dependencies.channels == ("conda-forge",)
    assert [(package.name, package.channel, package.version, package.line) for package in dependencies.conda] == [
        ("python", None, "=3.5.2", 5),
        ("scikit-learn", "conda-forge", ">=0.19,<0.20", 6),
    ]
    assert dependencies.needs_conda
    assert dependencies.extra_index_urls == ("https://index.example/simple",)
    assert [(package.name, package.specifier, package.line, package.file) for package in dependencies.pip] == [
        ("tensorflow-gpu", "==1.4.0", 10, dependencies.file),
        ("cntk", "", 11, dependencies.file),
        ("own", "", 12, dependencies.file),
        ("six", "", 2, "more.txt"),
    ]
    first, cntk, local, _ = dependencies.pip
    assert (first.extras, first.marker) == (("x",), 'python_version < "3.7"')
    assert cntk.url and cntk.wheel == "cntk-2.2-cp35-cp35m-linux_x86_64.whl"
    assert (local.path, local.url) == ("wheels/own-1.0-py3-none-any.whl", None)
    assert dependencies.files == ("aml_config/conda_dependencies.yml", "more.txt")


REQUIREMENTS = """\
# comment
--index-url=https://index.example/simple
-f wheels
--pre
numpy==1.26.4 \\
    --hash=sha256:aaaa \\
    --hash=sha256:bbbb
torch @ https://wheels.example/torch-2.1.0%2Bcpu-cp311-cp311-linux_x86_64.whl  # with a comment
git+https://git.example/x/y@main#egg=Y_Z
-c limits.txt

pandas>=2 ; sys_platform == "linux"#not a comment
"""


def test_requirements_with_every_line(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "limits.txt").write_text("numpy<2\n")
    with pytest.raises(ConfigError) as failed:
        read(tmp_path, "requirements.txt", REQUIREMENTS)
    assert failed.value.line == 12  # "#" starts a comment only after a space
    dependencies = read(tmp_path, "requirements.txt", REQUIREMENTS.replace("#not", " # not"))
    assert (dependencies.kind, dependencies.python, dependencies.index_url) == (
        "requirements",
        None,
        "https://index.example/simple",
    )
    assert dependencies.find_links == (str(tmp_path / "wheels"),)
    assert [option.name for option in dependencies.options] == ["--index-url", "--find-links", "--pre"]
    assert [(option.name, option.line) for option in dependencies.pip] == [
        ("numpy", 5),
        ("torch", 8),
        ("y-z", 9),
        ("pandas", 12),
    ]
    assert dependencies.pip[0].hashes == ("sha256:aaaa", "sha256:bbbb")
    assert dependencies.pip[1].wheel == "torch-2.1.0+cpu-cp311-cp311-linux_x86_64.whl"
    assert [(option.name, option.specifier) for option in dependencies.constraints] == [("numpy", "<2")]
    assert not dependencies.needs_conda


WRONG = [
    ("-e .", 1, "editable installs are not supported", "build a wheel"),
    ("six\n--editable=git+https://x.example/y", 2, "editable installs are not supported", None),
    ("numpy=1.13", 1, "'numpy=1.13' is not a pip requirement", "use numpy==1.13"),
    ("six\n\nnum py", 3, "is not a pip requirement", None),
    ("../x-1.0-py3-none-any.whl", 1, "is outside the project", "copy it into the project"),
    ("/etc/x-1.0-py3-none-any.whl", 1, "/etc/x-1.0-py3-none-any.whl is outside the project", None),
    ("file:///etc/x-1.0-py3-none-any.whl", 1, "is outside the project", None),
    ("C:\\w\\x-1.0-py3-none-any.whl", 1, "is outside the project", None),
    ("-r ../secret.txt", 1, "../secret.txt is outside the project", None),
    ("-r none.txt", 1, "none.txt does not exist", None),
    ("-r https://x.example/r.txt", 1, "by URL are not supported", "copy the file into the project"),
    ("--index-url", 1, "--index-url requires a value", None),
    ("--pre yes", 1, "--pre takes no value", None),
    ("--install-option=x", 1, "unsupported option --install-option; available:", None),
    ("six --global-option=x", 1, "options after a package are not supported", None),
    ("./folder", 1, "./folder is a folder", "build a wheel"),
    ("-f nowhere", 1, "folder nowhere does not exist", None),
]


@pytest.mark.parametrize(("text", "line", "message", "hint"), WRONG)
def test_invalid_files(tmp_path: Path, text: str, line: int, message: str, hint: str | None) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError) as failed:
        read(tmp_path, "requirements.txt", text + "\n")
    assert failed.value.line == line
    assert message in failed.value.message
    assert (hint or "") in (failed.value.hint or "")


def test_a_link_out_of_the_project_is_outside(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "x-1.0-py3-none-any.whl").touch()
    (project / "x-1.0-py3-none-any.whl").symlink_to(tmp_path / "x-1.0-py3-none-any.whl")
    with pytest.raises(ConfigError, match="is outside the project"):
        read(project, "requirements.txt", "x-1.0-py3-none-any.whl\n")


def test_circular_requirements(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("-r a.txt\nsix\n")
    dependencies = read(tmp_path, "a.txt", "-r b.txt\nnumpy\n")
    assert [package.name for package in dependencies.pip] == ["six", "numpy"]


@pytest.mark.parametrize(
    ("text", "name", "channel", "version"),
    [
        ("numpy", "numpy", None, ""),
        ("NumPy 1.13", "numpy", None, "1.13"),
        ("python=3.6=h123_0", "python", None, "=3.6=h123_0"),
        ("conda-forge::python[version='>=3.6,<4']", "python", "conda-forge", ">=3.6,<4"),
        ("https://c.example/linux-64/zlib-1.2-h1_0.conda", "zlib", None, ""),
    ],
)
def test_conda_entries(text: str, name: str, channel: str | None, version: str) -> None:
    entry = parse_conda_entry(text, "f", 1)
    assert (entry.name, entry.channel, entry.version, entry.text) == (name, channel, version, text)


@pytest.mark.parametrize(
    ("written", "pin"),
    [
        ("python=3.5.2", "3.5.2"),
        ("python==3.5.2", "3.5.2"),
        ("python 3.6", "3.6"),
        ("python=3.6=h1", "3.6"),
        ("python=3.6.*", "3.6.*"),
        ("python>=3.6,<3.9", ">=3.6,<3.9"),
        ("python", None),
    ],
)
def test_the_pin_of_python(tmp_path: Path, written: str, pin: str | None) -> None:
    assert read(tmp_path, "environment.yml", f"dependencies:\n- {written}\n").python == pin


@pytest.mark.parametrize(
    "text",
    [
        "numpy",
        "Numpy_X.y >= 1.0, <2",
        "a[Foo_x, bar]==1.0 ; python_version<'3.7' and sys_platform == \"linux\" or os_name!='nt'",
        "x==1.0.*",
        "x~=1.4.2",
        "x==2.1.0+cpu",
        "x<2,>=1,!=1.5",
        "x==1.0rc1",
        "x (>=1.0)",
        "x===1.0",
        "x ; (python_version<'3') or 'linux' in sys_platform",
        "x ; extra == 'a'",
        "x @ https://x.example/x-1.0-py3-none-any.whl",
    ],
)
def test_entries_are_read_as_pip_reads_them(text: str) -> None:
    parsed, expected = parse_requirement(text), Parsed(text)
    assert parsed.name == canonicalize_name(expected.name)
    assert (parsed.extras, parsed.specifier) == (tuple(sorted(expected.extras)), str(expected.specifier))
    assert (parsed.marker, parsed.url) == (str(expected.marker) if expected.marker else None, expected.url)


@pytest.mark.parametrize(
    "text", ["x~=1", "x>=1.*", "x>1+cpu", "x==1,,<2", "x[a,,b]", "x;", "x; nonsense", "x=1", "x y"]
)
def test_invalid_entries(text: str) -> None:
    with pytest.raises(InvalidRequirement):
        Parsed(text)
    with pytest.raises(InvalidRequirement):
        parse_requirement(text)


def test_an_entry_keeps_what_was_written(tmp_path: Path) -> None:
    line = Line("Torch==2.1.0+cpu ; python_version<'4' --hash=sha256:a", "f", 3)
    entry = parse_pip_entry(line, tmp_path, tmp_path)
    assert isinstance(entry, PipLine)
    assert (entry.text, entry.line, entry.name, entry.hashes) == (line.text, 3, "torch", ("sha256:a",))


# -- files of the original -----------------------------------------------------------------------------

THEN = {
    "template of 2017": """\
# Conda environment for runs in Docker, on virtual machines and on clusters.
# Details: https://conda.example/envs.html#create-environment-file-by-hand

name: project_environment
dependencies:
  # The version of Python.
  - python=3.5.2
  # ipykernel is needed by notebooks.
  - ipykernel=4.6.1
  - patsy
  - scikit-learn

  - pip:
    - notebook
    # What every run needs.
    - --index-url https://index.example/python-repository/preview
    - --extra-index-url https://other.example/simple
    - azureml-requirements
    # An API with an early version, and two spaces behind it.
    - azure-ml-api-sdk==0.1.0a10 \x20
""",
    "reference page": """\
name: project_environment
dependencies:
  # Python version
  - python=3.5.2

  # some conda packages
  - scikit-learn
  - cryptography

  # use pip to install some more packages
  - pip:
     # a package of the index
     - azure-storage

     # a package at an address
     - https://cntk.ai/PythonWheel/CPU-Only/cntk-2.1-cp35-cp35m-win_amd64.whl

     # a wheel of the project
     - wheels\\my_private_python_pkg-1.0-py3-none-any.whl
""",
    "template with a version": """\
# Version of this file's structure. Do not remove.
# [AzureMlVersion] = 2

name: project_environment
dependencies:
  - python=3.5.2
  - ipykernel=4.6.1

  - pip:
    - --extra-index-url=https://index.example/simple
    - azureml-requirements
""",
    "second file for GPUs": """\
name: sentiment-gpu-project
channels:
  - defaults
  - anaconda
dependencies:
  - python=3.5.2
  - tensorflow-gpu=1.4.1
  - keras=2.1.5
  - pip:
    - keras==2.1.4
    - https://cntk.ai/PythonWheel/GPU-1bit-SGD/cntk-2.1-cp35-cp35m-linux_x86_64.whl
""",
    "entries at the margin, channels last": """\
name: project_environment
dependencies:
- python=3.6.2
- pip:
  - inference-schema[numpy-support]
  - azureml-defaults~=1.27.0
  - h5py<3.0.0
- numpy
channels:
- anaconda
- conda-forge
""",
    "pip with nothing below it": "name: project_environment\ndependencies:\n  - python=3.5.2\n  - pip:\n",
    "pip as a package and as a list": "dependencies:\n  - python=3.5.2\n  - pip\n  - pip:\n    - six\n",
    "nothing but a name": "name: project_environment\n",
    "no dependencies": "name: project_environment\ndependencies:\n",
    "lines that end as on Windows": "name: e\r\ndependencies:\r\n  - python=3.5.2\r\n  - pip:\r\n    - six\r\n",
    "lines of spaces": "dependencies:\n  - python=3.5.2\n  \n  - pip:\n     # why\n     - six\n     \n     - numpy\n",
    "a mark at its start": "\ufeffname: project_environment\ndependencies: [python=3.5.2, {pip: [six]}]\n",
    "spaces around the sign": "dependencies:\n  - python = 3.5.2\n  - numpy >= 1.11\n  - scipy ==0.19.1\n",
    "a build": "dependencies:\n  - python=3.5.2=0\n  - mkl=2017.0.3=0\n  - numpy 1.13.1 py35_0\n",
    "a prefix of conda env export": "name: e\ndependencies:\n  - python=3.5.2=0\nprefix: C:\\\\Anaconda\\\\envs\\\\e\n",
}


@pytest.mark.parametrize("name", THEN)
def test_files_of_users(tmp_path: Path, name: str) -> None:
    dependencies = read(tmp_path, "aml_config/conda_dependencies.yml", THEN[name])
    assert dependencies.python in (None, "3.5.2", "3.6.2")
    assert [package.line for package in dependencies.conda] == sorted(package.line for package in dependencies.conda)
    options = ["--index-url", "--extra-index-url"] if name == "template of 2017" else []
    assert [package.name for package in dependencies.options] == (
        ["--extra-index-url"] if "version" in name else options
    )


def test_dependencies_of_the_reference_page(tmp_path: Path) -> None:
    dependencies = read(tmp_path, "conda_dependencies.yml", THEN["reference page"])
    assert [(package.name, package.path) for package in dependencies.pip] == [
        ("azure-storage", None),
        ("cntk", None),
        ("my-private-python-pkg", "wheels/my_private_python_pkg-1.0-py3-none-any.whl"),
    ]
    dependencies = read(tmp_path, "conda_dependencies.yml", THEN["template of 2017"])
    assert [(package.name, package.specifier) for package in dependencies.pip] == [
        ("notebook", ""),
        ("azureml-requirements", ""),
        ("azure-ml-api-sdk", "==0.1.0a10"),
    ]
    dependencies = read(tmp_path, "conda_dependencies.yml", THEN["a build"])
    assert [(package.name, package.version) for package in dependencies.conda] == [
        ("python", "=3.5.2=0"),
        ("mkl", "=2017.0.3=0"),
        ("numpy", "1.13.1 py35_0"),
    ]
    dependencies = read(tmp_path, "conda_dependencies.yml", THEN["spaces around the sign"])
    assert dependencies.python == "3.5.2"


def test_wheel_on_the_disk_of_the_author(tmp_path: Path) -> None:
    text = THEN["reference page"].replace("wheels\\my", "C:\\temp\\my")
    with pytest.raises(ConfigError, match="is outside the project") as failed:
        read(tmp_path, "conda_dependencies.yml", text)
    assert failed.value.line == 19 and "copy it into the project" in str(failed.value.hint)


@pytest.mark.parametrize("entry", ["a{}b", "a{}# b", "-a{}x", "--find-links{}x\\ny"])
def test_long_line_of_blanks_is_fast(tmp_path: Path, entry: str) -> None:
    """Parsing takes linear time. With quadratic time, this number of blanks would take minutes."""
    blanks = " " * 300_000
    text = 'dependencies:\n  - pip:\n    - "' + entry.format(blanks) + '"\n'
    with pytest.raises(ConfigError, match="300,0.. characters"):
        read(tmp_path, "conda_dependencies.yml", text)
    (tmp_path / "requirements.txt").write_text(f"six{blanks}# comment\n#{blanks}x\n{blanks}\n")
    assert [line.text for line in read_dependencies(tmp_path / "requirements.txt", tmp_path).pip] == ["six"]
