"""Each preflight rule on realistic lines: file, line, reason, and the exact replacement."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from mlworkbench.environments.dependencies import Dependencies, Line, Option, PipLine
from mlworkbench.environments.dependency_files import read_dependencies
from mlworkbench.environments.interpreter_choice import MIN_UV_PYTHON
from mlworkbench.hosts.host_facts import Facts, Nvidia, System
from mlworkbench.model import Compute
from mlworkbench.preflight.checker import examine
from mlworkbench.preflight.dependency_rules import RULES, may_contain_python2
from mlworkbench.preflight.finding import CheckContext, Finding, Script
from mlworkbench.preflight.pip_entries import admits, is_older, pinned_version
from mlworkbench.preflight.rule_data import CUDA_BUILDS, PIP_FROM
from mlworkbench.remote.shared.cuda_drivers import RELEASES, newest_cuda, oldest_driver

GPU = Compute("gpu", "docker", base_docker_image="debian:12", nvidia_docker=True)
CPU = replace(GPU, name="cpu", nvidia_docker=False)
LAPTOP = Compute("local", "local")


def facts(driver: str | None = None, arch: str = "x86_64", system: str = "Linux") -> Facts:
    return Facts(os=System(system=system, arch=arch), nvidia=Nvidia(driver=driver))


def make_context(
    tmp_path: Path, dependencies: str, compute: Compute = GPU, facts_of_target: Facts | None = None
) -> CheckContext:
    path = tmp_path / "conda_dependencies.yml"
    path.write_text(f"dependencies:\n{dependencies}\n")
    return CheckContext(compute, read_dependencies(path, tmp_path), facts_of_target)


@dataclass(frozen=True)
class Row:
    rule: str
    line: int
    why: str
    new: str | None | bool  # new text; None: remove the line; False: no fix
    severity: str = "error"


def summarize(findings: list[Finding]) -> list[tuple[str, int | None, str, object]]:
    return [
        (finding.rule, finding.line, finding.severity, finding.fix.new if finding.fix else False)
        for finding in findings
    ]


def check(findings: list[Finding], rows: list[Row]) -> None:
    assert summarize(findings) == [(row.rule, row.line, row.severity, row.new) for row in rows]
    for finding, row in zip(findings, rows, strict=True):
        assert row.why in finding.message
        assert finding.hint
        assert finding.file.endswith("conda_dependencies.yml")


RETIRED = [
    ("- pip: [tensorflow-gpu]", "tensorflow[and-cuda]"),
    ("- pip:\n  - tensorflow_gpu>=1.0", "tensorflow[and-cuda]"),
    ("- pip:\n  - tensorflow-gpu==2.12.0", "tensorflow[and-cuda]"),
    ("- python=3.11\n- pip:\n  - tensorflow-gpu", "tensorflow[and-cuda]"),
    ("- python=3.6\n- pip:\n  - tensorflow-gpu", "tensorflow-gpu==2.6.2"),
    ("- python=3.8\n- pip:\n  - tensorflow-gpu>2", "tensorflow-gpu==2.11.0"),
    ("- pip:\n  - tf-nightly-gpu", "tf-nightly[and-cuda]"),
    ("- pip:\n  - sklearn", "scikit-learn"),
    ("- pip:\n  - pytorch>=1", "torch"),
    ("- pip:\n  - azureml-requirements", None),
    ("- pip:\n  - 'tensorflow-gpu ; python_version > \"3.8\"'", 'tensorflow[and-cuda] ; python_version > "3.8"'),
]


@pytest.mark.parametrize("compute", [GPU, CPU])
@pytest.mark.parametrize(("text", "new"), RETIRED)
def test_retired(tmp_path: Path, text: str, new: str | None, compute: Compute) -> None:
    check(
        examine(make_context(tmp_path, text, compute)),
        [Row("retired", text.count("\n") + 2, "install", new)]
        if new
        else [Row("retired", 3, "no longer available", None)],
    )


FINE = [
    "- tensorflow-gpu",  # conda-forge has a different package of this name
    "- conda-forge::tensorflow-gpu=2.15",
    "- pip: [tensorflow-gpu==2.11.0]",
    "- pip: ['tensorflow-gpu>=1.4,<1.5']",
    "- pip: [tensorflow-gpu~=1.4.0]",
    "- pip: [tensorflow-gpu-estimator]",
    "- pip: ['tensorflow-gpu ; sys_platform == \"win32\"']",
    "- scikit-learn\n- pytorch",
    "- pip: ['tensorflow[and-cuda]', torch, 'jax[cuda12]', cntk-gpu==2.7]",
    "- pip: [jax, jax-cuda12-plugin]",
    "- pip: ['jax[tpu]']",
    "- pip: [torch==2.1.0+cu121]",
    "- pip: [tensorflow==2.9.0]",
    "- python=3.5.2\n- scikit-learn",
    "- python=2.7",
    "- python>=3.4",
    "- python=3.12\n- pip: [numpy-1.26-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl]",
    "- python=3.12\n- pip: ['https://x.example/own-1.0-cp38-abi3-manylinux2014_x86_64.whl']",
    "- python=3.12\n- pip: ['https://x.example/own-1.0-py2.py3-none-any.whl']",
    "- pip: ['https://x.example/own-1.0-cp35-cp35m-win_amd64.whl ; sys_platform == \"win32\"']",
]


@pytest.mark.parametrize("text", FINE)
def test_valid_packages(tmp_path: Path, text: str) -> None:
    assert examine(make_context(tmp_path, text, facts_of_target=facts("580.95.05"))) == []


CNTK = "https://cntk.ai/PythonWheel"
DEAD = [
    (f"{CNTK}/GPU/cntk-2.1-cp35-cp35m-linux_x86_64.whl", "cntk-gpu==2.7"),
    (f"{CNTK}/GPU-1bit-SGD/cntk-2.1-cp35-cp35m-linux_x86_64.whl", "cntk-gpu==2.7"),
    (f"{CNTK}/GPU/cntk_gpu-2.6-cp36-cp36m-linux_x86_64.whl", "cntk-gpu==2.6"),
    (f"{CNTK}/CPU-Only/cntk-2.5.1-cp36-cp36m-linux_x86_64.whl", "cntk==2.5.1"),
]


@pytest.mark.parametrize(("address", "new"), DEAD)
def test_dead_addresses_of_cntk(tmp_path: Path, address: str, new: str) -> None:
    pin = "3.6" if "cp36" in address else "3.5"
    findings = examine(make_context(tmp_path, f"- python={pin}\n- pip:\n  - {address}", CPU))
    check(findings[:1], [Row("dead-address", 4, "cntk.ai no longer hosts", new)])
    assert "package index" in findings[0].hint


def test_the_index_of_the_original_is_gone(tmp_path: Path) -> None:
    text = "- pip:\n  - --index-url https://azuremldownloads.azureedge.net/python-repository/preview\n  - six"
    check(
        examine(make_context(tmp_path, text)),
        [Row("dead-address", 3, "the package index of Azure ML Workbench no longer exists", None)],
    )


def test_similar_hosts_are_not_dead(tmp_path: Path) -> None:
    text = "- python=3.6\n- pip:\n  - https://cntk.ai.example/cntk-2.7-cp36-cp36m-linux_x86_64.whl"
    assert examine(make_context(tmp_path, text, CPU)) == []


@pytest.mark.parametrize(
    ("text", "line", "new"),
    [
        ("- python=3.11\n- pip: [cntk==2.7]", 2, "python=3.6"),
        ("- python=3.6\n- pip: [cntk==2.2]", 3, "cntk==2.7"),
    ],
)
def test_cntk_versions_that_do_not_exist(tmp_path: Path, text: str, line: int, new: str) -> None:
    check(examine(make_context(tmp_path, text, CPU)), [Row("cntk", line, "cntk", new)])


WHEELS = [
    ("https://x.example/own-1.0-cp36-cp36m-win_amd64.whl", "a wheel for win_amd64 cannot be installed on Linux", False),
    ("https://x.example/own-1.0-cp36-none-win32.whl", "win32 cannot be installed on Linux", False),
    ("https://x.example/own-1-cp36-cp36m-macosx_10_9_x86_64.whl", "macosx_10_9_x86_64 cannot be", False),
    ("https://x.example/own-1-cp36-cp36m-manylinux2014_aarch64.whl", "on Linux on x86_64", False),
    ("https://x.example/own-1-cp36-cp36m-musllinux_1_1_x86_64.whl", "on Linux on x86_64", False),
    ("https://x.example/numpy-1.19.5-cp36-cp36m-win_amd64.whl", "win_amd64", "numpy==1.19.5"),
]


@pytest.mark.parametrize(("address", "why", "new"), WHEELS)
def test_wheels_for_other_machines(tmp_path: Path, address: str, why: str, new: str | bool) -> None:
    text = f"- python=3.6\n- pip:\n  - {address}"
    check(examine(make_context(tmp_path, text, CPU)), [Row("wheel", 4, why, new)])


def test_wheels_for_the_target(tmp_path: Path) -> None:
    text = "- python=3.6\n- pip: ['https://x.example/own-1-cp36-cp36m-manylinux2014_aarch64.whl']"
    assert examine(make_context(tmp_path, text, CPU, facts(arch="arm64"))) == []
    windows = "- python=3.6\n- pip: ['https://x.example/own-1-cp36-cp36m-win_amd64.whl']"
    assert examine(make_context(tmp_path, windows, LAPTOP, facts(system="Windows"))) == []


def test_a_wheel_for_another_python(tmp_path: Path) -> None:
    wheel = "https://x.example/own-1-cp35-cp35m-linux_x86_64.whl"
    findings = examine(make_context(tmp_path, f"- python=3.6\n- pip:\n  - {wheel}", CPU))
    check(findings, [Row("wheel-python", 4, "a wheel for cp35 cannot be installed for Python 3.6", False)])
    assert "cp36" in findings[0].hint
    findings = examine(make_context(tmp_path, f"- pip:\n  - {wheel}", CPU))
    check(findings, [Row("wheel-python", 3, "no Python is pinned", False, "warning")])
    assert "python=3.5" in findings[0].hint
    address = "https://x.example/torch-1.0.0-cp35-cp35m-linux_x86_64.whl"
    findings = examine(make_context(tmp_path, f"- python=3.6\n- pip:\n  - {address}", CPU))
    check(findings, [Row("wheel-python", 4, "cp35", "torch==1.0.0")])


CPU_ONLY = [
    ("- pip:\n  - tensorflow-cpu", "tensorflow[and-cuda]"),
    ("- pip:\n  - tensorflow-cpu==2.15.0", "tensorflow[and-cuda]==2.15.1"),  # no index has the dependencies of 2.15.0
    ("- pip:\n  - tensorflow-cpu==2.14.1", "tensorflow==2.14.1"),
    ("- pip:\n  - tensorflow-cpu==2.19.0", "tensorflow[and-cuda]==2.19.0"),
    ("- pip:\n  - tensorflow-cpu>=2.16", "tensorflow[and-cuda]>=2.16"),
    ("- pip:\n  - tensorflow-cpu==2.9.1", "tensorflow==2.9.1"),
    ("- pip:\n  - tensorflow-cpu==1.14.0", "tensorflow-gpu==1.14.0"),
    ("- pip:\n  - tensorflow==1.4.0", "tensorflow-gpu==1.4.0"),
    ("- pip:\n  - cntk==2.7", "cntk-gpu==2.7"),
    ("- pip:\n  - torch==2.1.0+cpu", "torch==2.1.0"),
    ("- pip:\n  - https://x.example/cpu/torch-2.1.0%2Bcpu-cp311-cp311-linux_x86_64.whl", "torch==2.1.0"),
    ("- pip:\n  - torchvision==0.16.0+cpu", "torchvision==0.16.0"),
    ("- pip:\n  - jax", "jax[cuda12]"),
    ("- pip:\n  - jax[cpu]==0.4.30", "jax[cuda12]==0.4.30"),
    ("- pip:\n  - six\n- cpuonly", None),
    ("- pip:\n  - six\n- pytorch-cpu=2.1", "pytorch-gpu=2.1"),
    ("- pip:\n  - six\n- tensorflow-cpu", "tensorflow-gpu"),
    ("- pip:\n  - six\n- pytorch=2.1=cpu_generic*", "pytorch=2.1=*cuda*"),
]


@pytest.mark.parametrize(("text", "new"), CPU_ONLY)
def test_builds_without_gpu(tmp_path: Path, text: str, new: str | None) -> None:
    findings = [finding for finding in examine(make_context(tmp_path, text)) if finding.rule != "wheel-python"]
    check(findings, [Row("cpu-only", text.count("\n") + 2, "GPU", new)])
    assert "nvidiaDocker: false" in findings[0].hint
    assert [finding for finding in examine(make_context(tmp_path, text, CPU)) if finding.rule != "wheel-python"] == []


def test_machine_with_gpu_gets_warning(tmp_path: Path) -> None:
    remote = Compute("box", "remote", address="box")
    assert examine(make_context(tmp_path, "- pip: [tensorflow-cpu]", remote)) == []
    (finding,) = examine(make_context(tmp_path, "- pip: [tensorflow-cpu]", remote, facts("550.54.14")))
    assert (finding.rule, finding.severity) == ("cpu-only", "warning")
    assert "nvidiaDocker" not in finding.hint and "--gpus" not in finding.hint


def test_hint_for_gpus_on_remote_target(tmp_path: Path) -> None:
    """--gpus sets nvidiaDocker for a run. A target without containers ignores the key, so the hint must not name it."""
    remote = Compute("box", "remote", address="box", nvidia_docker=True)
    (finding,) = examine(make_context(tmp_path, "- pip: [tensorflow-cpu]", remote, facts("550.54.14")))
    assert (finding.rule, finding.severity) == ("cpu-only", "error")
    assert "nvidiaDocker" not in finding.hint and "omit --gpus if the script needs no GPU" in finding.hint


def test_warning_if_another_package_uses_the_gpu(tmp_path: Path) -> None:
    (finding,) = examine(make_context(tmp_path, "- pip:\n  - jax\n  - torch"))
    assert (finding.rule, finding.severity, finding.line) == ("cpu-only", "warning", 3)


def test_jax_gets_the_plugin_that_the_driver_runs(tmp_path: Path) -> None:
    (finding,) = examine(make_context(tmp_path, "- pip: [jax]", facts_of_target=facts("580.95.05")))
    assert finding.fix and finding.fix.new == "jax[cuda13]"


def test_an_index_without_cuda(tmp_path: Path) -> None:
    text = "- pip:\n  - --index-url https://x.example/whl/cpu\n  - torch"
    check(examine(make_context(tmp_path, text)), [Row("cpu-only", 3, "only CPU builds", None, "warning")])


def test_tensorflow_that_takes_cuda_from_the_image(tmp_path: Path) -> None:
    text = "- pip:\n  - tensorflow>=2.15"
    check(
        examine(make_context(tmp_path, text)),
        [Row("cuda-missing", 3, "and-cuda", "tensorflow[and-cuda]>=2.15", "warning")],
    )
    assert examine(make_context(tmp_path, text, replace(GPU, base_docker_image="nvidia/cuda:12.4.1-runtime"))) == []


TOO_NEW = [
    # driver, text, replacement
    ("535.104.05", "- pip:\n  - torch", "torch<2.11"),
    ("535.104.05", "- pip:\n  - torch>=2.4", "torch>=2.4,<2.11"),
    ("535.104.05", "- pip:\n  - torch>=2.12", "torch<2.11"),
    ("535.104.05", "- pip:\n  - torch==2.12.1", "torch>=2.8,<2.11"),
    ("535.104.05", "- pip:\n  - torch==2.9.1+cu130", "torch==2.9.1+cu126"),
    ("470.57.02", "- pip:\n  - torch==2.1.0+cu121", "torch==2.1.0+cu118"),
    ("470.57.02", "- pip:\n  - torch==2.3.0", "torch>=1.13,<2.1"),
    ("535.104.05", "- pip:\n  - jax[cuda13]", "jax[cuda12]"),
    ("470.57.02", "- pip:\n  - jax[cuda12]", False),
    ("470.57.02", "- pip:\n  - tensorflow[and-cuda]", False),
    ("535.104.05", "- pip:\n  - nvidia-cuda-runtime==13.0.96", False),
    ("470.57.02", "- pip:\n  - nvidia-cublas-cu12==12.4.5.8", False),
    ("470.57.02", "- pip:\n  - torch==2.7.1+cu128", "torch==2.7.1+cu118"),
    ("535.104.05", "- six\n- cuda-version>=13", "cuda-version=12"),
    ("470.57.02", "- six\n- cudatoolkit=12.1", "cudatoolkit=11"),
    ("418.67", "- six\n- cudatoolkit=10.2", "cudatoolkit=10.1"),
    ("470.57.02", "- pip:\n  - cupy-cuda12x", False),
    ("384.81", "- pip:\n  - tensorflow-gpu==1.13.1", "tensorflow-gpu>=1.5,<1.13"),
    ("535.104.05", "- six\n- cuda-version=13.0", "cuda-version=12"),
    ("470.57.02", "- six\n- pytorch-cuda=12.1", "pytorch-cuda=11.8"),
]


@pytest.mark.parametrize(("driver", "text", "new"), TOO_NEW)
def test_cuda_newer_than_the_driver(tmp_path: Path, driver: str, text: str, new: str | bool) -> None:
    findings = examine(make_context(tmp_path, text, facts_of_target=facts(driver)))
    check(findings, [Row("cuda", 3, f"the target has {driver}", new)])
    assert "needs driver" in findings[0].message
    assert [
        finding
        for finding in examine(make_context(tmp_path, text, facts_of_target=facts("595.10")))
        if finding.rule == "cuda"
    ] == []
    assert [
        finding for finding in examine(make_context(tmp_path, text)) if finding.rule == "cuda"
    ] == []  # unknown driver


def test_frozen_list_has_one_finding(tmp_path: Path) -> None:
    text = "- pip:\n  - torch==2.3.0\n  - nvidia-cudnn-cu12\n  - nvidia-cuda-runtime-cu12"
    assert [finding.line for finding in examine(make_context(tmp_path, text, facts_of_target=facts("470.57.02")))] == [
        3
    ]
    alone = "- pip:\n  - nvidia-cuda-runtime-cu12"
    check(
        examine(make_context(tmp_path, alone, facts_of_target=facts("470.57.02"))), [Row("cuda", 3, "CUDA 12", False)]
    )
    assert examine(make_context(tmp_path, "- pip:\n  - tensorflow\n  - nvidia-cudnn-cu12")) == []


def test_an_index_for_a_cuda_newer_than_the_driver(tmp_path: Path) -> None:
    text = "- pip:\n  - --extra-index-url https://x.example/whl/cu130\n  - torch==2.9.1+cu130"
    findings = examine(make_context(tmp_path, text, facts_of_target=facts("535.104.05")))
    assert sorted(str(finding.fix.new) for finding in findings if finding.fix) == [
        "--extra-index-url https://x.example/whl/cu126",
        "torch==2.9.1+cu126",
    ]


def test_pytorch_of_a_tagged_index_is_that_of_its_tag(tmp_path: Path) -> None:
    old = facts("535.104.05")
    text = "- pip:\n  - --extra-index-url https://x.example/whl/cu126\n  - torch\n  - torchvision"
    assert examine(make_context(tmp_path, text, facts_of_target=old)) == []
    # The cu118 index ends at 2.7, so pip installs a newer version from the default index.
    text = "- pip:\n  - --extra-index-url https://x.example/whl/cu118\n  - torch"
    assert [finding.line for finding in examine(make_context(tmp_path, text, facts_of_target=old))] == [4]
    assert examine(make_context(tmp_path, text.replace("torch", "torch==2.7.1"), facts_of_target=old)) == []
    assert examine(make_context(tmp_path, text.replace("--extra-index", "--index"), facts_of_target=old)) == []


IMAGES = [
    ("nvidia/cuda:13.0.1-runtime-ubuntu24.04", "535.104.05", "nvidia/cuda:12.2.2-runtime-ubuntu22.04"),
    ("nvidia/cuda:12.4.1-base-ubuntu22.04", "470.57.02", False),
    ("x.example/nvidia/cuda:13.0.0-devel-ubuntu22.04", "560.35.03", "x.example/nvidia/cuda:12.6.3-devel-ubuntu22.04"),
    ("nvidia/cuda:13.0.0-cudnn-devel-ubuntu22.04", "560.35.03", False),
    ("pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime", "560.35.03", False),
]


@pytest.mark.parametrize(("image", "driver", "new"), IMAGES)
def test_an_image_for_a_cuda_newer_than_the_driver(tmp_path: Path, image: str, driver: str, new: str | bool) -> None:
    line = Line(image, "aml_config/gpu.compute", 2)
    compute = replace(GPU, base_docker_image=image)
    (finding,) = examine(CheckContext(compute, facts=facts(driver), image_line=line))
    assert summarize([finding]) == [("cuda-image", 2, "warning", new)]
    assert f"the target has {driver}" in finding.message and "newer driver" in finding.hint
    for fine in (
        CheckContext(compute, facts=facts("580.95.05"), image_line=line),
        CheckContext(replace(compute, nvidia_docker=False), facts=facts(driver), image_line=line),
        CheckContext(compute, image_line=line),  # unknown driver
        CheckContext(replace(compute, type="remote"), facts=facts(driver), image_line=line),
    ):
        assert examine(fine) == []


@pytest.mark.parametrize(
    "image",
    ["nvidia/cuda:12.4.1-runtime-ubuntu22.04", "debian:12", "nvidia/cuda", "cuda-tools:13.0", "x:5000/cudax:13.0"],
)
def test_valid_images(image: str) -> None:
    line = Line(image, "aml_config/gpu.compute", 2)
    assert examine(CheckContext(replace(GPU, base_docker_image=image), facts=facts("550.54.14"), image_line=line)) == []


def test_cuda_image_may_support_older_driver(tmp_path: Path) -> None:
    """Data center GPUs support newer CUDA versions with old drivers, so the finding is only a warning."""
    compute = replace(GPU, base_docker_image="nvidia/cuda:13.0.1-runtime-ubuntu24.04")
    findings = examine(make_context(tmp_path, "- pip:\n  - torch==2.12.0", compute, facts("535.104.05")))
    assert [(finding.rule, finding.severity) for finding in findings] == [("cuda", "warning")]


PYTHONS = [
    ("- python=3.3", "python=3.4"),
    ("- python=3.19", "python=3.15"),
    ("- python=2.6", "python=2.7"),
    ("- python=3.5.2\n- pip: [six]", "python=3.6"),
    ("- python=2.7\n- pip: [six]", "python=3.6"),
]


@pytest.mark.parametrize(("text", "new"), PYTHONS)
def test_unavailable_python(tmp_path: Path, text: str, new: str) -> None:
    check(
        examine(make_context(tmp_path, text, CPU)),
        [Row("python", 2, "uv" if "3.19" not in text else "Python 3.19 does not exist", new)],
    )


def test_pythons_of_other_machines_and_channels(tmp_path: Path) -> None:
    check(
        examine(make_context(tmp_path, "- python=3.5", CPU, facts(arch="aarch64"))),
        [Row("python", 2, "is not available", "python=3.6")],
    )
    path = tmp_path / "conda_dependencies.yml"
    path.write_text("channels: [our-own]\ndependencies:\n- python=3.3\n")
    (finding,) = examine(CheckContext(CPU, read_dependencies(path, tmp_path)))
    assert (finding.rule, finding.severity) == ("python", "warning")


GOOD = [
    # current files, on a machine with GPUs and a common driver
    "- python=3.12\n- pip:\n  - torch==2.10.0\n  - torchvision\n  - transformers>=4.50\n  - numpy<3",
    "- pip:\n  - --extra-index-url https://x.example/whl/cu128\n  - torch==2.10.0\n  - torchaudio==2.10.0",
    "- pip:\n  - tensorflow[and-cuda]==2.19.0\n  - keras",
    "- pip:\n  - jax[cuda12]>=0.5\n  - flax\n  - optax",
    "- python=3.11\n- pytorch=2.5\n- pytorch-gpu\n- cuda-version=12.6\n- numpy",
    "- python>=3.10,<3.13\n- scikit-learn\n- lightgbm\n- pip:\n  - xgboost",
    "- python=3.11\n- jax\n- jaxlib=*=*cuda*",
    "- pip:\n  - cupy-cuda12x\n  - nvidia-cudnn-cu12==9.1.0.70\n  - bitsandbytes",
    "- pip:\n  - tensorflow[and-cuda] ; sys_platform == 'linux'\n  - tensorflow-macos ; sys_platform == 'darwin'"
    "\n  - tensorflow-cpu ; sys_platform == 'win32'",
    "- pip:\n  - jax[cuda12] ; sys_platform == 'linux' and platform_machine == 'x86_64'\n"
    "  - jax ; sys_platform != 'linux'",
    "- pip:\n  - torch==2.10.0+cpu ; platform_machine == 'arm64'\n  - torch==2.10.0 ; platform_machine == 'x86_64'",
    "- pip:\n  - https://x.example/own-1.0-cp312-cp312-manylinux_2_28_x86_64.whl",  # the default Python is 3.12
    "- python=3.12\n- pip:\n  - https://x.example/own-1-cp312-cp312-manylinux_2_28_x86_64.whl ; sys_platform == 'linux'"
    "\n  - https://x.example/own-1-cp312-cp312-win_amd64.whl ; sys_platform == 'win32'",
    "- python=3.6\n- pip:\n  - numpy",  # conda-forge has this Python
]


@pytest.mark.parametrize("driver", ["550.54.14", "535.183.01", None])
@pytest.mark.parametrize("text", GOOD)
def test_current_files_have_no_findings(tmp_path: Path, text: str, driver: str | None) -> None:
    assert examine(make_context(tmp_path, text, facts_of_target=facts(driver))) == []


def test_torch_of_the_package_index_on_a_new_driver(tmp_path: Path) -> None:
    assert (
        examine(
            make_context(
                tmp_path, "- pip: [torch, 'tensorflow[and-cuda]', 'jax[cuda13]']", facts_of_target=facts("580.95.05")
            )
        )
        == []
    )
    assert (
        examine(make_context(tmp_path, "- pip: [torch]", Compute("box", "remote", address="box"), facts("580.95.05")))
        == []
    )


PIP_LINES = [text for text, _ in [*RETIRED, *CPU_ONLY] if "pip:\n" in text and ";" not in text and "six" not in text]


@pytest.mark.parametrize("text", [*PIP_LINES, *(text for _, text, _ in TOO_NEW if "pip:\n" in text)])
def test_markers_for_other_machines_are_ignored(tmp_path: Path, text: str) -> None:
    elsewhere = f"{text} ; sys_platform == 'win32' or platform_machine == 'arm64'"
    assert examine(make_context(tmp_path, elsewhere, facts_of_target=facts("470.57.02"))) == []


def test_wheels_for_the_c_library_of_the_target(tmp_path: Path) -> None:
    text = "- python=3.12\n- pip: ['https://x.example/own-1-cp312-cp312-{}_x86_64.whl']"
    alpine = replace(CPU, base_docker_image="python:3.12-alpine")
    assert examine(make_context(tmp_path, text.format("musllinux_1_2"), alpine)) == []
    assert [finding.rule for finding in examine(make_context(tmp_path, text.format("manylinux_2_17"), alpine))] == [
        "wheel"
    ]


def test_facts_may_be_the_mapping_that_an_attachment_keeps(tmp_path: Path) -> None:
    mapping = {"os": {"system": "Linux", "arch": "aarch64"}, "nvidia": {"driver": "470.57.02"}, "docker": None}
    text = "- python=3.12\n- pip:\n  - torch==2.12.0\n  - https://x.example/own-1-cp312-cp312-manylinux2014_x86_64.whl"
    findings = examine(replace(make_context(tmp_path, text), facts=mapping))
    assert sorted(finding.rule for finding in findings) == ["cuda", "wheel"]
    invalid = {"os": None, "nvidia": {"driver": "none"}, "script": []}
    assert examine(replace(make_context(tmp_path, "- pip: [torch]"), facts=invalid)) == []


# -- the script --------------------------------------------------------------------------------------

PYTHON2 = [
    ("print 'a', b", "print('a', b)", "print"),
    ("    print x  # said", None, None),  # wrong indentation is an error in every Python version
    ("if 1: print x  # said", "if 1: print(x)  # said", "print"),
    ("print x,", 'print(x, end=" ")', "print"),
    ("print 'loss # %d' % x", "print('loss # %d' % x)", "print"),
    ("print >>f, x", "print(x, file=f)", "print"),
    ("print'x'", "print('x')", "print"),
    ("try: pass\nexcept ValueError, e: pass", "except ValueError as e: pass", "except"),
    ("try: pass\nexcept (A, B), e:\n  pass", "except (A, B) as e:", "except"),
    ("raise ValueError, 'no'", "raise ValueError('no')", "raise"),
    ("exec code", "exec(code)", "exec"),
    ("exec code in d", "exec(code, d)", "exec"),
    ("x = `y`", "x = repr(y)", "backquotes"),
    ("x = a <> b", "x = a != b", "<>"),
    ("x = 10L", "x = 10", "long"),
    ("import os; os.chmod('f', 0644)", "import os; os.chmod('f', 0o644)", "octal"),
    ("x = ur'a'", "x = r'a'", "ur"),
    ("def f(a, (b, c)):\n  pass", False, "tuple"),
    ("if 1:\n        x = 1\n\ty = 2\n", False, "tabs"),
    ("print ('a' +\n 'b'), c\nprint 'd' \\\n  'e'", False, "print"),
    ("x = (", None, None),
    ("x = 1\nprint(x)\nprint (x, 1)\n", None, None),
    ("s = 'print x'\n# print x\n", None, None),
]


@pytest.mark.parametrize(("text", "new", "why"), PYTHON2)
def test_python_2_in_the_script(text: str, new: str | bool | None, why: str | None) -> None:
    findings = examine(CheckContext(LAPTOP, script=Script("train.py", text)))
    if new is None:
        assert findings == []
        return
    (finding,) = findings
    assert (finding.rule, finding.severity, finding.file) == ("python2", "error", "train.py")
    assert str(why) in finding.message and "Python 2" in finding.message
    assert (finding.fix.new if finding.fix else False) == new
    assert finding.line == next(number for number, line in enumerate(text.splitlines(), 1) if _is_old(line, finding))


def _is_old(line: str, finding: Finding) -> bool:
    return line == finding.fix.old if finding.fix else True if finding.line == 1 else "\ty" in line or "'d'" in line


def test_every_line_in_python_2_is_found() -> None:
    text = "import sys\nprint 'a'\ntry:\n    print 'b'\nexcept IOError, e:\n    print e\n"
    findings = examine(CheckContext(LAPTOP, script=Script("train.py", text)))
    assert [finding.line for finding in findings] == [2, 4, 5, 6]


def test_configured_python_may_be_any() -> None:
    script = Script("train.py", "print 1\n")
    configured = replace(LAPTOP, python_location="/opt/old/bin/python")
    assert [finding.severity for finding in examine(CheckContext(configured, script=script))] == ["warning"]
    assert examine(CheckContext(configured, facts={"script": {"version": "2.7.18"}}, script=script)) == []
    assert [
        finding.severity
        for finding in examine(CheckContext(configured, facts={"script": {"version": "3.8.1"}}, script=script))
    ] == ["error"]


def test_script_without_python_2_patterns_is_not_parsed() -> None:
    for text, new, _ in PYTHON2:
        assert new is None or may_contain_python2(text), text
    plain = "def run(x, y=1):\n    print(x, file=y)\n    raise ValueError(f'{x}, {y}')\n\ntry: run(0x1F, 10)\n"
    assert not may_contain_python2(plain + "except (A, B) as error:\n    x = lambda y: pprint(exec(y), 0.5, 0)\n")


def test_python_2_script_in_python_2(tmp_path: Path) -> None:
    script = Script("train.py", "print 1\n")
    assert examine(replace(make_context(tmp_path, "- python=2.7"), script=script)) == []
    assert examine(CheckContext(replace(LAPTOP, python_location="/usr/bin/python2.7"), script=script)) == []
    assert len(examine(replace(make_context(tmp_path, "- python=3.6"), script=script))) == 1


# -- rule tables -------------------------------------------------------------------------------------


def test_the_tables_are_in_order() -> None:
    assert [cuda for cuda, _ in RELEASES] == sorted((cuda for cuda, _ in RELEASES), reverse=True)
    assert [Version(driver) for _, driver in RELEASES] == sorted((Version(one) for _, one in RELEASES), reverse=True)
    for rows in CUDA_BUILDS.values():
        assert [Version(first) for first, _ in rows] == sorted(Version(first) for first, _ in rows)
        assert [cuda for _, cuda in rows] == sorted(cuda for _, cuda in rows)


def test_driver_supports_its_cuda() -> None:
    for cuda, driver in RELEASES:
        assert newest_cuda(driver) == ".".join(map(str, cuda))
        oldest = oldest_driver(cuda)
        assert oldest and Version(oldest) <= max(Version(driver), Version("450.80.02"))
    assert (oldest_driver((12, 8)), oldest_driver((13,)), oldest_driver((11, 8))) == (
        "525.60.13",
        "580.65.06",
        "450.80.02",
    )
    assert (oldest_driver((10, 1)), oldest_driver((10,)), oldest_driver((99,))) == ("418.39", "410.48", None)


def test_the_tables_agree_with_what_the_solver_knows() -> None:
    assert ".".join(map(str, PIP_FROM)) == str(MIN_UV_PYTHON)


@pytest.mark.parametrize(
    "specifier",
    [
        "",
        "==2.1",
        "==2.1.*",
        "!=2.1.*",
        ">=2,<2.5",
        "~=2.1",
        "~=2.1.3",
        "<=2.1",
        ">2.1",
        "!=2.1.0",
        "==2.1rc1",
        ">=2.0a1",
    ],
)
def test_versions_are_compared_as_pip_does(specifier: str) -> None:
    line = PipLine("x", "f", 1, "x", specifier=specifier)
    for version in ("2", "2.0.1", "2.1", "2.1.0", "2.1.3", "2.1.10", "2.2", "2.5", "3", "2.1rc1"):
        expected = SpecifierSet(specifier).contains(version, prereleases=True)
        assert admits(line, version) == expected, version
        assert is_older(version, "2.1") == (Version(version) < Version("2.1"))


@pytest.mark.parametrize(
    ("specifier", "version"),
    [("==2.1.0+cu121", "2.1.0"), ("==2.*", "2"), (">=2", None), ("==1.0RC1", "1.0rc1"), ("", None)],
)
def test_pins(specifier: str, version: str | None) -> None:
    assert pinned_version(PipLine("x", "f", 1, "x", specifier=specifier)) == version


def test_each_rule_is_documented() -> None:
    assert all(rule.doc and rule.name for rule in RULES)
    assert len({rule.doc for rule in RULES}) == len(RULES)


def test_warning_about_password_in_file() -> None:
    """A password in the file is copied with the project. The value of a variable is not."""
    for address, expected in (
        ("https://ada:hush@packages.example/simple", True),
        ("https://ada:${PW}@packages.example", False),
    ):
        option = Option(f"--index-url {address}", "f", 3, "--index-url", address)
        case = CheckContext(Compute("d", "docker"), Dependencies(options=(option,)))
        assert [finding.rule for finding in examine(case)] == (["password"] if expected else [])
