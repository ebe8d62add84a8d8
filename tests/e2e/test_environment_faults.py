"""Environment errors as users see them."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from mlworkbench.remote.environments.environment_state import unprotect
from tests.conftest import Done, User
from tests.e2e.remote_target import RemoteTarget
from tests.e2e.test_environment import SCRIPT, enable_managed_environment, set_compute_key
from tests.machines.channel import Channel, depend
from tests.machines.network import wait_until


@pytest.fixture
def project(user: User, channel: Channel) -> Path:
    root = user.project("demo", say=SCRIPT)
    depend(root, channel, "six")
    enable_managed_environment(root, "local")
    return root


def submit(user: User, root: Path, *arguments: str, **more: str) -> Done:
    return user.mlw("submit", "-c", "local", *arguments, "say.py", cwd=root, env=more)


def prefix_of(user: User, run: str) -> Path:
    return user.store / "envs" / user.info(run)["environment"]["digest"]


def events(user: User, run: str, kind: str) -> list[dict[str, object]]:
    lines = (user.folder(run) / "events.jsonl").read_text().splitlines()
    return [event["data"] for event in map(json.loads, lines) if event["kind"] == kind]


def test_unsolvable_requirements_are_explained_without_creating_a_run(user, channel, project):
    depend(project, channel, conda=("first", "second"))
    done = submit(user, project)
    assert done.code == 78, done
    assert "words" in done.err and "aml_config/conda_dependencies.yml" in done.err and "hint:" in done.err
    assert len(done.err.splitlines()) <= 20 and "Traceback" not in done.err, done
    assert user.runs() == []
    depend(project, channel, "six==99.1")
    done = submit(user, project)
    assert done.code == 78 and "six==99.1" in done.err and user.runs() == [], done


UNUSED_PORT = "http://127.0.0.1:9"  # no service listens on this port


def test_unreachable_index_is_not_a_project_error(user, project):
    done = submit(user, project, PIP_INDEX_URL=f"{UNUSED_PORT}/simple", UV_HTTP_RETRIES="0")
    assert done.code == 69 and "cannot reach the package index" in done.err and user.runs() == [], done


def test_python_download_failure_is_explained(user, project):
    """Submit and prepare name a Python that is available instead."""
    (project / "aml_config" / "conda_dependencies.yml").write_text("dependencies:\n- python=3.9\n")
    closed = {"UV_PYTHON_INSTALL_MIRROR": f"{UNUSED_PORT}/mirror", "UV_HTTP_RETRIES": "0"}
    done = submit(user, project, **closed)
    info = user.info(done.run)
    assert (done.code, info["ending"]) == (69, "environment failed"), done
    message, _, hint = info["cause"].partition("; hint: ")
    assert re.fullmatch(r"Python 3\.9\.\d+ cannot be fetched: Connection refused.*", message)
    assert re.match(r"the machine has Python (3\.\d+)\.\d+: write python=\1 in aml_config/conda_dep", hint), hint
    assert done.err.count("Connection refused") <= 2, "in the build's own words, and in ours"
    done = user.mlw("experiment", "prepare", "-c", "local", cwd=project, env=closed)
    assert done.code == 69 and "hint: the machine has Python 3." in done.err, done


def test_python_of_image_is_suggested_if_no_other_is_available(laptop, engine):
    """The image's Python is only suggested, because a run would then use the packages of the image."""
    laptop.use_engine(engine)
    root = laptop.project("demo", say=SCRIPT)
    set_compute_key(root, "docker", "baseDockerImage", engine.image)
    version = engine.docker("run", "--rm", engine.image, "python3", "--version").stdout.split()[1]
    pin = version.rpartition(".")[0]
    (root / "aml_config" / "conda_dependencies.yml").write_text(f"dependencies:\n- python={pin}\n")
    closed = {"UV_PYTHON_INSTALL_MIRROR": f"{UNUSED_PORT}/mirror", "UV_HTTP_RETRIES": "0"}
    done = laptop.mlw("submit", "-c", "docker", "say.py", cwd=root, env=closed)
    assert done.code == 69 and re.search(rf"Python {pin}\.\d+ cannot be fetched: Connection refused", done.err), done
    assert f"the image has Python {version}: set userManagedEnvironment: true in the .compute file" in done.err, done


