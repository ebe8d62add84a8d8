"""GPU support of installed frameworks, read from package files."""

from __future__ import annotations

import pytest

from mlworkbench.remote.gpus.gpu_evidence import (
    detect_frameworks,
    find_frameworks,
    find_program,
    gather_evidence,
    package_folders,
)


@pytest.fixture
def prefix(tmp_path):
    folder = tmp_path / "env"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text("#!/bin/sh\n")
    (folder / "bin" / "python").chmod(0o755)
    (folder / "pyvenv.cfg").write_text("")
    (folder / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
    return folder


def add_package(prefix, name, **files):
    site = prefix / "lib" / "python3.12" / "site-packages"
    (site / f"{name}.dist-info").mkdir()
    for path, text in files.items():
        file = site / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def detect(prefix):
    return detect_frameworks(list(package_folders(str(prefix / "bin" / "python"), {})))


TORCH = "from typing import Optional\n__version__ = '2.7.0'\ndebug = False\ncuda: Optional[str] = {}\nhip = None\n"
BUILD = (
    "import collections\n\nbuild_info = collections.OrderedDict([{}('is_cuda_build', {}), ('is_rocm_build', False)])\n"
)


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        ({"numpy-2.0.0": {}}, {}),
        (
            {"torch-2.7.0+cpu": {"torch/version.py": TORCH.format("None")}},
            {"torch": {"version": "2.7.0+cpu", "gpu": False, "cuda": None}},
        ),
        (
            {"torch-2.7.0": {"torch/version.py": TORCH.format("'12.6'")}},
            {"torch": {"version": "2.7.0", "gpu": True, "cuda": "12.6"}},
        ),
        # ARM builds on PyPI have no version suffix and no CUDA support.
        (
            {"torch-2.3.0": {"torch/version.py": TORCH.format("None")}},
            {"torch": {"version": "2.3.0", "gpu": False, "cuda": None}},
        ),
        ({"torch-2.1.0+cu118": {}}, {"torch": {"version": "2.1.0+cu118", "gpu": True, "cuda": "11.8"}}),
        ({"torch-2.1.0": {}}, {"torch": {"version": "2.1.0", "gpu": None, "cuda": None}}),
        (
            {
                "tensorflow-2.16.1": {
                    "tensorflow/python/platform/build_info.py": BUILD.format("('cuda_version', '12.3'), ", "True")
                }
            },
            {"tensorflow": {"version": "2.16.1", "gpu": True, "cuda": "12.3"}},
        ),
        (
            {"tensorflow_cpu-2.16.1": {"tensorflow/python/platform/build_info.py": BUILD.format("", "False")}},
            {"tensorflow": {"version": "2.16.1", "gpu": False, "cuda": None}},
        ),
        ({"tensorflow_gpu-1.12.0": {}}, {"tensorflow": {"version": "1.12.0", "gpu": True, "cuda": None}}),
        (
            {"jax-0.5.0": {}, "jaxlib-0.5.0": {}},
            {"jax": {"version": "0.5.0", "gpu": False, "cuda": None}},
        ),
        (
            {"jax-0.5.0": {}, "jaxlib-0.5.0": {}, "jax_cuda12_plugin-0.5.0": {}},
            {"jax": {"version": "0.5.0", "gpu": True, "cuda": "12"}},
        ),
        ({"cntk-2.7": {}}, {"cntk": {"version": "2.7", "gpu": False, "cuda": None}}),
        ({"cntk_gpu-2.7": {}}, {"cntk": {"version": "2.7", "gpu": True, "cuda": None}}),
        ({"cupy_cuda12x-13.0": {}}, {"cupy-cuda12x": {"version": "13.0", "gpu": True, "cuda": None}}),
    ],
)
def test_framework_builds(prefix, packages, expected):
    for name, files in packages.items():
        add_package(prefix, name, **files)
    assert detect(prefix) == expected


def test_other_programs_have_no_package_folders(tmp_path):
    assert list(package_folders("/bin/sh", {})) == []
    assert find_program("no-such-program", {"PATH": str(tmp_path)}) is None


def test_evidence_of_a_run(prefix, tmp_path):
    add_package(prefix, "torch-2.7.0+cpu")
    log = tmp_path / "log"
    log.write_text("AssertionError: Torch not compiled with CUDA enabled\n" + "x" * 600_000 + "\nCUDA out of memory\n")
    spec = {"commands": [{"argv": ["python", "a.py"]}], "container": None}
    environment = {"PATH": str(prefix / "bin"), "CUDA_VISIBLE_DEVICES": ""}
    evidence = gather_evidence(spec, str(log), environment, find_frameworks(spec, environment))
    assert evidence == {
        "visible": "",
        "container": False,
        "container_gpus": None,
        "frameworks": {"torch": {"version": "2.7.0+cpu", "gpu": False, "cuda": None}},
        "python": "python",
        "signs": ["out of memory", "cpu build"],
    }


def test_packages_of_a_container_are_read_through_its_root(prefix, tmp_path):
    add_package(prefix, "torch-2.7.0+cpu")
    outside = tmp_path / "root"
    outside.mkdir()
    (outside / "opt").mkdir()
    prefix.rename(outside / "opt" / "env")
    spec = {"commands": [{"argv": ["/opt/env/bin/python", "a.py"]}]}
    assert find_frameworks(spec, {}, str(outside)) == {"torch": {"version": "2.7.0+cpu", "gpu": False, "cuda": None}}
    assert find_frameworks(spec, {}) is None
