"""What stands around the user's command on ``docker`` and ``remotedocker``: one container, decided to the last option.

Pure: reads nothing, asks nobody. ``remote/engine.py`` turns the value into an argument list, ``remote/container.py``
carries it out.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from ..config.keys import DEFAULT_IMAGE
from ..consents import normal
from ..errors import ConfigError
from ..model import Compute, Container, RunSpec
from ..remote.engine import run_command
from ..remote.shared.containers import SHARE
from ..remote.shared.layout import Root

_SHM = "2g"
_LEAST_SHM = 64 * 1024 * 1024


@dataclass(frozen=True)
class Engine:
    """The engine of the target, as it was found there."""

    program: str  # path
    kind: str = "docker"  # or "podman"
    rootless: bool = False
    socket: str | None = None
    selinux: bool = False


@dataclass(frozen=True)
class Places:
    """Paths on the target, and whose they are."""

    root: Root
    inrun: str  # folder of the in-run library
    run_id: str
    project_id: str
    uid: int
    gid: int
    user: str
    share: str | None = None  # the project's shared folder, if it has one
    memory: int | None = None  # bytes the machine has
    environment: tuple[str, ...] = ()  # folders of the Python that we made, if it is ours
    spark: bool = False  # a Spark application writes down what it does
    libc: str | None = None  # the oldest glibc that it runs on
    resolved: tuple[tuple[str, str], ...] = ()  # as Container.resolved


def contain(compute: Compute, engine: Engine, places: Places, gpus: tuple[str, ...] | None = None) -> Container:
    """The container of one run. ``gpus``: UUIDs, or ("all",); None: what nvidiaDocker says."""
    image = compute.base_docker_image or DEFAULT_IMAGE
    run = places.root.run(places.run_id)
    home = posixpath.join(places.root.path, "homes", places.project_id)
    user = user_in(engine, places.uid, places.gid)
    wanted = gpus if gpus is not None else (("all",) if compute.nvidia_docker else None)
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
            *(((run.users, "/etc/passwd", "ro"),) if places.spark and not user.startswith("0:") else ()),
            *(((places.share, SHARE.rstrip("/"), "rw"),) if places.share else ()),
            *mounts(compute),
        ),
        resolved=places.resolved,
        environment=_environment(home, places),
        labels={"mlw.run": places.run_id, "mlw.project": places.project_id, "mlw.user": places.user},
        gpus=wanted or None,
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
    """What ``--dry-run`` shows: the one call of the engine."""
    return run_command(spec.to_json(), root.run(spec.id))


def user_in(engine: Engine, uid: int, gid: int) -> str:
    """Files in ``outputs/`` belong to the user: a rootless Docker calls that user root."""
    return "0:0" if engine.kind == "docker" and engine.rootless else f"{uid}:{gid}"


def probe(engine: Engine, uid: int, gid: int, image: str) -> dict[str, object]:
    """The container that looks at an image, for ``remote.engine.probe_command``."""
    return {
        "engine": engine.kind,
        "program": engine.program,
        "socket": engine.socket,
        "image": image,
        "user": user_in(engine, uid, gid),
        "options": list(options_for(engine)),
    }


def _environment(home: str, places: Places) -> dict[str, str]:
    """Libraries ask who they are, and the image's list of users does not know."""
    found = {"HOME": home, "USER": places.user, "LOGNAME": places.user}
    if places.share:
        # Scripts append a file name to it without a separator of their own.
        found["AZUREML_NATIVE_SHARE_DIRECTORY"] = SHARE
    return found


def options_for(engine: Engine) -> tuple[str, ...]:
    found = ["--userns=keep-id"] if engine.kind == "podman" and engine.rootless else []
    # Our folders carry no label that a container may touch, and relabelling a user's files is not for us to do.
    return (*found, *(("--security-opt", "label=disable") if engine.selinux else ()))


def _shared_memory(memory: int | None) -> str:
    """As Linux has it: half of the memory, taken only when used. An engine's own 64 MB are too few for workers."""
    return _SHM if memory is None else str(max(_LEAST_SHM, memory // 2))


def registry_of(compute: Compute, image: str) -> dict[str, str] | None:
    """Who logs in, and where; the password travels among the secrets (``remote.engine.REGISTRY_PASSWORD``)."""
    if not compute.registry_username:
        return None
    first, _, rest = image.partition("/")
    server = first if rest and ("." in first or ":" in first or first == "localhost") else ""
    return {"server": server, "username": compute.registry_username}


def mounts(compute: Compute) -> tuple[tuple[str, str, str], ...]:
    """The key ``mounts``: source[:target][:ro], absolute paths of the target machine."""
    found = []
    for text in compute.mounts:
        words = text.split(":")
        mode = words.pop() if len(words) > 1 and words[-1] in ("ro", "rw") else "rw"
        source, target = words[0], words[-1]
        if len(words) > 2 or not all(posixpath.isabs(path) for path in words) or not text.isprintable():
            raise ConfigError(
                f"{compute.name}.compute: mounts: {text} is not a valid mount",
                "use /folder/on/the/machine or /folder:/folder/inside, optionally with :ro at the end",
            )
        found.append((normal(source), normal(target), mode))
    return tuple(found)
