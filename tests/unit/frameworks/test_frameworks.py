"""The command lines that the frameworks build for a script, as tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlworkbench.errors import ConfigError, UsageError
from mlworkbench.frameworks.framework import Setting
from mlworkbench.frameworks.pyspark import PySpark
from mlworkbench.frameworks.python import Python
from mlworkbench.model import Compute, Entry, RunConfig
from mlworkbench.project_dependencies import SparkDependencies
from mlworkbench.remote.shared.layout import Root

SETTING = Setting(
    entry=Entry("script", "train.py", ("--lr", "0.1")),
    python="/py",
    runconfig=RunConfig("box", "box"),
    compute=Compute("box", "remote"),
    root=Root("/home/ada/.mlw"),
    inrun="/lib/inrun",
)
STARTER = "/lib/inrun/mlworkbench/_spark"
MANAGED = {"kind": "managed", "digest": "d" * 64}
PYTHONS = {"spark.pyspark.python": "/py", "spark.pyspark.driver.python": "/py"}
OFF = {"spark.executorEnv.MLW_TRACKING": "off"}


def make_command(**changes):
    return PySpark().make(replace(SETTING, **changes))


def words(command):
    """Return the words of a command without its Spark settings (``--conf``), and the settings as a dictionary."""
    kept, settings, rest = [], {}, iter(command)
    for word in rest:
        if word == "--conf":
            name, _, value = next(rest).partition("=")
            settings[name] = value
        else:
            kept.append(word)
    return kept, settings


@pytest.mark.parametrize(
    ("entry", "command"),
    [
        (Entry("script", "a b.py", ("x",)), ("/py", "a b.py", "x")),
        (Entry("script", "-c.py"), ("/py", "./-c.py")),
        (Entry("script", "a.ipynb", ("x",)), ("/py", "/lib/inrun/mlworkbench/_launch/notebook.py", "a.ipynb", "x")),
        (Entry("module", "pkg.mod", ("-v",)), ("/py", "-m", "pkg.mod", "-v")),
        (Entry("command", "make", ("-j", "2")), ("make", "-j", "2")),
    ],
)
def test_python(entry, command):
    result = Python().make(replace(SETTING, entry=entry))
    assert result.command == command and result.companions == {}


def test_pyspark_on_one_machine():
    result = make_command()
    kept, settings = words(result.command)
    assert kept == ["/py", STARTER, "spark-submit", ".", "--master", "local[*]", "train.py", "--lr", "0.1"]
    assert settings == PYTHONS
    assert result.companions["spark"] == {"master": "local[*]", "deploy": "client"}


@pytest.mark.parametrize(
    ("entry", "folder", "script"),
    [("src/train.py", "src", "src/train.py"), ("-c.py", ".", "./-c.py"), ("a b.py", ".", "a b.py")],
)
def test_the_scripts_folder_is_what_executors_import_from(entry, folder, script):
    kept, _ = words(make_command(entry=Entry("script", entry)).command)
    assert (kept[3], kept[-1]) == (folder, script)


def test_what_spark_submit_does_not_start():
    command = make_command(entry=Entry("command", "make", ("-j",)))
    assert command.command == ("make", "-j") and command.companions == {}
    with pytest.raises(UsageError, match=r"pkg\.mod is a module") as raised:
        make_command(entry=Entry("module", "pkg.mod"))
    assert "Framework: Python in aml_config/box.runconfig" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("compute", "setting", "master", "deploy"),
    [
        (Compute("c", "local"), None, "local[*]", None),
        (Compute("c", "local"), "local[2]", "local[2]", None),
        (Compute("c", "remote"), "spark://m:7077", "spark://m:7077", "client"),
        (Compute("c", "cluster"), None, "yarn", "cluster"),
        (Compute("c", "cluster", yarn_deploy_mode="client"), None, "yarn", "client"),
        (Compute("c", "cluster", spark_master="spark://m:7077"), "local[1]", "spark://m:7077", "client"),
        (Compute("c", "cluster", spark_master="spark://m", yarn_deploy_mode="cluster"), None, "spark://m", "client"),
    ],
)  # fmt: skip
def test_the_master(compute, setting, master, deploy):
    """The target's ``spark_master`` wins, then spark_dependencies.yml, then the default of the target's type."""
    told = {"spark.master": setting} if setting else {}
    result = make_command(compute=compute, spark=SparkDependencies(configuration=told))
    kept, settings = words(result.command)
    assert kept[4:6] == ["--master", master] and kept.count("--master") == 1
    assert ("--deploy-mode" in kept) == (deploy is not None)
    assert result.companions["spark"] == {"master": master, "deploy": deploy or "client"}
    assert settings == ({**PYTHONS, **OFF} if deploy else PYTHONS)


def test_settings_and_packages():
    told = SparkDependencies(
        configuration={"spark.executor.memory": "2g", "spark.pyspark.python": "/theirs", "spark.odd": "a=b c"},
        repositories=("https://repo.example/m2", "https://other.example"),
        packages=("g:a:1", "g:b:2"),
    )
    kept, settings = words(make_command(spark=told).command)
    assert settings == {**PYTHONS, **told.configuration}, "the file's settings win"
    assert kept[6:-3] == [
        "--packages", "g:a:1,g:b:2", "--repositories", "https://repo.example/m2,https://other.example",
    ]  # fmt: skip


def test_the_users_own_python_for_spark():
    _, settings = words(make_command(variables={"PYSPARK_PYTHON": "/theirs"}).command)
    assert settings == {}, "a setting would go before the variable"


def test_the_named_spark_submit():
    kept, _ = words(
        make_command(compute=Compute("c", "remote", spark_submit_location="~/spark/bin/spark-submit")).command
    )
    assert kept[2] == "~/spark/bin/spark-submit"


@pytest.mark.parametrize(
    ("deploy", "driver"), [("client", "/py"), ("cluster", "./environment/bin/python")], ids=["client", "cluster"]
)
def test_executors_get_the_environment(deploy, driver):
    compute = Compute("c", "cluster", yarn_deploy_mode=deploy)
    result = make_command(compute=compute, lock=MANAGED)
    kept, settings = words(result.command)
    archive, _, name = kept[kept.index("--archives") + 1].partition("#")
    assert archive.startswith("file:///home/ada/.mlw/envs/") and archive.endswith(".tar.gz") and name == "environment"
    assert settings["spark.pyspark.python"] == "./environment/bin/python"
    assert settings["spark.pyspark.driver.python"] == driver
    assert result.companions["spark"]["pack"] is True
    here = make_command(compute=Compute("c", "local"), lock=MANAGED)
    assert "--archives" not in here.command and "pack" not in here.companions["spark"], "one machine has it already"


def test_a_container_cannot_lend_its_environment_to_a_cluster():
    told = SparkDependencies(configuration={"spark.master": "spark://m:7077"})
    with pytest.raises(ConfigError, match="cannot use the cluster"):
        make_command(compute=Compute("c", "docker"), lock=MANAGED, spark=told)
    assert make_command(compute=Compute("c", "docker"), lock={"kind": "given"}, spark=told).companions["spark"]
