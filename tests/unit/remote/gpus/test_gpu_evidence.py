"""What the packages of an environment say about GPUs, read from their files."""

from __future__ import annotations

import pytest

from mlworkbench.remote.gpus.evidence import find_program, frameworks, frameworks_of, gather, package_folders


@pytest.fixture
def prefix(tmp_path):
    made = tmp_path / "env"
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "python").write_text("#!/bin/sh\n")
    (made / "bin" / "python").chmod(0o755)
    (made / "pyvenv.cfg").write_text("")
    (made / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
    return made


def put(prefix, name, **files):
    site = prefix / "lib" / "python3.12" / "site-packages"
    (site / f"{name}.dist-info").mkdir()
    for path, text in files.items():
        place = site / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def read(prefix):
    return frameworks(list(package_folders(str(prefix / "bin" / "python"), {})))


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
        # an ARM build of the public index has no mark in its version, and no CUDA
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
def test_builds(prefix, packages, expected):
    for name, files in packages.items():
        put(prefix, name, **files)
    assert read(prefix) == expected


def test_what_is_no_python_says_nothing_of_packages(tmp_path):
    assert list(package_folders("/bin/sh", {})) == []
    assert find_program("no-such-program", {"PATH": str(tmp_path)}) is None


def test_the_evidence_of_a_run(prefix, tmp_path):
    put(prefix, "torch-2.7.0+cpu")
    log = tmp_path / "log"
    log.write_text("AssertionError: Torch not compiled with CUDA enabled\n" + "x" * 600_000 + "\nCUDA out of memory\n")
    spec = {"commands": [{"argv": ["python", "a.py"]}], "container": None}
    environment = {"PATH": str(prefix / "bin"), "CUDA_VISIBLE_DEVICES": ""}
    found = gather(spec, str(log), environment, frameworks_of(spec, environment))
    assert found == {
        "visible": "",
        "container": False,
        "container_gpus": None,
        "frameworks": {"torch": {"version": "2.7.0+cpu", "gpu": False, "cuda": None}},
        "python": "python",
        "signs": ["out of memory", "cpu build"],
    }


def test_packages_of_a_container_are_read_through_its_root(prefix, tmp_path):
    put(prefix, "torch-2.7.0+cpu")
    outside = tmp_path / "root"
    outside.mkdir()
    (outside / "opt").mkdir()
    prefix.rename(outside / "opt" / "env")
    spec = {"commands": [{"argv": ["/opt/env/bin/python", "a.py"]}]}
    assert frameworks_of(spec, {}, str(outside)) == {"torch": {"version": "2.7.0+cpu", "gpu": False, "cuda": None}}
    assert frameworks_of(spec, {}) is None
