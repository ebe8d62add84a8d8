"""What can go wrong with an environment, as a user meets it."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from mlworkbench.remote.environments.environment import unprotect
from tests.conftest import Done, User
from tests.e2e.elsewhere import Away
from tests.e2e.test_environment import SAY, manage, point
from tests.machines.channel import Channel, depend
from tests.machines.network import wait_until


@pytest.fixture
def project(user: User, channel: Channel) -> Path:
    root = user.project("demo", say=SAY)
    depend(root, channel, "six")
    manage(root, "local")
    return root


def submit(user: User, root: Path, *words: str, **more: str) -> Done:
    return user.mlw("submit", "-c", "local", *words, "say.py", cwd=root, env=more)


def prefix_of(user: User, run: str) -> Path:
    return user.store / "envs" / user.info(run)["environment"]["digest"]


def events(user: User, run: str, kind: str) -> list[dict[str, object]]:
    lines = (user.folder(run) / "events.jsonl").read_text().splitlines()
    return [one["data"] for one in map(json.loads, lines) if one["kind"] == kind]


def test_what_cannot_be_solved_is_explained_and_no_run_is_made(user, channel, project):
    depend(project, channel, conda=("first", "second"))
    done = submit(user, project)
    assert done.code == 78, done
    assert "words" in done.err and "aml_config/conda_dependencies.yml" in done.err and "hint:" in done.err
    assert len(done.err.splitlines()) <= 20 and "Traceback" not in done.err, done
    assert user.runs() == []
    depend(project, channel, "six==99.1")
    done = submit(user, project)
    assert done.code == 78 and "six==99.1" in done.err and user.runs() == [], done


NOBODY = "http://127.0.0.1:9"  # no service is at this port


def test_an_index_that_is_not_reached_is_no_fault_of_the_project(user, project):
    done = submit(user, project, PIP_INDEX_URL=f"{NOBODY}/simple", UV_HTTP_RETRIES="0")
    assert done.code == 69 and "cannot reach the package index" in done.err and user.runs() == [], done


def test_a_python_that_cannot_be_fetched_is_told_in_a_sentence(user, project):
    """Of a run and of prepare: what is there in its place, and that trying again may help."""
    (project / "aml_config" / "conda_dependencies.yml").write_text("dependencies:\n- python=3.9\n")
    closed = {"UV_PYTHON_INSTALL_MIRROR": f"{NOBODY}/mirror", "UV_HTTP_RETRIES": "0"}
    done = submit(user, project, **closed)
    info = user.info(done.run)
    assert (done.code, info["ending"]) == (69, "environment failed"), done
    words, _, hint = info["cause"].partition("; hint: ")
    assert re.fullmatch(r"Python 3\.9\.\d+ cannot be fetched: Connection refused.*", words)
    assert re.match(r"the machine has Python (3\.\d+)\.\d+: write python=\1 in aml_config/conda_dep", hint), hint
    assert done.err.count("Connection refused") <= 2, "in the build's own words, and in ours"
    done = user.mlw("experiment", "prepare", "-c", "local", cwd=project, env=closed)
    assert done.code == 69 and "hint: the machine has Python 3." in done.err, done


def test_the_images_own_python_is_offered_where_no_other_can_be_had(laptop, engine):
    """Offered, not taken: with it, the packages would be those of the image."""
    laptop.uses(engine)
    root = laptop.project("demo", say=SAY)
    point(root, "docker", "baseDockerImage", engine.image)
    own = engine.docker("run", "--rm", engine.image, "python3", "--version").stdout.split()[1]
    pin = own.rpartition(".")[0]
    (root / "aml_config" / "conda_dependencies.yml").write_text(f"dependencies:\n- python={pin}\n")
    closed = {"UV_PYTHON_INSTALL_MIRROR": f"{NOBODY}/mirror", "UV_HTTP_RETRIES": "0"}
    done = laptop.mlw("submit", "-c", "docker", "say.py", cwd=root, env=closed)
    assert done.code == 69 and re.search(rf"Python {pin}\.\d+ cannot be fetched: Connection refused", done.err), done
    assert f"the image has Python {own}: set userManagedEnvironment: true in the .compute file" in done.err, done


def test_a_build_that_fails_is_no_failure_of_the_script(user, project):
    """Its ending says so, with the builder's own words in a few lines, and the log of the build is kept."""
    assert user.mlw("submit", "-c", "local", "--dry-run", "say.py", cwd=project).code == 0  # solved, and packages kept
    for path in (user.store / "pkgs").iterdir():
        path.write_bytes(b"no package at all")
    done = submit(user, project)
    info = user.info(done.run)
    assert (info["status"], info["ending"], info["exit_code"]) == ("Failed", "environment failed", None), done
    assert done.code == 75 and 0 < len(info["cause"].splitlines()) <= 10 and "Cause:" in done.err
    assert "conda: 3 packages" in (user.folder(done.run) / "build.log").read_text()


