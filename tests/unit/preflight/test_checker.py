"""Preflight of whole projects: the files that it reads, files from the how-tos of Azure ML Workbench, and fixes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mlworkbench.config.keys import DEFAULT_IMAGE
from mlworkbench.config.project_folder import Project
from mlworkbench.hosts.host_facts import Facts, Nvidia, System
from mlworkbench.model import Compute, Entry, RunConfig
from mlworkbench.preflight.checker import preflight
from mlworkbench.preflight.finding import Finding, Replacement
from mlworkbench.preflight.fixes import apply_fixes

GPU = Compute("my_dsvm", "remotedocker", address="box", base_docker_image="debian:12", nvidia_docker=True)
RUN = RunConfig("my_dsvm", "my_dsvm", framework="Python")
FILE = "aml_config/conda_dependencies.yml"
TRAIN = Entry("script", "train.py")
K80 = Facts(os=System(system="Linux", arch="x86_64"), nvidia=Nvidia(driver="470.57.02"))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    (tmp_path / "aml_config").mkdir()
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path, "1b4e28ba-2fa1-4d2b-883f-0016d3cca427", "demo")


def write(project: Project, text: str, name: str = FILE) -> Path:
    path = project.root / name
    path.write_bytes(text.encode())
    return path


def check(project: Project, compute: Compute = GPU, facts: Facts | None = None) -> list[Finding]:
    return preflight(project, RUN, compute, facts, TRAIN)


def fix_all(project: Project, facts: Facts | None = None) -> list[Finding]:
    """Apply fixes until none is left. Return the remaining findings."""
    for _ in range(10):
        if not apply_fixes(check(project, facts=facts), project.root):
            break
    return check(project, facts=facts)


# -- the original's how-tos --------------------------------------------------------------------------

WHEEL = "https://cntk.ai/PythonWheel/{build}/cntk-2.1-cp35-cp35m-{platform}.whl"
SEEDS = [
    ("de-de", "win_amd64"),  # a mistake in the how-to: its comment names the Linux build
    ("cs-CZ", "linux_x86_64"),
    ("nl-NL", "linux_x86_64"),
    ("pt-BR", "linux_x86_64"),
    ("es-ES", "linux_x86_64"),
]
CNTK = """\
name: project_environment
dependencies:
  - python=3.5.2
  - pip:
    # use the Linux build of CNTK with {build} support
    - {wheel}  # CNTK 2.1
"""
HEALED = """\
name: project_environment
dependencies:
  - python=3.6
  - pip:
    # use the Linux build of CNTK with {build} support
    - cntk-gpu==2.7  # CNTK 2.1
