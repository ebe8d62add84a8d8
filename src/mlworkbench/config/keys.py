"""Every key of the project's files, once: type, default, where it applies, one sentence of documentation.

The readers, their messages and the reference pages are driven from here. Names and defaults are the
original's; keys that only ML Workbench knows say so.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from ..remote.complaints import SUGGESTED_IMAGE

# A small image with glibc, and with a Python for those who look after the environment themselves.
DEFAULT_IMAGE = SUGGESTED_IMAGE

# `docker` and `localdocker` were the same thing in the original; its samples use both.
SAME_TYPE = {"localdocker": "docker"}
TYPES = ("local", "docker", "remote", "remotedocker", "cluster")
IN_CONTAINER = ("docker", "remotedocker")
OVER_SSH = ("remote", "remotedocker", "cluster")
USES_CONDA = ("docker", "remotedocker", "cluster")


def is_elsewhere(kind: str, address: str | None) -> bool:
    """Whether a target is another machine. A cluster may also be reached from this one."""
    return kind in OVER_SSH and (kind != "cluster" or address is not None)


@dataclass(frozen=True)
class Key:
    """One key of one kind of file. ``kind`` names the reader in ``config.readers``."""

    name: str
    kind: str
    doc: str
    field: str | None = None  # of the value in model.py; None: known and kept, but without effect
    default: object = None
    types: tuple[str, ...] = ()  # compute types it has an effect on; empty: all
    required: tuple[str, ...] = ()  # compute types that cannot do without
    choices: tuple[str, ...] = ()
    open: bool = False  # there are other choices, too
    plugins: str = ""  # group of ``registry`` that they come from; they may be any if it is empty
    instead: str | None = None  # for a retired key: what to write today
    was: tuple[str, ...] = ()  # names it had before
    modern: tuple[str, ...] = ()  # where it stands in a run configuration of April 2018


# One key on a line or two: it is a table, and reads as one.
# fmt: off
COMPUTE = (
    Key("type", "choice", "Type of the compute target", "type", choices=TYPES, open=True,
        plugins="targets"),
    Key("address", "word", "IP address or host name of the machine", "address",
        types=OVER_SSH, required=("remote", "remotedocker")),
    Key("username", "word", "User name for SSH", "username", types=OVER_SSH),
    Key("port", "port", "SSH port, if it is not 22 (ML Workbench only)", "port", types=OVER_SSH),
    Key("jumpHost", "word", "SSH jump host, as user@host:port (ML Workbench only)", "jump_host", types=OVER_SSH),
    Key("password", "secret", "Password reference written by Azure ML Workbench; ML Workbench stores no passwords in"
        " files", "password", types=OVER_SSH),
    Key("baseDockerImage", "word", "Container image", "base_docker_image",
        default=DEFAULT_IMAGE, types=IN_CONTAINER, modern=("environment.docker.baseImage",)),
    Key("sharedVolumes", "flag", "Accepted for compatibility, but has no effect: containers mount the run's"
        " working copy of the project and the shared folder, never the project folder itself", "shared_volumes",
        default=False, types=IN_CONTAINER, modern=("environment.docker.sharedVolumes",)),
    Key("nativeSharedDirectory", "text",
        "Folder that persists across runs; scripts read its path from AZUREML_NATIVE_SHARE_DIRECTORY",
        "native_shared_directory", types=TYPES),
    Key("nvidiaDocker", "flag", "Make the machine's NVIDIA GPUs available in the container", "nvidia_docker",
        default=False, types=IN_CONTAINER, modern=("environment.docker.gpuSupport",)),
    Key("mounts", "texts", "Folders on the machine to mount into the container, such as /data or /data:/inside:ro;"
        " allow them with `computetarget update --allow-mount` (ML Workbench only)", "mounts", types=IN_CONTAINER),
    Key("shmSize", "amount", "Shared memory size of the container, such as 8g; needed by PyTorch data loaders with"
        " workers (ML Workbench only)", "shm_size", types=IN_CONTAINER),
    Key("memory", "amount", "Memory limit of the container, such as 16g (ML Workbench only)", "memory",
        types=IN_CONTAINER),
    Key("cpus", "number", "CPU limit of the container, such as 2.5 (ML Workbench only)", "cpus",
        types=IN_CONTAINER),
    Key("network", "choice", "Network of the container; allow networks other than bridge and none with"
        " `computetarget update --allow-network` (ML Workbench only)", "network", types=IN_CONTAINER,
        choices=("bridge", "none", "host"), open=True),
    Key("keepEntrypoint", "flag", "Start the script through the image's ENTRYPOINT (ML Workbench only)",
        "keep_entrypoint", default=False, types=IN_CONTAINER),
    Key("registryUsername", "word", "User name for the image's private registry; mlw prompts for the password or reads"
        " it from the keyring (ML Workbench only)", "registry_username", types=IN_CONTAINER),
    Key("userManagedEnvironment", "flag", "true: you manage the Python packages yourself (default on local and"
        " remote); false: mlw installs the packages in CondaDependenciesFile (default on all other types)",
        "user_managed_environment", types=TYPES,
        modern=("environment.python.userManagedDependencies",)),
    Key("pythonLocation", "text", "Python interpreter that runs the script: a path, or a name to look up on PATH",
        "python_location", types=TYPES,
        modern=("environment.python.interpreterPath",)),
    Key("sparkSubmitLocation", "text", "Path of the spark-submit program", "spark_submit_location",
        types=TYPES),
    Key("sparkMaster", "word", "URL of the Spark master: spark://host:7077, or yarn (ML Workbench only)",
        "spark_master", types=("cluster",)),
    Key("yarnDeployMode", "choice", "Where YARN runs the driver: client (on the target) or cluster (inside the cluster,"
        " where mlw cannot collect metrics and outputs)", "yarn_deploy_mode",
        default="cluster", types=("cluster",), choices=("cluster", "client"), modern=("hdi.yarnDeployMode",)),
    Key("cluster", "flag", "Obsolete (May 2017 format). cluster: true with native: true means type cluster; both false"
        " mean remotedocker",
        instead="type: cluster"),
    Key("native", "flag", "Obsolete (May 2017 format). native: true with cluster: true means type cluster; both false"
        " mean remotedocker",
        instead="type: remote"),
)

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


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, whatever its capitals."""
    spelled = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), spelled, n=1, cutoff=NEAR)
    return spelled[close[0]] if close else None


def same_key(name: str) -> str:
    """Form in which two spellings of a key are equal: ArgumentVector and argumentVector are one key."""
    return name[:1].lower() + name[1:]
