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
    Key("type", "choice", "What kind of machine this is", "type", choices=TYPES, open=True,
        plugins="targets"),
    Key("address", "word", "IP address or full name of the machine", "address",
        types=OVER_SSH, required=("remote", "remotedocker")),
    Key("username", "word", "User to log in as over SSH", "username", types=OVER_SSH),
    Key("port", "port", "Port of the SSH server, if it is not 22 (ML Workbench only)", "port", types=OVER_SSH),
    Key("jumpHost", "word", "Host to go through, as user@host:port (ML Workbench only)", "jump_host", types=OVER_SSH),
    Key("password", "secret", "A pointer left by the original; ML Workbench keeps no secret in files", "password",
        types=OVER_SSH),
    Key("baseDockerImage", "word", "Image that the container is started from", "base_docker_image",
        default=DEFAULT_IMAGE, types=IN_CONTAINER, modern=("environment.docker.baseImage",)),
    Key("sharedVolumes", "flag", "Kept for old files: containers always see the run's own copy of the project and the"
        " shared folder, and never the project itself", "shared_volumes",
        default=False, types=IN_CONTAINER, modern=("environment.docker.sharedVolumes",)),
    Key("nativeSharedDirectory", "text",
        "Folder that outlives runs; scripts find it in AZUREML_NATIVE_SHARE_DIRECTORY", "native_shared_directory",
        types=TYPES),
    Key("nvidiaDocker", "flag", "Give the container the machine's NVIDIA GPUs", "nvidia_docker",
        default=False, types=IN_CONTAINER, modern=("environment.docker.gpuSupport",)),
    Key("mounts", "texts", "Folders of the machine that containers see: /data, or /data:/inside:ro;"
        " `computetarget update --allow-mount` must allow them (ML Workbench only)", "mounts", types=IN_CONTAINER),
    Key("shmSize", "amount", "Shared memory of the container, such as 8g; PyTorch's loaders need it"
        " (ML Workbench only)", "shm_size", types=IN_CONTAINER),
    Key("memory", "amount", "Memory that the container may use, such as 16g (ML Workbench only)", "memory",
        types=IN_CONTAINER),
    Key("cpus", "number", "Processors that the container may use, such as 2.5 (ML Workbench only)", "cpus",
        types=IN_CONTAINER),
    Key("network", "choice", "Network of the container; others than bridge and none must be allowed by"
        " `computetarget update --allow-network` (ML Workbench only)", "network", types=IN_CONTAINER,
        choices=("bridge", "none", "host"), open=True),
    Key("keepEntrypoint", "flag", "Start the script through the image's own ENTRYPOINT (ML Workbench only)",
        "keep_entrypoint", default=False, types=IN_CONTAINER),
    Key("registryUsername", "word", "User at the image's private registry; the password is asked for, or kept in the"
        " keyring (ML Workbench only)", "registry_username", types=IN_CONTAINER),
    Key("userManagedEnvironment", "flag", "true: you look after the Python packages yourself, as is usual on local and"
        " remote; false: they are installed from CondaDependenciesFile, as is usual in containers",
        "user_managed_environment", types=TYPES,
        modern=("environment.python.userManagedDependencies",)),
    Key("pythonLocation", "text", "Python that runs the script: a path, or a name to look up on PATH",
        "python_location", types=TYPES,
        modern=("environment.python.interpreterPath",)),
    Key("sparkSubmitLocation", "text", "The spark-submit program to use", "spark_submit_location",
        types=TYPES),
    Key("sparkMaster", "word", "Master of the Spark cluster: spark://host:7077, or yarn (ML Workbench only)",
        "spark_master", types=("cluster",)),
    Key("yarnDeployMode", "choice", "Where YARN runs the driver: client, on the target itself, or cluster, from where"
        " no metrics and outputs come home", "yarn_deploy_mode",
        default="cluster", types=("cluster",), choices=("cluster", "client"), modern=("hdi.yarnDeployMode",)),
    Key("cluster", "flag", "In May 2017, true together with native: a cluster; false with native: remotedocker",
        instead="type: cluster"),
    Key("native", "flag", "In May 2017, true together with cluster: a cluster; false with cluster: remotedocker",
        instead="type: remote"),
)

