"""Table of all configuration keys: type, default, scope, and one sentence of documentation.

Readers, error messages, and reference pages are generated from the table. Names and defaults come
from the original Azure ML Workbench. The documentation marks keys that exist only in ML Workbench.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import replace

from ..remote.shared.containers import SUGGESTED_IMAGE
from ..remote.shared.process_launchers import LAUNCHERS
from ..remote.shared.process_launchers import NONE as NO_LAUNCHER
from ..remote.shared.retry_causes import CAUSES, DEFAULT_CAUSES
from ..retries import DEFAULT_DELAY
from ..targets.types import BUILT_IN
from .compute_keys import ALL_KEYS, TYPE
from .key import Key as Key

# A small image with glibc, and with Python for users who manage the environment themselves.
DEFAULT_IMAGE = SUGGESTED_IMAGE

TYPES = tuple(row.name for row in BUILT_IN)
TYPE_ALIASES = {alias: row.name for row in BUILT_IN for alias in row.aliases}

COMPUTE = (replace(TYPE, choices=TYPES), *ALL_KEYS[1:])

# Formatted as a table: one or two lines per key.
# fmt: off
RUNCONFIG = (
    Key("ArgumentVector", "arguments",
        "Script and arguments to run if no script is given on the command line; $file is the file selected in the app",
        "argument_vector", default=(), nested_paths=("script", "arguments")),
    Key("Target", "name", "Name of the target's .compute file; default: the name of this file", "target",
        nested_paths=("target",)),
    Key("EnvironmentVariables", "variables", "Environment variables for the script", "environment_variables",
        nested_paths=("environment.environmentVariables",)),
    Key("PassEnvironment", "variable_names", "Variables to pass from the shell that submits the run: a list of names,"
        " default (backends and modes), or none (ML Workbench only)",
        "pass_environment", default=("default",)),
    Key("Framework", "choice", "Python, or PySpark to run the script with Spark", "framework",
        default="PySpark", choices=("Python", "PySpark"), open=True, plugins="frameworks", nested_paths=("framework",)),
    Key("CondaDependenciesFile", "inside", "File that lists the environment's packages, relative to the project",
        "conda_dependencies_file", default="aml_config/conda_dependencies.yml", former_names=("CondaFile",),
        nested_paths=("environment.python.condaDependenciesFile",)),
    Key("EnvironmentPlugin", "word", "Name of an installed plugin that provides the environment instead of"
        " CondaDependenciesFile (ML Workbench only)", "environment"),
    Key("SparkDependenciesFile", "inside", "File with Spark packages and settings, relative to the project",
        "spark_dependencies_file", default="aml_config/spark_dependencies.yml"),
    Key("PrepareEnvironment", "flag", "Build the environment as part of the run; false: build it beforehand with"
        " `mlw experiment prepare`",
        "prepare_environment", default=True, nested_paths=("prepareEnvironment",)),
    Key("TrackedRun", "flag", "Record metrics and outputs in the run history; false: record nothing that the script"
        " logs, and omit the run from lists", "tracked_run", default=True,
        nested_paths=("history.enabled",)),
    Key("MetricsFromLog", "flag", "Record printed lines such as `accuracy: 0.93` or `{'loss': 0.5}` as metrics"
        " (ML Workbench only)", "metrics_from_log", default=False),
    Key("MetricGoals", "goals", "Whether higher or lower values of a metric are better, as `NAME: max` or `NAME: min`;"
        " takes precedence over the metric's name (ML Workbench only)", "metric_goals"),
    Key("UseSampling", "flag", "Use the active sample of each data source instead of all data", "use_sampling",
        default=True),
    Key("DataSourceSettings", "tree", "Sample to use for each .dsource or .dprep file", "data_source_settings"),
    Key("DataSourceSubstitutions", "texts_by_name",
        "Replace a .dsource file with a different one without changing code", "data_source_substitutions"),
    Key("FetchOutputs", "fetch",
        "Outputs to download after the run: all, none, or files up to a size such as 500 MB (ML Workbench only)",
        "fetch_outputs", default="all"),
    Key("Keep", "kept_paths", "Files and folders outside of outputs/ to collect with the outputs, such as wandb/"
        " (ML Workbench only)", "keep", default=()),
    Key("Gpus", "gpus", "GPUs to reserve exclusively: a number, all, free, none, indexes (0,2), a UUID, a model (h200),"
        " or 1:40g (ML Workbench only)", "gpus"),
    Key("Retries", "count", "Maximum number of times to start the script again after a failure (ML Workbench only)",
        "retries", default=0),
    Key("RetryOn", "retry_causes", "Failures after which the script starts again: " + ", ".join(CAUSES) + "; default: "
        + ", ".join(DEFAULT_CAUSES) + " (ML Workbench only)", "retry_on", default=DEFAULT_CAUSES),
    Key("RetryDelay", "duration", "Time before the script starts again, such as 10s or 5m; doubles with each attempt"
        " (ML Workbench only)", "retry_delay", default=DEFAULT_DELAY),
    Key("Launcher", "choice", "Program that starts several processes of the script: none, torchrun, mpiexec, or"
        " accelerate (ML Workbench only)", "launcher", default=NO_LAUNCHER, choices=(NO_LAUNCHER, *LAUNCHERS)),
    Key("ProcessesPerNode", "processes", "Processes that the launcher starts: a number, or gpu for one per allocated"
        " GPU; default: gpu if GPUs are requested, otherwise 1 (ML Workbench only)", "processes_per_node"),
    Key("Description", "ignored", "Description in files created before September 2017; ignored"),
    Key("ManagedEnvironment", "flag",
        "Before September 2017, false meant that users managed the Python packages themselves",
        replacement="userManagedEnvironment in the .compute file"),
)

# Keys that exist only in April 2018 run configurations. ``modern`` maps the other keys to that format.
NESTED_KEYS = (
    Key("script", "text", "Script to run; script and arguments together correspond to ArgumentVector"),
    Key("arguments", "arguments", "Arguments for the script"),
    Key("environment.docker.enabled", "flag", "Run in a container, even if the target type does not use containers"),
    Key("environment.docker.baseImageRegistry.address", "word", "Image registry; mlw adds it before the image name"),
    Key("environment.docker.baseImageRegistry.username", "unused", "User name for the registry",
        replacement="`docker login` on the target"),
    Key("environment.docker.baseImageRegistry.password", "unused", "Password for the registry; never read",
        replacement="`docker login` on the target"),
    Key("batchai", "elsewhere", "Azure Batch AI settings; not supported"),
    Key("containerInstance", "elsewhere", "Azure Container Instances settings; not supported"),
)

DEPENDENCIES = (
    Key("name", "text", "Name of the environment", "name", default="project_environment"),
    Key("channels", "texts", "Conda channels in order of priority; default: conda-forge", "channels", default=()),
    Key("dependencies", "packages", "Conda packages, and pip packages in a nested list named pip", "dependencies"),
    Key("prefix", "ignored", "Folder of the exported environment; ignored"),
    Key("variables", "retired", "Environment variables of a conda environment",
        replacement="EnvironmentVariables in the run configuration"),
)

SPARK_DEPENDENCIES = (
    Key("configuration", "texts_by_name", "Spark properties", "configuration", nested_paths=("spark.configuration",)),
    Key("repositories", "texts", "Maven repositories in addition to Maven Central", "repositories", default=(),
        nested_paths=("environment.spark.repositories",)),
    Key("packages", "coordinates", "Maven packages: group, artifact, version", "packages", default=(),
        nested_paths=("environment.spark.packages",)),
    Key("version", "ignored", "Version of the file format"),
)
# fmt: on

# Minimum similarity for suggestions: baseImage suggests baseDockerImage (0.75), but CondaChannel suggests nothing.
_MIN_SIMILARITY = 0.7


def applies_to(key: Key) -> tuple[str, ...]:
    """Return the built-in compute types that support a key, or () if it does not depend on the type."""
    return () if key.name == TYPE.name else tuple(row.name for row in BUILT_IN if row.has_key(key))


def required_by(key: Key) -> tuple[str, ...]:
    """Return the built-in compute types that require a key."""
    return tuple(row.name for row in BUILT_IN if row.requires(key))


def closest_match(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that was probably meant, ignoring case, or None if none is similar."""
    spelled = {candidate.lower(): candidate for candidate in candidates}
    matches = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=_MIN_SIMILARITY)
    return spelled[matches[0]] if matches else None


def normalize_key(name: str) -> str:
    """Return the canonical spelling of a key. ArgumentVector and argumentVector are the same key."""
    return name[:1].lower() + name[1:]
