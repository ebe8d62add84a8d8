"""Everything about a run is decided here, as a value, before anything happens. Pure: reads nothing, writes nothing."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass

from .config.project import Project
from .consents import resolved_prefixes
from .environments.site import Settled
from .frameworks.framework import Made, Setting
from .model import Command, Container, RunSpec, Snapshot
from .remote.shared.gpu_request import FREE
from .request import Request
from .sweep import Sweep
from .targets.ground import Ground

# What a script on this machine sees of the caller's environment. Everything else stays out: it would make runs
# unrepeatable, and it is where secrets are. The README lists the same names.
INHERITED = tuple(
    # the user and the language
    "PATH HOME USER LOGNAME SHELL TMPDIR TZ LANG LANGUAGE LC_ALL LC_CTYPE LC_COLLATE LC_MESSAGES LC_MONETARY"
    " LC_NUMERIC LC_TIME"
    # where libraries, GPUs and tools are found
    " LD_LIBRARY_PATH DYLD_LIBRARY_PATH DYLD_FALLBACK_LIBRARY_PATH CUDA_HOME CUDA_PATH CUDA_VISIBLE_DEVICES"
    " CUDA_DEVICE_ORDER NVIDIA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES JAVA_HOME SPARK_HOME"
    " SPARK_CONF_DIR SPARK_LOCAL_IP SPARK_LOCAL_DIRS HADOOP_HOME HADOOP_CONF_DIR YARN_CONF_DIR KRB5CCNAME"
    " VIRTUAL_ENV CONDA_PREFIX OMP_NUM_THREADS MKL_NUM_THREADS"
    # the way to the network
    " HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy SSL_CERT_FILE SSL_CERT_DIR"
    " REQUESTS_CA_BUNDLE CURL_CA_BUNDLE"
    # Windows cannot start a program without these
    " SYSTEMROOT SYSTEMDRIVE WINDIR COMSPEC PATHEXT TEMP TMP USERPROFILE HOMEDRIVE HOMEPATH APPDATA LOCALAPPDATA"
    " PROGRAMDATA PROGRAMFILES NUMBER_OF_PROCESSORS".split()
)


@dataclass(frozen=True)
class Parts:
    """All that a plan is made from."""

    project: Project
    made: Made  # the command
    setting: Setting  # what it was made from
    settled: Settled  # the environment
    snapshot: Snapshot
    request: Request
    ground: Ground  # the machine
    starter: str = "detached"  # as the target names it
    user: str | None = None  # who submits it
    sweep: Sweep | None = None


def plan(parts: Parts, run_id: str, key: str, created: float) -> RunSpec:
    """The run, decided."""
    runconfig = parts.setting.runconfig
    return RunSpec(
        id=run_id,
        key=key,
        number=0,  # the history counts
        name=parts.request.name,
        project_id=parts.project.id,
        project_name=parts.project.name,
        project_path=str(parts.project.root),
        created=created,
        compute=parts.setting.compute,
        runconfig=runconfig.name,
        framework=runconfig.framework,
        entry=parts.setting.entry,
        commands=(Command("run", parts.made.command),),
        environment=_environment(parts, run_id),
        inherit=INHERITED,
        secrets=parts.request.secret_names,
        snapshot=parts.snapshot.digest,
        git=parts.snapshot.git,
        lock=parts.settled.lock,
        prepare=runconfig.prepare_environment,
        path=parts.settled.path,
        container=_container(parts, run_id),
        starter=parts.starter,
        companions=parts.made.companions,
        gpus=_gpus(parts),
        timeout=parts.request.time_limit,
        tracked=runconfig.tracked_run,
        fetch=runconfig.fetch_outputs,
        tags=tuple(parts.request.tags),
        user=parts.user,
        spoken=runconfig.metrics_from_log,
        given=parts.request.environment,
    )


def _container(parts: Parts, run_id: str) -> Container | None:
    ground = parts.ground
    if ground.engine is None:
        return None
    from .targets.container import Places, contain  # noqa: PLC0415 - runs without a container need not wait for it

    places = Places(
        root=parts.setting.root,
        inrun=parts.setting.inrun,
        run_id=run_id,
        project_id=parts.project.id,
        uid=ground.uid,
        gid=ground.gid,
        user=ground.user,
        share=shared_folder(ground, parts.project).rstrip("/"),
        memory=ground.memory,
        environment=parts.settled.mounts,
        spark="spark" in parts.made.companions,
        libc=parts.settled.libc,
        resolved=resolved_prefixes(ground.allowed, ground.places),
    )
    asked = _gpus(parts)
    # Which ones it will be is decided on the target, when the run's turn has come.
    return contain(parts.setting.compute, ground.engine, places, ("all",) if asked not in (None, "none") else ())


def _gpus(parts: Parts) -> str | None:
    """What the run asks for. Without a request it takes no lease and never waits, but for a container with GPUs."""
    asked = parts.request.gpu_request or parts.setting.runconfig.gpus
    if asked is not None or parts.ground.engine is None or not parts.setting.compute.nvidia_docker:
        return asked
    return FREE


def shared_folder(ground: Ground, project: Project) -> str:
    """The project's shared folder on the target. Scripts append a file name without a separator of their own."""
    join = posixpath.join if ground.share.startswith("/") else os.path.join
    return join(ground.share, _folder_name(project), "")


def _folder_name(project: Project) -> str:
    """Of the project's shared folder: readable, unique, and no path whatever the project calls itself."""
    stem = "".join(letter if letter.isalnum() else "-" for letter in project.name)[:40]
    return f"{stem}-{project.id[:8]}"


def _environment(parts: Parts, run_id: str) -> dict[str, str]:
    setting, asked = parts.setting, dict(parts.setting.variables)
    behind = asked.pop("PYTHONPATH", None)
    tracked = setting.runconfig.tracked_run
    separator = ":" if setting.inrun.startswith("/") else os.pathsep  # a target is a Linux machine, this one may not be
    return {
        "PYTHONUNBUFFERED": "1",  # stdout is a file: a line would show up only when 8 kB are full
        **({"MLFLOW_TRACKING_URI": "mlw:run"} if tracked else {}),  # a server that the user names wins
        **parts.settled.variables,
        **asked,
        "PYTHONPATH": separator.join([setting.inrun, behind] if behind else [setting.inrun]),
        "AZUREML_NATIVE_SHARE_DIRECTORY": shared_folder(parts.ground, parts.project),
        **({} if tracked else {"MLW_TRACKING": "off"}),
        "MLW_RUN_ID": run_id,
        "MLW_RUN_FOLDER": setting.root.run(run_id).path,
    }