def test_a_cancel_ends_the_build(user, project):
    run = submit(user, project, "--detach", MLW_FAILPOINT="env-installing:sleep=600").out.strip()
    wait_until(lambda: events(user, run, "step")[-1]["step"] == "environment", "the build")
    done = user.mlw("cancel", run, cwd=project)
    assert done.code == 0, done
    info = user.info(run)
    assert (info["status"], info["ending"]) == ("Canceled", "cancelled")
    assert submit(user, project).code == 0, "the next one builds it"


def test_four_at_once_are_one_build(user, project):
    words = ("submit", "-c", "local", "say.py")
    all_of_them = [user.start(*words, cwd=project) for _ in range(4)]
    told = [one.communicate(timeout=240) for one in all_of_them]
    assert [one.returncode for one in all_of_them] == [0] * 4, told
    assert len({out for out, _ in told}) == 1 and b"hello from" in told[0][0]
    assert sum(b"environment ready" in err for _, err in told) == 1, "one of them built it"


def test_a_damaged_environment_is_built_anew(user, project):
    first = submit(user, project)
    prefix = prefix_of(user, first.run)
    (module,) = prefix.rglob("hello.py")
    unprotect(str(prefix))
    module.unlink()
    done = submit(user, project)
    assert done.code == 0 and "hello from" in done.out, done
    assert "rebuilding the damaged environment" in done.err and "hello.py is missing" in done.err
    assert "damaged" not in submit(user, project).err


def test_what_a_run_does_to_its_environment_stays_without_effect(user, project):
    """Neither an edit nor pip changes what other runs share, nor the caches behind it."""
    first = submit(user, project)
    prefix = prefix_of(user, first.run)
    before = {path: path.read_bytes() for path in prefix.rglob("*.py")}
    (project / "change.py").write_text(
        "import hello, os, subprocess, sys\n"
        "for path in (hello.__file__, os.path.join(os.path.dirname(hello.__file__), 'new.py')):\n"
        "    try:\n        open(path, 'a').write('#')\n        print('changed', path)\n"
        "    except OSError as error:\n        print('refused', error.errno)\n"
    )
    if os.getuid() == 0:  # root may write anything; what keeps others from it are the modes
        assert [one for one in prefix.rglob("*") if not one.is_symlink() and one.stat().st_mode & 0o222] == []
    else:
        done = user.mlw("submit", "-c", "local", "change.py", cwd=project)
        assert done.code == 0 and "changed" not in done.out, done
    assert {path: path.read_bytes() for path in prefix.rglob("*.py")} == before
    assert submit(user, project).out == first.out


def test_an_environment_that_must_be_there_and_is_not(user, project):
    config = project / "aml_config" / "local.runconfig"
    config.write_text(config.read_text().replace("PrepareEnvironment: true", "PrepareEnvironment: false"))
    done = submit(user, project)
    assert done.code != 0, done
    assert user.info(done.run)["ending"] == "environment failed"
    assert "PrepareEnvironment is false" in done.err and "mlw experiment prepare" in done.err, done
    prepared = user.mlw("experiment", "prepare", "-c", "local", cwd=project)
    assert prepared.code == 0, prepared
    assert submit(user, project).code == 0


def test_a_supervisor_that_dies_in_a_build_leaves_it_for_the_next(user, project):
    run = submit(user, project, "--detach", MLW_FAILPOINT="env-installing:sleep=3").out.strip()
    wait_until(lambda: events(user, run, "step")[-1]["step"] == "environment", "the build")
    os.kill(int(str(events(user, run, "accepted")[0]["pid"])), signal.SIGKILL)
    assert user.mlw("logs", "-f", run, cwd=project).code != 0
    assert user.info(run)["ending"] == "could not start"
    done = submit(user, project)
    assert done.code == 0, done


