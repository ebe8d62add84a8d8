"""Parts of the samples that can be tested without a run: messages, charts, and configuration files."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from mlworkbench.config.gallery import GALLERY, load_samples
from mlworkbench.config.project_folder import create_project

WITH_GPU = [one.name for one in load_samples() if one.name != "default"]


@pytest.mark.parametrize("name", WITH_GPU)
def test_each_sample_is_for_a_processor_and_for_a_gpu(tmp_path: Path, name: str) -> None:
    project = create_project("demo", tmp_path, name)
    assert {"local", "docker", "local-gpu", "docker-gpu"} <= set(project.runconfigs())
    for place in ("local", "docker"):
        plain, gpu = project.runconfig(place), project.runconfig(f"{place}-gpu")
        assert (plain.gpus, gpu.gpus) == (None, "1")
        assert gpu.framework == plain.framework and gpu.argument_vector == plain.argument_vector
    assert project.compute("docker-gpu").nvidia_docker and not project.compute("docker").nvidia_docker


# -- spark-sweep -------------------------------------------------------------------------------------


def test_executors_with_gpus_differ_in_nothing_else() -> None:
    folder = GALLERY / "spark-sweep" / "aml_config"
    plain, gpu = (
        yaml.safe_load((folder / f"spark_dependencies{end}.yml").read_text())["configuration"] for end in ("", "_gpu")
    )
    assert {key: value for key, value in gpu.items() if plain.get(key) != value} == {
        "spark.executor.resource.gpu.amount": 1,
        "spark.task.resource.gpu.amount": 1,
    }


# -- gpu-check ---------------------------------------------------------------------------------------


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(GALLERY / "gpu-check"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    import check as module  # type: ignore[import-not-found]

    yield module
    for name in ("check", "cuda", "nvml"):
        sys.modules.pop(name, None)


AROUND: dict[str, Any] = {"container": False, "device files": [], "GPUs on this machine": []}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "this machine has no GPU"),
        ({"container": True}, "nvidiaDocker: true"),
        ({"container": True, "device files": ["/dev/nvidia0"]}, "mlw doctor gpu"),
        ({"GPUs on this machine": ["NVIDIA H200"]}, "mlw doctor gpu"),
        ({"GPUs on this machine": ["NVIDIA H200"], "CUDA_VISIBLE_DEVICES": ""}, "--gpus 1"),
    ],
)
def test_what_is_proposed_where_no_gpu_is(check: ModuleType, more: dict[str, Any], words: str) -> None:
    assert words in check.remedy({**AROUND, **more})


def test_the_plot_takes_any_name(check: ModuleType, tmp_path: Path) -> None:
    curves = {"GPU 0 <A&B>": [(0.1, 3.0), (0.2, 4.0)], "GPU 1": [(0.1, 2.0)]}
    check.plot(curves, tmp_path / "speed.svg")
    drawn = ET.parse(tmp_path / "speed.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert len(drawn.findall(f".//{space}polyline")) == 2
    assert any("GPU 0 <A&B>: 4 billion" in (one.text or "") for one in drawn.iter(f"{space}text"))


def test_a_machine_without_libraries(check: ModuleType) -> None:
    assert check.nvml.ask("libno-such.so.1") == (None, [])
    with pytest.raises(check.cuda.NoGpu, match=r"no NVIDIA driver: libno-such\.so\.1"):
        check.cuda.Driver("libno-such.so.1")
