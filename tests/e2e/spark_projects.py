"""Spark projects for tests: the files that a user writes, and a script that reports its environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.machines.spark import QUICK, SMALL

# A job with driver, session, executors, a project module inside a task, and the mlworkbench library.
JOB = """
import os, sys
import mlworkbench
from pyspark.sql import SparkSession
import helper

session = SparkSession.builder.getOrCreate()
context = session.sparkContext
print("application", context.applicationId, "named", context.appName, "on", context.master, flush=True)
print("arguments", sys.argv[1:])
print("told", session.conf.get("spark.mlw.test", "nothing"))
rows = context.parallelize(range(100), 4).map(lambda one: helper.twice(one)).collect()
mlworkbench.log("total", sum(rows))
with open("outputs/rows.txt", "w") as file:
    file.write(" ".join(str(one) for one in rows))
print("total", sum(rows), flush=True)
"""
HELPER = "def twice(number):\n    return 2 * number\n"


def configure_pyspark(root: Path, name: str, *, configuration: Mapping[str, str] | None = None, **compute: str) -> None:
    """Configure PySpark in a run configuration, with Spark settings and keys of the target."""
    runconfig = root / "aml_config" / f"{name}.runconfig"
    runconfig.write_text(runconfig.read_text().replace("Framework: Python", "Framework: PySpark"))
    assert "Framework: PySpark" in runconfig.read_text()
    settings = {**SMALL, **_scratch(root, name), **(configuration or {})}
    (root / "aml_config" / "spark_dependencies.yml").write_text(
        "configuration:\n" + "".join(f"  {key}: {json.dumps(value)}\n" for key, value in settings.items())
    )
    for key, value in compute.items():
        set_compute_key(root, name, key, value)


def _scratch(root: Path, name: str) -> dict[str, str]:
    """Return settings that keep Java's files out of this computer's /tmp. Machines and containers have their own."""
    compute = (root / "aml_config" / f"{name}.compute").read_text()
    if "address:" in compute or "type: docker" in compute:
        return {}
    folder = root.parent / "scratch"
    folder.mkdir(exist_ok=True)
    options = f"{QUICK} -Djava.io.tmpdir={folder}"
    java = dict.fromkeys(("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), options)
    return {**java, "spark.local.dir": str(folder)}


def add_spark_settings(root: Path, settings: Mapping[str, str]) -> None:
    """Add Spark settings to a project, replacing those with the same key."""
    path = root / "aml_config" / "spark_dependencies.yml"
    lines = [line for line in path.read_text().splitlines() if line.strip().split(":")[0] not in settings]
    place = lines.index("configuration:") + 1
    path.write_text(
        "\n".join(
            [*lines[:place], *(f"  {key}: {json.dumps(value)}" for key, value in settings.items()), *lines[place:], ""]
        )
    )


def set_compute_key(root: Path, name: str, key: str, value: str) -> None:
    """Set one key of a .compute file."""
    path = root / "aml_config" / f"{name}.compute"
    lines = [line for line in path.read_text().splitlines() if not line.startswith(f"{key}:")]
    path.write_text("\n".join([*lines, f"{key}: {value}", ""]))


def set_environment_variables(root: Path, name: str, **values: str) -> None:
    """Set EnvironmentVariables of a run configuration."""
    path = root / "aml_config" / f"{name}.runconfig"
    kept, below = [], False
    for line in path.read_text().splitlines():
        below = line.startswith("EnvironmentVariables:") or (below and line.startswith(" "))
        kept += [] if below else [line]
    path.write_text("\n".join([*kept, f"EnvironmentVariables: {json.dumps(values)}", ""]))