"""


@pytest.mark.parametrize("build", ["GPU", "GPU-1bit-SGD"])
@pytest.mark.parametrize(("locale", "platform"), SEEDS)
def test_cntk_how_to_of_the_original(project: Project, locale: str, platform: str, build: str) -> None:
    path = write(project, CNTK.format(build=build, wheel=WHEEL.format(build=build, platform=platform)))
    findings = check(project)
    rules = [(finding.rule, finding.line) for finding in findings]
    windows = [("wheel", 6)] if locale == "de-de" else []
    assert rules == [("python", 3), ("dead-address", 6), *windows]
    assert all(finding.file == FILE and finding.severity == "error" for finding in findings)
    assert fix_all(project) == []
    assert path.read_text() == HEALED.format(build=build)


@pytest.mark.parametrize("locale", [locale for locale, _ in SEEDS])
def test_tensorflow_how_to_of_the_original(project: Project, locale: str) -> None:
    text = "name: project_environment\ndependencies:\n  - python=3.5.2\n  - pip:\n    # GPU\n    - tensorflow-gpu\n"
    path = write(project, text)
    assert [(finding.rule, finding.line) for finding in check(project)] == [("python", 3), ("retired", 6)]
    assert fix_all(project) == []
    # The fix selects the last version for the new Python, not for the old one.
    assert path.read_text() == text.replace("3.5.2", "3.6").replace("tensorflow-gpu", "tensorflow-gpu==2.6.2")
    write(project, text.replace("python=3.5.2", "python=3.11"))
    assert fix_all(project) == []
    assert "    # GPU\n    - tensorflow[and-cuda]\n" in path.read_text()


def test_replacements_match_the_new_python(project: Project) -> None:
    """The finding about the wheel has no fix of its own: the new Python version resolves it."""
    wheel = "https://x.example/pandas-1.0.0-cp36-cp36m-manylinux1_x86_64.whl"
    write(project, f"dependencies:\n- python=3.5\n- pip:\n  - tensorflow-gpu\n  - {wheel}\n")
    findings = {(finding.rule, finding.line): finding for finding in check(project)}
    assert list(findings) == [("python", 2), ("retired", 4), ("wheel-python", 5)]
    retired = findings["retired", 4]
    assert retired.fix and retired.fix.new == "tensorflow-gpu==2.6.2"
    assert "the last version for Python 3.6" in retired.hint
    assert findings["wheel-python", 5].fix is None, "once Python is 3.6 the wheel fits"
    assert fix_all(project) == []
    text = (project.root / FILE).read_text()
    assert text == f"dependencies:\n- python=3.6\n- pip:\n  - tensorflow-gpu==2.6.2\n  - {wheel}\n"


def test_templates_of_the_original_after_fixes(project: Project) -> None:
    text = (
        "dependencies:\n  - python=3.6\n  - scikit-learn  # kept\n  - pip:\n"
        "    # The API for Azure Machine Learning Model Management Service.\n"
        "    - --index-url https://azuremldownloads.azureedge.net/python-repository/preview\n"
        "    - --extra-index-url https://index.example/simple\n"
        "    - azureml-requirements\n"
    )
    path = write(project, text)
    assert fix_all(project) == []
    gone = [line for line in text.splitlines(keepends=True) if "azureedge" in line or "azureml-requirements" in line]
    assert path.read_text() == text.replace(gone[0], "").replace(gone[1], "")


# -- files that are read -----------------------------------------------------------------------------


def test_only_managed_environments_are_checked(project: Project) -> None:
    write(project, "dependencies:\n- pip: [sklearn]\n")
    unmanaged = Compute("own", "docker", user_managed_environment=True)
    local = Compute("local", "local")
    assert [finding.rule for finding in check(project)] == ["retired"]
    assert check(project, unmanaged) == check(project, local) == []
    assert [finding.rule for finding in preflight(project, RUN, local, None, None, managed=True)] == ["retired"]
    assert preflight(project, RUN, GPU, None, None, managed=False) == []


def test_script_is_checked_on_every_target(project: Project) -> None:
    write(project, "print 'hello'\n", "train.py")
    (finding,) = check(project, Compute("local", "local"))
    assert str(finding) == "train.py:1: the print statement is Python 2 syntax, but the script runs in Python 3"
    (project.root / "pkg").mkdir()
    write(project, "exec x\n", "pkg/__main__.py")
    (finding,) = preflight(project, RUN, Compute("local", "local"), None, Entry("module", "pkg"))
    assert finding.file == "pkg/__main__.py"
    assert preflight(project, RUN, GPU, None, Entry("command", "train.py")) == []


def test_unusual_scripts_are_skipped(project: Project) -> None:
    (project.root / "train.py").write_bytes(b"print '\xe4'\n")
    assert check(project) == []
    (project.root / "train.py").write_bytes(b"x = 1\0\n")
    assert check(project) == []
    (project.root / "train.py").write_text("(" * 5000 + "\n")
    assert check(project) == []


def test_errors_first_including_unreadable_files(project: Project) -> None:
    write(project, "dependencies:\n- pip:\n  - tensorflow\n  - sklearn\n")
    assert [(item.severity, item.line) for item in check(project)] == [("error", 4), ("warning", 3)]
    write(project, "dependencies:\n- pip:\n  - -e .\n")
    (finding,) = check(project)
    assert (finding.severity, finding.file, finding.line) == ("error", FILE, 3)
    assert finding.message.startswith("-e .: editable installs are not supported")


def test_missing_wheel(project: Project) -> None:
    write(project, "dependencies:\n- pip:\n  - wheels/own-1.0-py3-none-any.whl\n")
    (finding,) = check(project)
    assert (finding.rule, finding.line, finding.message) == (
        "local-file",
        3,
        "wheels/own-1.0-py3-none-any.whl is not in the project",
    )


# -- fixes -------------------------------------------------------------------------------------------


def test_fixes_change_nothing_else(project: Project) -> None:
    text = (
        "# first\r\nname: e\r\ndependencies: # all\r\n  -   python=3.6    # pin\r\n\r\n  - pip:\r\n"
        "    - 'sklearn'   # quoted\r\n    - \"pytorch\" # too\r\n    # between\r\n"
        "    - torchvision==0.16.0+cpu\r\n    - numpy # ümlaut\r\n# last"
    )
    path = write(project, "\ufeff" + text)
    assert fix_all(project) == []
    expected = text.replace("'sklearn'", "'scikit-learn'").replace('"pytorch"', '"torch"').replace("0+cpu", "0")
    assert path.read_bytes() == ("\ufeff" + expected).encode()


def test_flow_lists_get_quotes_if_needed(project: Project) -> None:
    path = write(project, "dependencies: [python=3.11, {pip: [six, tensorflow-gpu]}] # all\n")
    assert fix_all(project) == []
    assert path.read_text() == 'dependencies: [python=3.11, {pip: [six, "tensorflow[and-cuda]"]}] # all\n'


def test_unsafe_removal_is_skipped(project: Project) -> None:
    text = "dependencies: [{pip: [six, azureml-requirements]}]\n"
    path = write(project, text)
    assert [finding.rule for finding in fix_all(project)] == ["retired"]
    assert path.read_text() == text


def test_requirements_and_scripts(project: Project) -> None:
    run = RunConfig("r", "my_dsvm", conda_dependencies_file="requirements.txt")
    path = write(
        project, "six\nsklearn>=0.0  # why\nsix; sys_platform == 'win32'\npytorch --hash=sha256:a\n", "requirements.txt"
    )
    script = write(project, "import sys\r\nprint 'a' # say\r\nprint >>sys.stderr, 'b'\r\n", "train.py")
    findings = preflight(project, run, GPU, None, TRAIN)
    assert len(apply_fixes(findings, project.root)) == 3
    # The hash belongs to the old package, so there is no automatic fix.
    assert path.read_text() == "six\nscikit-learn  # why\nsix; sys_platform == 'win32'\npytorch --hash=sha256:a\n"
    assert script.read_bytes() == b"import sys\r\nprint('a') # say\r\nprint('b', file=sys.stderr)\r\n"
    assert [finding.fix for finding in preflight(project, run, GPU, None, TRAIN)] == [None]


def test_a_link_out_of_the_project_is_not_followed(project: Project, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "train.py"
    outside.write_text("print 1\n")
    (project.root / "train.py").symlink_to(outside)
    findings = check(project)
    assert findings and apply_fixes(findings, project.root) == []
    assert outside.read_text() == "print 1\n"


def test_changed_file_is_not_fixed(project: Project) -> None:
    path = write(project, "dependencies:\n- pip:\n  - sklearn\n")
    findings = check(project)
    write(project, "dependencies:\n- pip:\n  - six\n")
    assert apply_fixes(findings, project.root) == []
    assert path.read_text() == "dependencies:\n- pip:\n  - six\n"


def test_first_of_two_fixes_is_applied(project: Project) -> None:
    path = write(project, "dependencies:\n- pip:\n  - six\n")
    fixes = [Finding("a", "error", FILE, 3, "", "", Replacement(FILE, 3, "six", new)) for new in ("one", "two")]
    assert apply_fixes(fixes, project.root) == fixes[:1]
    assert path.read_text() == "dependencies:\n- pip:\n  - one\n"


def test_removing_the_last_entry_of_a_list(project: Project) -> None:
    path = write(project, "dependencies:\n- numpy\n- pip:\n  # why\n  - azureml-requirements\n")
    assert fix_all(project) == []
    assert path.read_text() == "dependencies:\n- numpy\n- pip:\n  # why\n"


def test_driver_of_the_target_is_used(project: Project) -> None:
    path = write(project, "dependencies:\n- pip:\n  - torch # newest\n")
    assert check(project) == []
    assert fix_all(project, K80) == []
    assert path.read_text() == "dependencies:\n- pip:\n  - torch<2.1 # newest\n"


IMAGE = "type: remotedocker\nbaseDockerImage: {}  # as the administrator said\nnvidiaDocker: true\naddress: box\n"


def test_image_is_fixed_in_place(project: Project) -> None:
    newer, older = "nvidia/cuda:13.0.1-runtime-ubuntu24.04", "nvidia/cuda:12.2.2-runtime-ubuntu22.04"
    path = write(project, IMAGE.format(newer), "aml_config/my_dsvm.compute")
    compute = replace(GPU, base_docker_image=newer)
    facts = {"nvidia": {"driver": "535.183.01"}}
    (finding,) = preflight(project, RUN, compute, facts, None)
    assert (finding.rule, finding.severity, finding.file, finding.line) == (
        "cuda-image",
        "warning",
        "aml_config/my_dsvm.compute",
        2,
    )
    assert apply_fixes([finding], project.root) == [finding]
    assert path.read_text() == IMAGE.format(older)


def test_image_of_a_run_configuration(project: Project) -> None:
    image = "nvidia/cuda:13.0.1-runtime-ubuntu24.04"
    write(project, IMAGE.format("debian:12"), "aml_config/my_dsvm.compute")
    write(
        project, f"target: my_dsvm\nenvironment:\n  docker:\n    baseImage: {image}\n", "aml_config/my_dsvm.runconfig"
    )
    compute = replace(GPU, base_docker_image=image)
    (finding,) = preflight(project, RUN, compute, {"nvidia": {"driver": "535.183.01"}}, None)
    assert (finding.file, finding.line) == ("aml_config/my_dsvm.runconfig", 4)


@pytest.mark.parametrize("tag", ["", ":plus-0.7.91", ":plus-gpu-0.9.9", ":latest"])
def test_withdrawn_images(project: Project, tag: str) -> None:
    image = "microsoft/mmlspark" + tag
    path = write(project, IMAGE.format(image), "aml_config/my_dsvm.compute")
    compute = replace(GPU, base_docker_image=image)
    (finding,) = preflight(project, RUN, compute, None, None)
    assert (finding.rule, finding.severity, finding.file, finding.line) == (
        "image",
        "warning",
        "aml_config/my_dsvm.compute",
        2,
    )
    assert image in finding.message and DEFAULT_IMAGE in finding.hint
    assert apply_fixes([finding], project.root) == [finding]
    assert path.read_text() == IMAGE.format(DEFAULT_IMAGE)


@pytest.mark.parametrize(
    "image", ["registry.example/microsoft/mmlspark:plus-0.9.9", "microsoft/mmlspark-own", "microsoft/x"]
)
def test_copies_of_withdrawn_images(project: Project, image: str) -> None:
    write(project, IMAGE.format(image), "aml_config/my_dsvm.compute")
    assert preflight(project, RUN, replace(GPU, base_docker_image=image), None, None) == []


def test_unused_image_is_not_checked(project: Project) -> None:
    assert preflight(project, RUN, Compute("l", "local", base_docker_image="microsoft/mmlspark"), None, None) == []


def test_no_expensive_imports_without_findings(project: Project) -> None:
    """A submit waits for the check, so it must not import unused packages."""
    write(
        project, "dependencies:\n- python=3.11\n- numpy\n- pip:\n  - torch\n  - pandas>=2 ; python_version < '3.13'\n"
    )
    write(project, "print('hello')\n", "train.py")
    code = (
        "import sys\nfrom pathlib import Path\nfrom mlworkbench.config.project_folder import Project\n"
        "from mlworkbench.model import Compute, Entry, RunConfig\nfrom mlworkbench.preflight.checker import preflight\n"
        "project = Project(Path.cwd(), '1b4e28ba-2fa1-4d2b-883f-0016d3cca427', 'demo')\n"
        "compute = Compute('gpu', 'docker', base_docker_image='debian:12', nvidia_docker=True)\n"
        "facts = {'os': {'system': 'Linux', 'arch': 'x86_64'}, 'nvidia': {'driver': '580.95.05'}}\n"
        "assert preflight(project, RunConfig('gpu', 'gpu'), compute, facts, Entry('script', 'train.py')) == []\n"
        "names = ('packaging', 'mlworkbench.hosts', 'mlworkbench.preflight.python2_rules', 'rattler')\n"
        "print([name for name in names if name in sys.modules])\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=project.root, capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("[]\n", "")


# -- uv and pixi -------------------------------------------------------------------------------------

PYPROJECT = """\
[project]
name = "demo"  # ours
dependencies = [
    "sklearn ; python_version < '4'",  # why
    'pytorch ; python_version < "4"',
    "tensorflow-cpu==2.15.0",
]
"""


def test_pyproject_is_fixed(project: Project) -> None:
    run = RunConfig("r", "my_dsvm", conda_dependencies_file="pyproject.toml")
    path = write(project, PYPROJECT, "pyproject.toml")
    findings = preflight(project, run, GPU, None, None)
    assert [(finding.rule, finding.line) for finding in findings] == [("retired", 4), ("retired", 5), ("cpu-only", 6)]
    assert len(apply_fixes(findings, project.root)) == 3
    expected = PYPROJECT.replace("sklearn", "scikit-learn").replace("pytorch", "torch")
    assert path.read_text() == expected.replace("tensorflow-cpu==2.15.0", "tensorflow[and-cuda]==2.15.1")


def test_lock_findings_are_warnings(project: Project) -> None:
    write(project, PYPROJECT, "pyproject.toml")
    lock = "version = 1\n"
    for name, version in (
        ("torch", "2.12.1"),
        ("nvidia-cublas", "13.0.1"),
        ("nvidia-nccl-cu12", "2.1"),
        ("pywin32", "1"),
    ):
        source = 'source = { registry = "https://index.example/simple" }\n'
        lock += f'[[package]]\nname = "{name}"\nversion = "{version}"\n{source}'
    path = write(project, lock, "uv.lock")
    run = RunConfig("r", "my_dsvm", conda_dependencies_file="uv.lock")
    (finding,) = preflight(project, run, GPU, K80, None)
    assert (finding.rule, finding.severity, finding.file, finding.fix) == ("cuda", "warning", "uv.lock", None)
    assert finding.line == 3
    assert finding.hint.endswith("update the lock file")
    assert apply_fixes([finding], project.root) == []
    assert path.read_text() == lock
