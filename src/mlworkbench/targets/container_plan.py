"""Decide all options of the container for the user's command on ``docker`` and ``remotedocker``.

This module has no side effects. ``remote/engine.py`` converts the result into an argument list, and
``remote/container_work.py`` runs it.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from ..config.keys import DEFAULT_IMAGE
from ..container_consents import normal
from ..errors import ConfigError
from ..model import Compute, Container, RunSpec
from ..remote.engine import run_command
from ..remote.shared.containers import SHARE
from ..remote.shared.layout import Root

_SHM = "2g"
_LEAST_SHM = 64 * 1024 * 1024


@dataclass(frozen=True)
class Engine:
    """The container engine of the target."""

    program: str  # path
    kind: str = "docker"  # or "podman"
    rootless: bool = False
    socket: str | None = None
    selinux: bool = False


@dataclass(frozen=True)
class Places:
    """Facts that a container plan needs: paths on the target, the run, the user, and limits of the target."""

    root: Root
    inrun: str  # folder of the in-run library
    run_id: str
    project_id: str
    uid: int
    gid: int
    user: str
    share: str | None = None  # the project's shared folder, if it has one
    memory: int | None = None  # total memory in bytes
    environment: tuple[str, ...] = ()  # folders of a Python that mlw installed
    spark: bool = False  # mount a Spark event log folder
    ranks: bool = False  # mount a folder for records of several processes
    libc: str | None = None  # oldest glibc that the environment supports
    resolved: tuple[tuple[str, str], ...] = ()  # see Container.resolved


def plan_container(compute: Compute, engine: Engine, places: Places, gpus: tuple[str, ...] | None = None) -> Container:
    """Return the container for a run.

    ``gpus``: UUIDs or ``("all",)``. If None, the setting ``nvidiaDocker`` decides.
    """
    image = compute.base_docker_image or DEFAULT_IMAGE
    run = places.root.run(places.run_id)
    home = posixpath.join(places.root.path, "homes", places.project_id)
    user = user_in(engine, places.uid, places.gid)
    devices = gpus if gpus is not None else (("all",) if compute.nvidia_docker else None)
    return Container(
        engine=engine.kind,
        program=engine.program,
        socket=engine.socket,
        image=image,
        name=f"mlw-{places.run_id}",
        workdir=run.work,
        user=user,
        mounts=(
            (places.inrun, places.inrun, "ro"),
            *((folder, folder, "ro") for folder in places.environment),
            (home, home, "rw"),
            *(((run.spark, run.spark, "rw"),) if places.spark else ()),
            *(((run.ranks, run.ranks, "rw"),) if places.ranks else ()),
            *(((run.passwd, "/etc/passwd", "ro"),) if places.spark and not user.startswith("0:") else ()),
            *(((places.share, SHARE.rstrip("/"), "rw"),) if places.share else ()),
            *mounts(compute),
        ),
        resolved=places.resolved,
        environment=_environment(home, places),
        labels={"mlw.run": places.run_id, "mlw.project": places.project_id, "mlw.user": places.user},
        gpus=devices or None,
        shm_size=compute.shm_size or _shared_memory(places.memory),
        network=compute.network,
        memory=compute.memory,
        cpus=compute.cpus,
        keep_entrypoint=compute.keep_entrypoint,
        options=options_for(engine),
        registry=registry_of(compute, image),
        libc=places.libc,
    )


def command(spec: RunSpec, root: Root) -> list[str]:
    """Return the engine command that ``--dry-run`` shows."""
    return run_command(spec.to_json(), root.run(spec.id))


def user_in(engine: Engine, uid: int, gid: int) -> str:
    """Return the container user whose files belong to the user. Rootless Docker maps root to the user."""
    return "0:0" if engine.kind == "docker" and engine.rootless else f"{uid}:{gid}"


def probe(engine: Engine, uid: int, gid: int, image: str) -> dict[str, object]:
    """Return the container that examines an image, for ``remote.engine.probe_command``."""
    return {
        "engine": engine.kind,
        "program": engine.program,
        "socket": engine.socket,
        "image": image,
        "user": user_in(engine, uid, gid),
        "options": list(options_for(engine)),
    }


def _environment(home: str, places: Places) -> dict[str, str]:
    """Return variables with the user's name and home folder, which are not defined in the image."""
    variables = {"HOME": home, "USER": places.user, "LOGNAME": places.user}
    if places.share:
        # The value ends with a slash, because scripts append a file name directly.
        variables["AZUREML_NATIVE_SHARE_DIRECTORY"] = SHARE
    return variables


def options_for(engine: Engine) -> tuple[str, ...]:
    options = ["--userns=keep-id"] if engine.kind == "podman" and engine.rootless else []
    # mlw folders have no SELinux label for containers, and mlw does not relabel user files.
    return (*options, *(("--security-opt", "label=disable") if engine.selinux else ()))


def _shared_memory(memory: int | None) -> str:
    """Return the size of ``/dev/shm``: half of the memory, as on Linux.

    The engine's default of 64 MB is too small for data loaders.
    """
    return _SHM if memory is None else str(max(_LEAST_SHM, memory // 2))


def registry_of(compute: Compute, image: str) -> dict[str, str] | None:
    """Return the user and registry. The password is passed as the secret ``REGISTRY_PASSWORD``."""
    if not compute.registry_username:
        return None
    first, _, rest = image.partition("/")
    server = first if rest and ("." in first or ":" in first or first == "localhost") else ""
    return {"server": server, "username": compute.registry_username}


def mounts(compute: Compute) -> tuple[tuple[str, str, str], ...]:
    """Parse ``mounts`` entries: ``source[:target][:ro]`` with absolute paths on the target."""
    parsed = []
    for text in compute.mounts:
        parts = text.split(":")
        mode = parts.pop() if len(parts) > 1 and parts[-1] in ("ro", "rw") else "rw"
        source, target = parts[0], parts[-1]
        if len(parts) > 2 or not all(posixpath.isabs(path) for path in parts) or not text.isprintable():
            raise ConfigError(
                f"{compute.name}.compute: mounts: {text} is not a valid mount",
                "use /folder/on/the/machine or /folder:/folder/inside, optionally with :ro at the end",
            )
        parsed.append((normal(source), normal(target), mode))
    return tuple(parsed)
