"""``Framework: PySpark``: the script through spark-submit, which is found where the script runs."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from urllib.parse import quote

from ..errors import ConfigError, UsageError
from ..model import JsonDict
from ..remote.shared.environment_layout import pack_of
from ..targets.types import Feature, type_of
from .framework import Made, Setting
from .python import Python, as_path

HERE = "local[*]"  # Spark's name for all processors of one machine
_MASTER = re.compile(r"spark://\S+|yarn|k8s://\S+|local(-cluster)?(\[.*\])?")
_UNPACKED = "environment"  # folder that executors have the environment in


class PySpark:
    """Options of spark-submit are decided here; ``remote/inrun/mlworkbench/_spark`` adds what only the target knows."""

    def make(self, setting: Setting) -> Made:
        entry = setting.entry
        if entry.kind == "command":  # whatever it is, it is not for spark-submit
            return Python().make(setting)
        if entry.kind == "module":
            raise UsageError(
                f"spark-submit runs scripts only, and {entry.name} is a module",
                f"use a script, or set Framework: Python in aml_config/{setting.runconfig.name}.runconfig",
            )
        starter = posixpath.join(setting.inrun, "mlworkbench", "_spark")
        location = setting.compute.spark_submit_location or "spark-submit"
        master = master_of(setting)
        folder = posixpath.dirname(entry.name) or "."
        words = [setting.python, starter, location, folder, "--master", master, *self._deploy(setting, master)]
        for name, value in self._settings(setting, master).items():
            words += ["--conf", f"{name}={value}"]
        known: JsonDict = {"master": master, "deploy": deploy_of(setting, master)}
        archives: tuple[str, ...] = ()
        if packs(setting, master):
            # As an address: in a path with a space Spark would take the name behind # for a part of it.
            archives = (f"file://{quote(pack_of(setting.root, setting.lock))}#{_UNPACKED}",)
            known["pack"] = True
        for option, own in (
            ("--packages", setting.spark.packages),
            ("--repositories", setting.spark.repositories),
            ("--archives", archives),
        ):
            words += _joined(option, own, setting)
        return Made((*words, as_path(entry.name), *entry.arguments), {"spark": known})

    @staticmethod
    def _deploy(setting: Setting, master: str) -> list[str]:
        deploy = deploy_of(setting, master)
        return ["--deploy-mode", deploy] if is_distributed(master) else []

    @staticmethod
    def _settings(setting: Setting, master: str) -> dict[str, str]:
        """The file's; below them what Pythons need to be the same everywhere."""
        asked = {name: value for name, value in setting.spark.configuration.items() if name != "spark.master"}
        pythons = {"spark.pyspark.python": setting.python, "spark.pyspark.driver.python": setting.python}
        if packs(setting, master):
            pythons["spark.pyspark.python"] = f"./{_UNPACKED}/bin/python"
            if deploy_of(setting, master) == "cluster":
                pythons["spark.pyspark.driver.python"] = pythons["spark.pyspark.python"]
        if "PYSPARK_PYTHON" in setting.variables:
            pythons = {}
        own = {"spark.executorEnv.MLW_TRACKING": "off"} if is_distributed(master) else {}
        if packs(setting, master):  # what lies in the home of the executors' user is no part of it
            own["spark.executorEnv.PYTHONNOUSERSITE"] = "1"
        return {**pythons, **own, **asked}


_SETTING = {
    "--packages": "spark.jars.packages",
    "--repositories": "spark.jars.repositories",
    "--archives": "spark.archives",
}


def _joined(option: str, own: Sequence[str], setting: Setting) -> list[str]:
    """The option takes the place of the setting, which the user may have made, too."""
    theirs = setting.spark.configuration.get(_SETTING[option])
    return [option, ",".join([*own, *([theirs] if theirs else [])])] if own else []


def is_master(text: str) -> bool:
    """Whether spark-submit knows such a master."""
    return _MASTER.fullmatch(text) is not None


def master_of(setting: Setting) -> str:
    """The target's own word goes first, then the file of Spark's settings."""
    told = setting.compute.spark_master or setting.spark.configuration.get("spark.master")
    if told and not is_master(told):
        raise ConfigError(
            f"{told!r} is not a valid Spark master",
            f"set sparkMaster in aml_config/{setting.compute.name}.compute, or spark.master in"
            f" {setting.runconfig.spark_dependencies_file}, to spark://host:7077, yarn, or local[4]",
        )
    if told:
        return told
    return "yarn" if type_of(setting.compute).has(Feature.SPARK) else HERE


def is_distributed(master: str) -> bool:
    """``local`` and ``local[4]`` are this one machine."""
    return master != "local" and not master.startswith("local[")


def deploy_of(setting: Setting, master: str) -> str:
    """Where the driver runs. A standalone cluster starts drivers of Python scripts with the client only."""
    return (setting.compute.yarn_deploy_mode or "cluster") if master == "yarn" else "client"


def packs(setting: Setting, master: str) -> bool:
    """Whether executors get the run's own environment."""
    if not is_distributed(master) or setting.lock.get("kind") != "managed":
        return False
    if type_of(setting.compute).contained:
        raise ConfigError(
            f"{setting.compute.name} runs the driver in a container, which cannot use the cluster {master}",
            "use a target of type cluster, or set userManagedEnvironment: true and spark.pyspark.python",
        )
    return True