def test_a_prepare_that_is_left_goes_on(user, project):
    """Ctrl-C leaves the build alone; who asks next waits for the same one."""
    asked = user.start(
        *("experiment", "prepare", "-c", "local"),
        cwd=project,
        env={"MLW_FAILPOINT": "env-installing:sleep=3"},
        start_new_session=True,
    )
    wait_until(lambda: list((user.store / "envs").glob("*.busy")) != [], "the builder")
    os.killpg(asked.pid, signal.SIGINT)
    asked.communicate(timeout=30)
    again = user.mlw("experiment", "prepare", "-c", "local", cwd=project)
    assert again.code == 0 and "environment ready" in again.err, again
    shown = json.loads(user.mlw("experiment", "prepare", "-c", "local", "-o", "json", cwd=project).out)
    assert (shown["environment"], shown["packages"]) == ("managed", 4)


def conda_of(user: User, done: Done) -> list[dict[str, str]]:
    return list(user.info(done.run)["environment"]["conda"])


OLD = """FROM {image}
RUN printf '#!/bin/sh\\necho glibc 2.17\\n' > /usr/bin/getconf && chmod 755 /usr/bin/getconf
"""


def test_an_image_with_an_older_c_library(laptop, engine, channel):
    """One that is known gets an environment made for it; a misfit is told before the script starts."""
    laptop.uses(engine)
    root = laptop.project("demo", say=SAY)
    depend(root, channel, "six", conda=("hello-py", "recent"))
    engine.docker("build", "--tag", "mlw-old:1", "-", text=OLD.format(image=engine.image))
    engine.docker("tag", engine.image, "mlw-moved:1")
    point(root, "docker", "baseDockerImage", "mlw-old:1")
    done = laptop.mlw("submit", "-c", "docker", "say.py", cwd=root)
    assert done.code == 0 and laptop.info(done.run)["environment"]["glibc"] == "2.17", done

    point(root, "docker", "baseDockerImage", "mlw-moved:1")
    assert laptop.mlw("submit", "-c", "docker", "say.py", cwd=root).code == 0
    engine.docker("tag", "mlw-old:1", "mlw-moved:1")
    done = laptop.mlw("submit", "-c", "docker", "say.py", cwd=root)
    assert laptop.info(done.run)["ending"] == "could not start", done
    assert done.out == "" and "image mlw-moved:1 has glibc 2.17, but the environment needs 2.30" in done.err, done
    again = laptop.mlw("submit", "-c", "docker", "say.py", cwd=root)
    assert again.code == 0, again
    assert ("recent", "1.0") in [(one["name"], one["version"]) for one in conda_of(laptop, again)]


def test_a_cancel_needs_no_packages(laptop, machine, channel):
    """A submit that was cut off while its packages travelled: cancelled, it never starts, and nothing more is sent."""
    root = laptop.project("far", say=SAY)
    depend(root, channel, "six")
    away = Away(laptop, machine(), "remote", project=root)
    point(root, "box", "userManagedEnvironment", "false")
    cut = away.start("submit", "-c", "box", "say.py", start_new_session=True)
    home = away.host.home / ".mlw"
    wait_until(lambda: list(home.glob("pkgs/incoming/**/part-*")) != [], "the packages on their way")
    os.killpg(cut.pid, signal.SIGKILL)
    cut.communicate()
    [run] = [one["run_id"] for one in away.runs()]
    done = away.mlw("cancel", run)
    assert done.code == 0 and "upload" not in done.err, done
    info = laptop.info(run)
    assert (info["status"], info["ending"]) == ("Canceled", "cancelled")
    assert not (home / "envs").exists() or list((home / "envs").glob("*.json")) == []
    assert away.submit("say.py").code == 0
    assert list(home.glob("pkgs/incoming/blobs/*/*")) == [], "what came are packages now, and take no space twice"


def test_an_environment_cannot_be_repeated_where_another_python_runs(user, project):
    done = submit(user, project)
    point(project, "local", "userManagedEnvironment", "true")
    again = submit(user, project, "--locked", done.run)
    assert again.code == 78 and "userManagedEnvironment: false" in again.err, again
    assert submit(user, project, "--locked", done.run, "--upgrade").code == 2


def test_the_doctor_looks_where_submit_looks(user, project):
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
