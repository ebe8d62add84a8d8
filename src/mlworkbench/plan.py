"""Create the spec of a run, which contains all decisions about it. Performs no I/O."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .config.project_folder import Project
from .container_consents import resolved_prefixes
from .environments.selection_request import ResolvedEnvironment
from .frameworks.framework import FrameworkCommand, Setting
from .model import Command, Container, JsonDict, RunSpec, Snapshot
from .passed_variables import PassedVariables, given_variables
from .remote.shared.gpu_request import FREE
from .scheduler_plan import planned_retries
from .submit_request import Request
from .targets.target_facts import TargetFacts

if TYPE_CHECKING:
    from .sweep_axes import Sweep

# Environment variables that a script on this machine inherits. All others are left out, because they would make
# runs irreproducible and may contain secrets. docs/reference/environment-variables.md lists the same names.
INHERITED = tuple(
    # user and language
    "PATH HOME USER LOGNAME SHELL TMPDIR TZ LANG LANGUAGE LC_ALL LC_CTYPE LC_COLLATE LC_MESSAGES LC_MONETARY"
    " LC_NUMERIC LC_TIME"
    # locations of libraries, GPUs, and tools
    " LD_LIBRARY_PATH DYLD_LIBRARY_PATH DYLD_FALLBACK_LIBRARY_PATH CUDA_HOME CUDA_PATH CUDA_VISIBLE_DEVICES"
    " CUDA_DEVICE_ORDER NVIDIA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES JAVA_HOME SPARK_HOME"
    " SPARK_CONF_DIR SPARK_LOCAL_IP SPARK_LOCAL_DIRS HADOOP_HOME HADOOP_CONF_DIR YARN_CONF_DIR KRB5CCNAME"
    " VIRTUAL_ENV CONDA_PREFIX OMP_NUM_THREADS MKL_NUM_THREADS"
    # network access
    " HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy SSL_CERT_FILE SSL_CERT_DIR"
    " REQUESTS_CA_BUNDLE CURL_CA_BUNDLE"
    # Windows cannot start a program without these
    " SYSTEMROOT SYSTEMDRIVE WINDIR COMSPEC PATHEXT TEMP TMP USERPROFILE HOMEDRIVE HOMEPATH APPDATA LOCALAPPDATA"
    " PROGRAMDATA PROGRAMFILES NUMBER_OF_PROCESSORS".split()
)


@dataclass(frozen=True)
class Parts:
    """Inputs for a plan."""

    project: Project
    command: FrameworkCommand  # the user's command
    setting: Setting  # the data from which the command was created
    environment: ResolvedEnvironment  # the resolved environment
    snapshot: Snapshot
    request: Request
    target_facts: TargetFacts  # facts about the target's machine
    starter: str = "detached"  # how the supervisor is started
    user: str | None = None  # name of the submitting user
    sweep: Sweep | None = None
    # ID of the run whose checkpoints this run starts with, and their digest if they are sent to another machine
    resumed: tuple[str | None, str | None] = (None, None)
    processes: JsonDict | None = None  # see plan_processes
    scheduler: JsonDict | None = None  # see plan_scheduler
    passed: PassedVariables = field(default_factory=PassedVariables)  # variables of the user's shell


def plan(parts: Parts, run_id: str, key: str, created: float) -> RunSpec:
    """Return the spec of a run."""
    runconfig = parts.setting.runconfig
    return RunSpec(
        id=run_id,
        key=key,
        number=0,  # the history assigns the number
        name=parts.request.name,
        project_id=parts.project.id,
        project_name=parts.project.name,
        project_path=str(parts.project.root),
        created=created,
        compute=parts.setting.compute,
        runconfig=runconfig.name,
        framework=runconfig.framework,
        entry=parts.setting.entry,
        commands=(Command("run", parts.command.command),),
        environment=_environment(parts, run_id),
        inherit=INHERITED,
        secrets=parts.request.secret_names,
        snapshot=parts.snapshot.digest,
        git=parts.snapshot.git,
        lock=parts.environment.lock,
        prepare=runconfig.prepare_environment,
        path=parts.environment.path,
        container=_container(parts, run_id),
        starter=parts.starter,
        companions=parts.command.companions,
        scheduler=parts.scheduler,
        gpus=_gpus(parts) if parts.scheduler is None else None,  # a scheduler allocates GPUs without a queue of mlw
        processes=parts.processes,
        timeout=parts.request.time_limit,
        retries=planned_retries(parts.request, runconfig),
        resumed=parts.resumed[0],
        checkpoints=parts.resumed[1],
        tracked=runconfig.tracked_run,
        keep=runconfig.keep,
        fetch=runconfig.fetch_outputs,
        tags=(*parts.request.tags, *(f"goal.{name}={goal}" for name, goal in runconfig.metric_goals.items())),
        user=parts.user,
        spoken=runconfig.metrics_from_log,
        given=given_variables(parts.request),
        passed=tuple(parts.passed.values),
        unpassed=parts.passed.unpassed,
    )


def _container(parts: Parts, run_id: str) -> Container | None:
    target_facts = parts.target_facts
    if target_facts.engine is None:
        return None
    from .targets.container_plan import Places, plan_container  # noqa: PLC0415 - runs without a container need not wait for it

    places = Places(
        root=parts.setting.root,
        inrun=parts.setting.inrun,
        run_id=run_id,
        project_id=parts.project.id,
        uid=target_facts.uid,
        gid=target_facts.gid,
        user=target_facts.user,
        share=shared_folder(target_facts, parts.project).rstrip("/"),
        memory=target_facts.memory,
        environment=parts.environment.mounts,
        spark="spark" in parts.command.companions,
        libc=parts.environment.libc,
        ranks=parts.processes is not None,
        resolved=resolved_prefixes(target_facts.allowed, target_facts.places),
    )
    gpu_request = _gpus(parts)
    # The target chooses the GPUs when the run is first in the queue.
    return plan_container(
        parts.setting.compute, target_facts.engine, places, ("all",) if gpu_request not in (None, "none") else ()
    )


def _gpus(parts: Parts) -> str | None:
    """Return the GPU request.

    A run without one takes no lease and never waits. Containers with GPUs default to FREE.
    """
    return requested_gpus(parts.request, parts.setting, parts.target_facts)


def requested_gpus(request: Request, setting: Setting, target_facts: TargetFacts) -> str | None:
    gpu_request = request.gpu_request or setting.runconfig.gpus
    if gpu_request is not None or target_facts.engine is None or not setting.compute.nvidia_docker:
        return gpu_request
    return FREE


def shared_folder(target_facts: TargetFacts, project: Project) -> str:
    """Return the project's shared folder on the target.

    It ends with a separator, for scripts that append a file name.
    """
    join = posixpath.join if target_facts.share.startswith("/") else os.path.join
    return join(target_facts.share, _folder_name(project), "")


def _folder_name(project: Project) -> str:
    """Return a readable, unique name for the project's shared folder, safe for any project name."""
    stem = "".join(letter if letter.isalnum() else "-" for letter in project.name)[:40]
    return f"{stem}-{project.id[:8]}"


def _environment(parts: Parts, run_id: str) -> dict[str, str]:
    setting, variables = parts.setting, dict(parts.setting.variables)
    behind = variables.pop("PYTHONPATH", None)
    tracked = setting.runconfig.tracked_run
    separator = ":" if setting.inrun.startswith("/") else os.pathsep  # targets are Linux machines
    return {
        "PYTHONUNBUFFERED": "1",  # stdout is a file, so Python would buffer 8 kB before it writes
        **({"MLFLOW_TRACKING_URI": "mlw:run"} if tracked else {}),  # a server that the user configures takes precedence
        **parts.environment.variables,
        **variables,
        "PYTHONPATH": separator.join([setting.inrun, behind] if behind else [setting.inrun]),
        "AZUREML_NATIVE_SHARE_DIRECTORY": shared_folder(parts.target_facts, parts.project),
        **({} if tracked else {"MLW_TRACKING": "off"}),
        "MLW_RUN_ID": run_id,
        "MLW_RUN_FOLDER": setting.root.run(run_id).path,
        "MLW_CHECKPOINTS": setting.root.run(run_id).checkpoints,
        "MLW_ATTEMPT": "1",
    }
