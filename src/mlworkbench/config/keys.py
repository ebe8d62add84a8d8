"""Every key of the project's files, once: type, default, where it applies, one sentence of documentation.

The readers, their messages and the reference pages are driven from here. Names and defaults are the
original's; keys that only ML Workbench knows say so.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import replace

from ..remote.shared.containers import SUGGESTED_IMAGE
from ..targets.types import BUILT_IN
from .compute_keys import ALL_KEYS, TYPE
from .key import Key as Key

# A small image with glibc, and with a Python for those who look after the environment themselves.
DEFAULT_IMAGE = SUGGESTED_IMAGE

TYPES = tuple(row.name for row in BUILT_IN)
SAME_TYPE = {alias: row.name for row in BUILT_IN for alias in row.aliases}

COMPUTE = (replace(TYPE, choices=TYPES), *ALL_KEYS[1:])

# One key on a line or two: it is a table, and reads as one.
# fmt: off
RUNCONFIG = (
    Key("ArgumentVector", "arguments",
        "Script and arguments to run if no script is given on the command line; $file is the file selected in the app",
        "argument_vector", default=(), modern=("script", "arguments")),
    Key("Target", "name", "Name of the target's .compute file; default: the name of this file", "target",
        modern=("target",)),
    Key("EnvironmentVariables", "variables", "Environment variables for the script", "environment_variables",
        modern=("environment.environmentVariables",)),
    Key("Framework", "choice", "Python, or PySpark to run the script with Spark", "framework",
        default="PySpark", choices=("Python", "PySpark"), open=True, plugins="frameworks", modern=("framework",)),
    Key("CondaDependenciesFile", "inside", "File that lists the environment's packages, relative to the project",
        "conda_dependencies_file", default="aml_config/conda_dependencies.yml", was=("CondaFile",),
        modern=("environment.python.condaDependenciesFile",)),
    Key("EnvironmentPlugin", "word", "Name of an installed plugin that provides the environment instead of"
        " CondaDependenciesFile (ML Workbench only)", "environment"),
    Key("SparkDependenciesFile", "inside", "File with Spark packages and settings, relative to the project",
        "spark_dependencies_file", default="aml_config/spark_dependencies.yml"),
    Key("PrepareEnvironment", "flag", "Build the environment as part of the run; false: build it beforehand with"
        " `mlw experiment prepare`",
        "prepare_environment", default=True, modern=("prepareEnvironment",)),
    Key("TrackedRun", "flag", "Record metrics and outputs in the run history; false: record nothing that the script"
        " logs, and omit the run from lists", "tracked_run", default=True,
        modern=("history.enabled",)),
    Key("MetricsFromLog", "flag", "Record printed lines such as `accuracy: 0.93` or `epoch 3 - loss: 0.5` as metrics"
        " (ML Workbench only)", "metrics_from_log", default=False),
    Key("UseSampling", "flag", "Use the active sample of each data source instead of all data", "use_sampling",
        default=True),
    Key("DataSourceSettings", "tree", "Sample to use for each .dsource or .dprep file", "data_source_settings"),
    Key("DataSourceSubstitutions", "texts_by_name",
        "Replace a .dsource file with a different one without changing code", "data_source_substitutions"),
    Key("FetchOutputs", "fetch",
        "Outputs to download after the run: all, none, or files up to a size such as 500 MB (ML Workbench only)",
        "fetch_outputs", default="all"),
    Key("Gpus", "gpus", "GPUs to reserve exclusively: a number, all, free, none, indexes (0,2), a UUID, a model (h200),"
        " or 1:40g (ML Workbench only)", "gpus"),
    Key("Description", "ignored", "Description in files created before September 2017; ignored"),
    Key("ManagedEnvironment", "flag",
        "Before September 2017, false meant that users managed the Python packages themselves",
        instead="userManagedEnvironment in the .compute file"),
)

# What a run configuration of April 2018 has beyond the names that other keys have there (``modern``).
APRIL = (
    Key("script", "text", "Script to run; script and arguments together correspond to ArgumentVector"),
    Key("arguments", "arguments", "Arguments for the script"),
    Key("environment.docker.enabled", "flag", "Run in a container, even if the target type does not use containers"),
    Key("environment.docker.baseImageRegistry.address", "word", "Image registry; mlw adds it before the image name"),
    Key("environment.docker.baseImageRegistry.username", "unused", "User name for the registry",
        instead="`docker login` on the target"),
    Key("environment.docker.baseImageRegistry.password", "unused", "Password for the registry; never read",
        instead="`docker login` on the target"),
    Key("batchai", "elsewhere", "Azure Batch AI settings; not supported"),
    Key("containerInstance", "elsewhere", "Azure Container Instances settings; not supported"),
)

DEPENDENCIES = (
    Key("name", "text", "Name of the environment", "name", default="project_environment"),
    Key("channels", "texts", "Conda channels in order of priority; default: conda-forge", "channels", default=()),
    Key("dependencies", "packages", "Conda packages, and pip packages in a nested list named pip", "dependencies"),
    Key("prefix", "ignored", "Folder of the exported environment; ignored"),
    Key("variables", "retired", "Environment variables of a conda environment",
        instead="EnvironmentVariables in the run configuration"),
)

SPARK_DEPENDENCIES = (
    Key("configuration", "texts_by_name", "Spark properties", "configuration", modern=("spark.configuration",)),
    Key("repositories", "texts", "Maven repositories in addition to Maven Central", "repositories", default=(),
        modern=("environment.spark.repositories",)),
    Key("packages", "coordinates", "Maven packages: group, artifact, version", "packages", default=(),
        modern=("environment.spark.packages",)),
    Key("version", "ignored", "Version of the file format"),
)
# fmt: on

# How close a word must be to a known one to be taken for a slip of the pen: lets baseImage find
# baseDockerImage (0.75), but leaves a stranger such as CondaChannel alone.
NEAR = 0.7


def applies_to(key: Key) -> tuple[str, ...]:
    """Built-in compute types that have a key of a .compute file; empty for a key that is not one of a type."""
    return () if key.name == TYPE.name else tuple(row.name for row in BUILT_IN if row.has_key(key))


def required_by(key: Key) -> tuple[str, ...]:
    """Built-in compute types that require a key."""
    return tuple(row.name for row in BUILT_IN if row.requires(key))


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, whatever its capitals."""
    spelled = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), spelled, n=1, cutoff=NEAR)
    return spelled[close[0]] if close else None


def same_key(name: str) -> str:
    """Form in which two spellings of a key are equal: ArgumentVector and argumentVector are one key."""
    return name[:1].lower() + name[1:]
