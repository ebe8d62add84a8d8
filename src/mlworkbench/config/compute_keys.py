"""Keys of ``.compute`` files, grouped by their use in compute types.

``targets.types`` lists the keys of each type. ``config.keys.COMPUTE`` is the table of all keys.
"""

from __future__ import annotations

from ..remote.shared.containers import SUGGESTED_IMAGE
from .key import Key

# Formatted as a table: one or two lines per key.
# fmt: off
TYPE = Key("type", "choice", "Type of the compute target", "type", open=True, plugins="targets")

SSH_KEYS = (
    Key("address", "word", "IP address or host name of the machine", "address"),
    Key("username", "word", "User name for SSH", "username"),
    Key("port", "port", "SSH port, if it is not 22 (ML Workbench only)", "port"),
    Key("jumpHost", "word", "SSH jump host, as user@host:port (ML Workbench only)", "jump_host"),
    Key("password", "secret", "Password reference written by Azure ML Workbench; ML Workbench stores no passwords in"
        " files", "password"),
)

_IMAGE = (
    Key("baseDockerImage", "word", "Container image", "base_docker_image",
        default=SUGGESTED_IMAGE, nested_paths=("environment.docker.baseImage",)),
    Key("sharedVolumes", "flag", "Accepted for compatibility, but has no effect: containers mount the run's"
        " working copy of the project and the shared folder, never the project folder itself", "shared_volumes",
        default=False, nested_paths=("environment.docker.sharedVolumes",)),
)

_SHARE = Key("nativeSharedDirectory", "text",
    "Folder that persists across runs; scripts read its path from AZUREML_NATIVE_SHARE_DIRECTORY",
    "native_shared_directory")

_MEMORY = Key("memory", "amount", "Memory limit of the container, or memory of the Slurm job, such as 16g"
    " (ML Workbench only)", "memory")
_CPUS = Key("cpus", "number", "CPU limit of the container, such as 2.5, or CPUs of the Slurm job"
    " (ML Workbench only)", "cpus")

_LIMITS = (
    Key("nvidiaDocker", "flag", "Make the machine's NVIDIA GPUs available in the container", "nvidia_docker",
        default=False, nested_paths=("environment.docker.gpuSupport",)),
    Key("mounts", "texts", "Folders on the machine to mount into the container, such as /data or /data:/inside:ro;"
        " allow them with `computetarget update --allow-mount` (ML Workbench only)", "mounts"),
    Key("shmSize", "amount", "Shared memory size of the container, such as 8g; needed by PyTorch data loaders with"
        " workers (ML Workbench only)", "shm_size"),
    _MEMORY, _CPUS,
    Key("network", "choice", "Network of the container; allow networks other than bridge and none with"
        " `computetarget update --allow-network` (ML Workbench only)", "network",
        choices=("bridge", "none", "host"), open=True),
    Key("keepEntrypoint", "flag", "Start the script through the image's ENTRYPOINT (ML Workbench only)",
        "keep_entrypoint", default=False),
    Key("registryUsername", "word", "User name for the image's private registry; mlw prompts for the password or reads"
        " it from the keyring (ML Workbench only)", "registry_username"),
)

_PYTHON = (
    Key("userManagedEnvironment", "flag", "true: you manage the Python packages yourself (default on local and"
        " remote); false: mlw installs the packages in CondaDependenciesFile (default on all other types)",
        "user_managed_environment",
        nested_paths=("environment.python.userManagedDependencies",)),
    Key("pythonLocation", "text", "Python interpreter that runs the script: a path, or a name to look up on PATH",
        "python_location",
        nested_paths=("environment.python.interpreterPath",)),
    Key("sparkSubmitLocation", "text", "Path of the spark-submit program", "spark_submit_location"),
)

SPARK_KEYS = (
    Key("sparkMaster", "word", "URL of the Spark master: spark://host:7077, or yarn (ML Workbench only)",
        "spark_master"),
    Key("yarnDeployMode", "choice", "Where YARN runs the driver: client (on the target) or cluster (inside the cluster,"
        " where mlw cannot collect metrics and outputs)", "yarn_deploy_mode",
        default="cluster", choices=("cluster", "client"), nested_paths=("hdi.yarnDeployMode",)),
)

_SLURM = (
    Key("partition", "word", "Slurm partition; default: that of the cluster (ML Workbench only)", "partition"),
    Key("account", "word", "Slurm account that the job is charged to (ML Workbench only)", "account"),
    Key("qos", "word", "Slurm quality of service (ML Workbench only)", "qos"),
    Key("constraint", "text", "Features that the node must have, such as a100&nvlink (ML Workbench only)",
        "constraint"),
    Key("time", "time_limit", "Time limit of the Slurm job: 90 (minutes), 2:00:00, or 1-12:00 (days-hours:minutes);"
        " a shorter `--timeout` of the run reduces it (ML Workbench only)", "time"),
    Key("setUp", "texts", "Shell lines that the job executes before the run, such as `module load cuda`"
        " (ML Workbench only)", "set_up"),
    Key("extraOptions", "sbatch_options", "More options of sbatch, such as --exclude=n1, one per item"
        " (ML Workbench only)", "extra_options"),
)
SLURM_KEYS = (*_SLURM, _MEMORY, _CPUS)

_OBSOLETE = (
    Key("cluster", "flag", "Obsolete (May 2017 format). cluster: true with native: true means type cluster; both false"
        " mean remotedocker",
        replacement="type: cluster"),
    Key("native", "flag", "Obsolete (May 2017 format). native: true with cluster: true means type cluster; both false"
        " mean remotedocker",
        replacement="type: remote"),
)
# fmt: on

COMMON_KEYS = (TYPE, _SHARE, *_PYTHON)
CONTAINER_KEYS = (*_IMAGE, *_LIMITS)
# In the order used in new files and in the reference.
ALL_KEYS = (TYPE, *SSH_KEYS, *_IMAGE, _SHARE, *_LIMITS, *_PYTHON, *SPARK_KEYS, *_SLURM, *_OBSOLETE)