def test_build_failure_is_not_a_script_failure(user, project):
    """The run's cause quotes a few lines of the builder, and the build log is kept."""
    # The dry run downloads the packages, so that the test can damage them.
    assert user.mlw("submit", "-c", "local", "--dry-run", "say.py", cwd=project).code == 0
    for path in (user.store / "pkgs").iterdir():
        path.write_bytes(b"no package at all")
    done = submit(user, project)
    info = user.info(done.run)
    assert (info["status"], info["ending"], info["exit_code"]) == ("Failed", "environment failed", None), done
    assert done.code == 75 and 0 < len(info["cause"].splitlines()) <= 10 and "Cause:" in done.err
    assert "conda: 3 packages" in (user.folder(done.run) / "build.log").read_text()


def test_cancel_stops_environment_build(user, project):
    run = submit(user, project, "--detach", MLW_FAILPOINT="env-installing:sleep=600").out.strip()
    wait_until(lambda: events(user, run, "step")[-1]["step"] == "environment", "the build")
    done = user.mlw("cancel", run, cwd=project)
    assert done.code == 0, done
    info = user.info(run)
    assert (info["status"], info["ending"]) == ("Canceled", "cancelled")
    assert submit(user, project).code == 0, "the next one builds it"


def test_parallel_submits_share_one_build(user, project):
    arguments = ("submit", "-c", "local", "say.py")
    all_of_them = [user.start(*arguments, cwd=project) for _ in range(4)]
    outputs = [process.communicate(timeout=240) for process in all_of_them]
    assert [process.returncode for process in all_of_them] == [0] * 4, outputs
    assert len({out for out, _ in outputs}) == 1 and b"hello from" in outputs[0][0]
    assert sum(b"environment ready" in err for _, err in outputs) == 1, "one of them built it"


def test_damaged_environment_is_rebuilt(user, project):
    first = submit(user, project)
    prefix = prefix_of(user, first.run)
    (module,) = prefix.rglob("hello.py")
    unprotect(str(prefix))
    module.unlink()
    done = submit(user, project)
    assert done.code == 0 and "hello from" in done.out, done
    assert "rebuilding the damaged environment" in done.err and "hello.py is missing" in done.err
    assert "damaged" not in submit(user, project).err


def test_run_cannot_change_shared_environment(user, project):
    """A run can neither change nor add files in the environment that runs share."""
    first = submit(user, project)
    prefix = prefix_of(user, first.run)
    before = {path: path.read_bytes() for path in prefix.rglob("*.py")}
    (project / "change.py").write_text(
        "import hello, os, subprocess, sys\n"
        "for path in (hello.__file__, os.path.join(os.path.dirname(hello.__file__), 'new.py')):\n"
        "    try:\n        open(path, 'a').write('#')\n        print('changed', path)\n"
        "    except OSError as error:\n        print('refused', error.errno)\n"
    )
    if os.getuid() == 0:  # root could write in spite of the file modes, so check only the modes
        assert [file for file in prefix.rglob("*") if not file.is_symlink() and file.stat().st_mode & 0o222] == []
    else:
        done = user.mlw("submit", "-c", "local", "change.py", cwd=project)
        assert done.code == 0 and "changed" not in done.out, done
    assert {path: path.read_bytes() for path in prefix.rglob("*.py")} == before
    assert submit(user, project).out == first.out


def test_required_environment_is_missing(user, project):
    config = project / "aml_config" / "local.runconfig"
    config.write_text(config.read_text().replace("PrepareEnvironment: true", "PrepareEnvironment: false"))
    done = submit(user, project)
    assert done.code != 0, done
    assert user.info(done.run)["ending"] == "environment failed"
    assert "PrepareEnvironment is false" in done.err and "mlw experiment prepare" in done.err, done
    prepared = user.mlw("experiment", "prepare", "-c", "local", cwd=project)
    assert prepared.code == 0, prepared
    assert submit(user, project).code == 0


def test_next_run_continues_build_of_dead_supervisor(user, project):
    run = submit(user, project, "--detach", MLW_FAILPOINT="env-installing:sleep=3").out.strip()
    wait_until(lambda: events(user, run, "step")[-1]["step"] == "environment", "the build")
    os.kill(int(str(events(user, run, "accepted")[0]["pid"])), signal.SIGKILL)
    assert user.mlw("logs", "-f", run, cwd=project).code != 0
    assert user.info(run)["ending"] == "could not start"
    done = submit(user, project)
    assert done.code == 0, done


def test_build_continues_after_ctrl_c_in_prepare(user, project):
    """Ctrl-C does not stop the build; the next command waits for it."""
    client = user.start(
        *("experiment", "prepare", "-c", "local"),
        cwd=project,
        env={"MLW_FAILPOINT": "env-installing:sleep=3"},
        start_new_session=True,
    )
    wait_until(lambda: list((user.store / "envs").glob("*.busy")) != [], "the builder")
    os.killpg(client.pid, signal.SIGINT)
    client.communicate(timeout=30)
    again = user.mlw("experiment", "prepare", "-c", "local", cwd=project)
    assert again.code == 0 and "environment ready" in again.err, again
    shown = json.loads(user.mlw("experiment", "prepare", "-c", "local", "-o", "json", cwd=project).out)
    assert (shown["environment"], shown["packages"]) == ("managed", 4)


