"""``Framework: PySpark``: run the script with the spark-submit program on the target."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from urllib.parse import quote

from ..errors import ConfigError, UsageError
from ..model import JsonDict
from ..remote.shared.environment_layout import pack_of
from ..targets.types import Feature, type_of
from .framework import FrameworkCommand, Setting, is_notebook
from .python import Python, as_path

LOCAL_MASTER = "local[*]"  # Spark's name for all cores of one machine
_MASTER = re.compile(r"spark://\S+|yarn|k8s://\S+|local(-cluster)?(\[.*\])?")
_UNPACKED = "environment"  # folder with the environment on executors


class PySpark:
    """The PySpark framework, which selects the spark-submit options.

    ``remote/inrun/mlworkbench/_spark`` adds options that are known only on the target.
    """

    def make(self, setting: Setting) -> FrameworkCommand:
        entry = setting.entry
        if entry.kind == "command":  # spark-submit cannot run other commands
            return Python().make(setting)
        if entry.kind == "module":
            raise UsageError(
                f"spark-submit runs scripts only, and {entry.name} is a module",
                f"use a script, or set Framework: Python in aml_config/{setting.runconfig.name}.runconfig",
            )
        if is_notebook(entry):
            raise UsageError(
                f"spark-submit runs scripts only, and {entry.name} is a notebook",
                f"set Framework: Python in aml_config/{setting.runconfig.name}.runconfig",
            )
        starter = posixpath.join(setting.inrun, "mlworkbench", "_spark")
        location = setting.compute.spark_submit_location or "spark-submit"
        master = master_of(setting)
        folder = posixpath.dirname(entry.name) or "."
        command = [setting.python, starter, location, folder, "--master", master, *self._deploy(setting, master)]
        for name, value in self._settings(setting, master).items():
            command += ["--conf", f"{name}={value}"]
        companion: JsonDict = {"master": master, "deploy": deploy_of(setting, master)}
        archives: tuple[str, ...] = ()
        if packs(setting, master):
            # Use a URL: in a path with a space, Spark would treat # and the name after it as part of the path.
            archives = (f"file://{quote(pack_of(setting.root, setting.lock))}#{_UNPACKED}",)
            companion["pack"] = True
        for option, values in (
            ("--packages", setting.spark.packages),
            ("--repositories", setting.spark.repositories),
            ("--archives", archives),
        ):
            command += _joined(option, values, setting)
        return FrameworkCommand((*command, as_path(entry.name), *entry.arguments), {"spark": companion})

    @staticmethod
    def _deploy(setting: Setting, master: str) -> list[str]:
        deploy = deploy_of(setting, master)
        return ["--deploy-mode", deploy] if is_distributed(master) else []

    @staticmethod
    def _settings(setting: Setting, master: str) -> dict[str, str]:
        """Return the user's Spark settings, with defaults that select the same Python for driver and executors."""
        user_settings = {name: value for name, value in setting.spark.configuration.items() if name != "spark.master"}
        pythons = {"spark.pyspark.python": setting.python, "spark.pyspark.driver.python": setting.python}
        if packs(setting, master):
            pythons["spark.pyspark.python"] = f"./{_UNPACKED}/bin/python"
            if deploy_of(setting, master) == "cluster":
                pythons["spark.pyspark.driver.python"] = pythons["spark.pyspark.python"]
        if "PYSPARK_PYTHON" in setting.variables:
            pythons = {}
        defaults = {"spark.executorEnv.MLW_TRACKING": "off"} if is_distributed(master) else {}
        if packs(setting, master):  # packages in the user's home folder are not part of the environment
            defaults["spark.executorEnv.PYTHONNOUSERSITE"] = "1"
        return {**pythons, **defaults, **user_settings}


_SETTING = {
    "--packages": "spark.jars.packages",
    "--repositories": "spark.jars.repositories",
    "--archives": "spark.archives",
}


def _joined(option: str, values: Sequence[str], setting: Setting) -> list[str]:
    """Return the option with the user's value appended, because the option overrides the setting."""
    theirs = setting.spark.configuration.get(_SETTING[option])
    return [option, ",".join([*values, *([theirs] if theirs else [])])] if values else []


def is_master(text: str) -> bool:
    """Return whether spark-submit supports this master."""
    return _MASTER.fullmatch(text) is not None


def master_of(setting: Setting) -> str:
    """Return the Spark master: from the target, else from the Spark settings file, else the default."""
    master = setting.compute.spark_master or setting.spark.configuration.get("spark.master")
    if master and not is_master(master):
        raise ConfigError(
            f"{master!r} is not a valid Spark master",
            f"set sparkMaster in aml_config/{setting.compute.name}.compute, or spark.master in"
            f" {setting.runconfig.spark_dependencies_file}, to spark://host:7077, yarn, or local[4]",
        )
    if master:
        return master
    return "yarn" if type_of(setting.compute).has(Feature.SPARK) else LOCAL_MASTER


def is_distributed(master: str) -> bool:
    """Return whether Spark uses several machines. Masters such as ``local[4]`` use only one."""
    return master != "local" and not master.startswith("local[")


def deploy_of(setting: Setting, master: str) -> str:
    """Return where the driver runs.

    A standalone cluster supports Python drivers only in client mode.
    """
    return (setting.compute.yarn_deploy_mode or "cluster") if master == "yarn" else "client"


def packs(setting: Setting, master: str) -> bool:
    """Return whether executors get the environment of the run."""
    if not is_distributed(master) or setting.lock.get("kind") != "managed":
        return False
    if type_of(setting.compute).contained:
        raise ConfigError(
            f"{setting.compute.name} runs the driver in a container, which cannot use the cluster {master}",
            "use a target of type cluster, or set userManagedEnvironment: true and spark.pyspark.python",
        )
    return True