RUNCONFIG = (
    Key("ArgumentVector", "arguments",
        "Script and arguments of a submit that names no script; $file is the file chosen in the app",
        "argument_vector", default=(), modern=("script", "arguments")),
    Key("Target", "name", "Name of the .compute file to run on; the file's own name if left out", "target",
        modern=("target",)),
    Key("EnvironmentVariables", "variables", "Environment variables of the script", "environment_variables",
        modern=("environment.environmentVariables",)),
    Key("Framework", "choice", "Python, or PySpark to start the script in a Spark session", "framework",
        default="PySpark", choices=("Python", "PySpark"), open=True, plugins="frameworks", modern=("framework",)),
    Key("CondaDependenciesFile", "inside", "Packages of the environment, relative to the project",
        "conda_dependencies_file", default="aml_config/conda_dependencies.yml", was=("CondaFile",),
        modern=("environment.python.condaDependenciesFile",)),
    Key("EnvironmentPlugin", "word", "Name of an installed plugin that settles the environment in place of"
        " CondaDependenciesFile (ML Workbench only)", "environment"),
    Key("SparkDependenciesFile", "inside", "Packages and settings of Spark, relative to the project",
        "spark_dependencies_file", default="aml_config/spark_dependencies.yml"),
    Key("PrepareEnvironment", "flag", "Build the environment as part of the run; false: it must be there already,"
        " by `mlw experiment prepare`",
        "prepare_environment", default=True, modern=("prepareEnvironment",)),
    Key("TrackedRun", "flag", "Record metrics and outputs in the run history; false: nothing that the script logs is"
        " recorded, and lists leave the run out", "tracked_run", default=True,
        modern=("history.enabled",)),
    Key("MetricsFromLog", "flag", "Take lines that the script prints, such as `accuracy: 0.93` or `epoch 3 - loss: 0.5`"
        ", as metrics (ML Workbench only)", "metrics_from_log", default=False),
    Key("UseSampling", "flag", "Data sources use their active sample instead of all data", "use_sampling",
        default=True),
    Key("DataSourceSettings", "tree", "Sample to use, for each .dsource or .dprep file", "data_source_settings"),
    Key("DataSourceSubstitutions", "texts_by_name", "Replace one .dsource by another without changing code",
        "data_source_substitutions"),
    Key("FetchOutputs", "fetch",
        "Outputs to bring home: all, none, or those up to a size such as 500 MB (ML Workbench only)",
        "fetch_outputs", default="all"),
    Key("Gpus", "gpus", "GPUs to wait for and have alone: 2, all, free, none, 0,2, a UUID, h200, 1:40g"
        " (ML Workbench only)", "gpus"),
    Key("Description", "ignored", "A note for people, of the files before 2017-09"),
    Key("ManagedEnvironment", "flag", "Before 2017-09, false: you look after the Python packages yourself",
        instead="userManagedEnvironment in the .compute file"),
)

# What a run configuration of April 2018 has beyond the names that other keys have there (``modern``).
APRIL = (
    Key("script", "text", "The script; with arguments it is what ArgumentVector is elsewhere"),
    Key("arguments", "arguments", "Arguments of the script"),
    Key("environment.docker.enabled", "flag", "Run in a container, also on a target without one"),
    Key("environment.docker.baseImageRegistry.address", "word", "Registry of the image, put in front of its name"),
    Key("environment.docker.baseImageRegistry.username", "unused", "User at the registry",
        instead="`docker login` on the target"),
    Key("environment.docker.baseImageRegistry.password", "unused", "A secret, which is never read",
        instead="`docker login` on the target"),
    Key("batchai", "elsewhere", "Settings of Azure Batch AI; they have no meaning here"),
    Key("containerInstance", "elsewhere", "Settings of Azure Container Instances; they have no meaning here"),
)

DEPENDENCIES = (
    Key("name", "text", "Name of the environment", "name", default="project_environment"),
    Key("channels", "texts", "Conda channels, best first; conda-forge if there are none", "channels", default=()),
    Key("dependencies", "packages", "Conda packages, and pip's in a nested list named pip", "dependencies"),
    Key("prefix", "ignored", "Folder that the file was exported from"),
    Key("variables", "retired", "Environment variables of a conda environment",
        instead="EnvironmentVariables in the run configuration"),
)

SPARK_DEPENDENCIES = (
    Key("configuration", "texts_by_name", "Spark properties", "configuration", modern=("spark.configuration",)),
    Key("repositories", "texts", "Maven repositories to look in", "repositories", default=(),
        modern=("environment.spark.repositories",)),
    Key("packages", "coordinates", "Maven packages: group, artifact, version", "packages", default=(),
        modern=("environment.spark.packages",)),
    Key("version", "ignored", "Version of the file's own format"),
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