def conda_of(user: User, done: Done) -> list[dict[str, str]]:
    return list(user.info(done.run)["environment"]["conda"])


OLD = """FROM {image}
RUN printf '#!/bin/sh\\necho glibc 2.17\\n' > /usr/bin/getconf && chmod 755 /usr/bin/getconf
"""


def test_image_with_older_c_library(laptop, engine, channel):
    """An environment fits the image's C library. If the image is replaced, a mismatch is reported before the start."""
    laptop.use_engine(engine)
    root = laptop.project("demo", say=SCRIPT)
    depend(root, channel, "six", conda=("hello-py", "recent"))
    engine.docker("build", "--tag", "mlw-old:1", "-", text=OLD.format(image=engine.image))
    engine.docker("tag", engine.image, "mlw-moved:1")
    set_compute_key(root, "docker", "baseDockerImage", "mlw-old:1")
    done = laptop.mlw("submit", "-c", "docker", "say.py", cwd=root)
    assert done.code == 0 and laptop.info(done.run)["environment"]["glibc"] == "2.17", done

    set_compute_key(root, "docker", "baseDockerImage", "mlw-moved:1")
    assert laptop.mlw("submit", "-c", "docker", "say.py", cwd=root).code == 0
    engine.docker("tag", "mlw-old:1", "mlw-moved:1")
    done = laptop.mlw("submit", "-c", "docker", "say.py", cwd=root)
    assert laptop.info(done.run)["ending"] == "could not start", done
    assert done.out == "" and "image mlw-moved:1 has glibc 2.17, but the environment needs 2.30" in done.err, done
    again = laptop.mlw("submit", "-c", "docker", "say.py", cwd=root)
    assert again.code == 0, again
    assert ("recent", "1.0") in [(package["name"], package["version"]) for package in conda_of(laptop, again)]


def test_cancel_during_package_upload(laptop, machine, channel):
    """Kill a submit during the package upload and cancel its run: it never starts, and cancel uploads nothing."""
    root = laptop.project("far", say=SCRIPT)
    depend(root, channel, "six")
    remote = RemoteTarget(laptop, machine(), "remote", project=root)
    set_compute_key(root, "box", "userManagedEnvironment", "false")
    cut = remote.start("submit", "-c", "box", "say.py", start_new_session=True)
    home = remote.host.home / ".mlw"
    wait_until(lambda: list(home.glob("pkgs/incoming/**/part-*")) != [], "the packages on their way")
    os.killpg(cut.pid, signal.SIGKILL)
    cut.communicate()
    [run] = [row["run_id"] for row in remote.runs()]
    done = remote.mlw("cancel", run)
    assert done.code == 0 and "upload" not in done.err, done
    info = laptop.info(run)
    assert (info["status"], info["ending"]) == ("Canceled", "cancelled")
    assert not (home / "envs").exists() or list((home / "envs").glob("*.json")) == []
    assert remote.submit("say.py").code == 0
    assert list(home.glob("pkgs/incoming/blobs/*/*")) == [], "what came are packages now, and take no space twice"


def test_locked_environment_requires_managed_environment(user, project):
    done = submit(user, project)
    set_compute_key(project, "local", "userManagedEnvironment", "true")
    again = submit(user, project, "--locked", done.run)
    assert again.code == 78 and "userManagedEnvironment: false" in again.err, again
    assert submit(user, project, "--locked", done.run, "--upgrade").code == 2


def test_doctor_uses_same_sources_as_submit(user, project):
    (project / "aml_config" / "conda_dependencies.yml").write_text(
        "dependencies:\n- pip:\n  - tensorflow-gpu==2.12.0\n"
    )
    looked = user.mlw("project", "doctor", "-c", "local", cwd=project)
    assert looked.code == 1 and "tensorflow-gpu" in looked.out, looked
    assert submit(user, project).code == 78
    config = project / "aml_config" / "local.runconfig"
    config.write_text(config.read_text().replace("conda_dependencies.yml", "conda_dependencis.yml"))
    looked = user.mlw("project", "doctor", "-c", "local", cwd=project)
    assert looked.code == 1 and "did you mean aml_config/conda_dependencies.yml?" in looked.out, looked
