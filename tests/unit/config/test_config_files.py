"""Read .compute, .runconfig, and dependency files, and report their problems."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlworkbench import plugin_registry
from mlworkbench.config import keys
from mlworkbench.config.config_files import (
    check_file,
    read_compute,
    read_dependencies,
    read_runconfig,
    read_spark_dependencies,
)
from mlworkbench.errors import ConfigError
from mlworkbench.model import Compute, RunConfig
from mlworkbench.project_dependencies import Dependencies, SparkDependencies

QUICK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def compute(folder: Path, text: str) -> Compute:
    return read_compute(write(folder, "gpu.compute", text))


def runconfig(folder: Path, text: str) -> RunConfig:
    return read_runconfig(write(folder, "gpu.runconfig", text))


# -- values ----------------------------------------------------------------------------------------


def test_compute_with_every_key(tmp_path: Path) -> None:
    text = """\
address: 10.0.0.4
baseDockerImage: microsoft/mmlspark:plus-gpu-0.9.9
nativeSharedDirectory: ~/.azureml/share/
nvidiaDocker: true
password: AzureMlSecret=my_dsvm#ninghai#0123456789abcdef0123456789abcdef
pythonLocation: /opt/py thon/bin/python
sharedVolumes: yes
type: remotedocker
userManagedEnvironment: false
username: ninghai
"""
    assert compute(tmp_path, text) == Compute(
        name="gpu",
        type="remotedocker",
        address="10.0.0.4",
        username="ninghai",
        password="AzureMlSecret=my_dsvm#ninghai#0123456789abcdef0123456789abcdef",
        base_docker_image="microsoft/mmlspark:plus-gpu-0.9.9",
        shared_volumes=True,
        native_shared_directory="~/.azureml/share/",
        nvidia_docker=True,
        user_managed_environment=False,
        python_location="/opt/py thon/bin/python",
    )
    assert check_file(tmp_path / "gpu.compute") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("type: local", Compute("gpu", "local")),
        ("Type: Local", Compute("gpu", "local")),
        ('"type": "local"', Compute("gpu", "local")),
        ("'pythonLocation': python3\n\"type\" : local", Compute("gpu", "local", python_location="python3")),
        ("type: local\nsparkSubmitLocation: null\npythonLocation: ~", Compute("gpu", "local")),
        ("type: docker", Compute("gpu", "docker", base_docker_image=keys.DEFAULT_IMAGE)),
        ("type: localdocker", Compute("gpu", "docker", base_docker_image=keys.DEFAULT_IMAGE)),
        ("type: docker\nbaseDockerImage: x/y:1", Compute("gpu", "docker", base_docker_image="x/y:1")),
        ("type: cluster\naddress: h", Compute("gpu", "cluster", address="h", yarn_deploy_mode="cluster")),
        ("type: cluster\nyarnDeployMode: client", Compute("gpu", "cluster", yarn_deploy_mode="client")),
        ("type: ray", Compute("gpu", "ray")),
        ('{"type": "local", "nvidiaDocker": false}', Compute("gpu", "local")),
    ],
)
def test_compute_forms(tmp_path: Path, text: str, expected: Compute) -> None:
    assert compute(tmp_path, text) == expected


def test_runconfig_with_every_key(tmp_path: Path) -> None:
    text = """\
ArgumentVector:
- "train.py"
- --lr
- 0.10
- --flag
- true
- null
- ""
Target: my_dsvm
EnvironmentVariables:
  "INTS": 007
  BOOL: true
  FLOAT: 1e5
  EMPTY:
  "QUOTED": "yes"
Framework: Python
CondaDependenciesFile: Config\\gpu.yml
SparkDependenciesFile: Config/spark.yml
PrepareEnvironment: false
TrackedRun: false
UseSampling: false
DataSourceSettings:
  iris.dsource: {Sampling: {Sample: first 1000}}
DataSourceSubstitutions: {a.dsource: b.dsource}
FetchOutputs: 500 MB
MetricGoals: {width: min}
Retries: 3
RetryOn: [oom, lost]
RetryDelay: 1m30s
"""
    assert runconfig(tmp_path, text) == RunConfig(
        name="gpu",
        target="my_dsvm",
        argument_vector=("train.py", "--lr", "0.10", "--flag", "true", "null", ""),
        environment_variables={"INTS": "007", "BOOL": "true", "FLOAT": "1e5", "EMPTY": "", "QUOTED": "yes"},
        framework="Python",
        conda_dependencies_file="Config/gpu.yml",
        spark_dependencies_file="Config/spark.yml",
        prepare_environment=False,
        tracked_run=False,
        use_sampling=False,
        data_source_settings={"iris.dsource": {"Sampling": {"Sample": "first 1000"}}},
        data_source_substitutions={"a.dsource": "b.dsource"},
        fetch_outputs="500 MB",
        metric_goals={"width": "min"},
        retries=3,
        retry_on=("oom", "lost"),
        retry_delay=90.0,
    )
    assert check_file(tmp_path / "gpu.runconfig") == []


def test_runconfig_defaults(tmp_path: Path) -> None:
    expected = RunConfig(name="gpu", target="gpu", framework="PySpark")
    assert runconfig(tmp_path, "") == expected
    nulls = "".join(f"{key.name}: null\n" for key in keys.RUNCONFIG)
    assert runconfig(tmp_path, nulls) == expected
    lower = runconfig(tmp_path, "argumentVector: [a.py]\ntarget: t\nframework: python\nprepareEnvironment: off")
    assert (lower.argument_vector, lower.target, lower.framework) == (("a.py",), "t", "Python")
    assert lower.prepare_environment is False


def test_dependencies(tmp_path: Path) -> None:
    text = """\
# [AzureMlVersion] = 2
name: my_env
channels: [conda-forge, defaults]
dependencies:
  - python=3.5.2
  - scikit-learn
  - pip
  - pip:
    # The API for Azure Machine Learning Model Management Service.
    - --index-url https://azuremldownloads.azureedge.net/python-repository/preview
    - azureml-requirements
    - tensorflow-gpu==1.4.0
    - https://cntk.ai/PythonWheel/GPU/cntk-2.2-cp35-cp35m-linux_x86_64.whl
"""
    assert read_dependencies(write(tmp_path, "conda_dependencies.yml", text)) == Dependencies(
        name="my_env",
        channels=("conda-forge", "defaults"),
        conda=("python=3.5.2", "scikit-learn", "pip"),
        pip=(
            "--index-url https://azuremldownloads.azureedge.net/python-repository/preview",
            "azureml-requirements",
            "tensorflow-gpu==1.4.0",
            "https://cntk.ai/PythonWheel/GPU/cntk-2.2-cp35-cp35m-linux_x86_64.whl",
        ),
    )
    assert read_dependencies(write(tmp_path, "empty.yml", "# nothing\n")) == Dependencies()
    assert read_dependencies(write(tmp_path, "c.yml", "dependencies:\n- pip:\n- numpy")).conda == ("numpy",)


def test_spark_dependencies(tmp_path: Path) -> None:
    text = """\
configuration:
  "spark.app.name": "Azure ML Experiment"
  "spark.yarn.maxAppAttempts": 1
repositories:
  - "https://mmlspark.azureedge.net/maven"
packages:
  - group: "com.microsoft.ml.spark"
    artifact: "mmlspark_2.11"
    version: "0.9.9"
  - com.microsoft:dprep_2.11:0.18.0
version: 2
"""
    path = write(tmp_path, "spark_dependencies.yml", text)
    assert read_spark_dependencies(path) == SparkDependencies(
        configuration={"spark.app.name": "Azure ML Experiment", "spark.yarn.maxAppAttempts": "1"},
        repositories=("https://mmlspark.azureedge.net/maven",),
        packages=("com.microsoft.ml.spark:mmlspark_2.11:0.9.9", "com.microsoft:dprep_2.11:0.18.0"),
    )
    assert check_file(path) == []
    assert read_spark_dependencies(write(tmp_path, "s.yml", "configuration: {}\npackages:")) == SparkDependencies()


# -- problems --------------------------------------------------------------------------------------

COMPUTE_ERRORS = [
    ("sharedVolumne: true\ntype: docker", ":1: unknown key 'sharedVolumne'", "did you mean 'sharedVolumes'?"),
    ("type: docker\nbaseImage: x", ":2: unknown key 'baseImage'", "did you mean 'baseDockerImage'?"),
    ("type: docker\nbasedockerimage: x", ":2: unknown key 'basedockerimage'", "did you mean 'baseDockerImage'?"),
    ("type: remote\nnvidiaDocker:true", ":2: not valid YAML", "add a space after the colon"),
    ("pythonLocation: python", ": missing key 'type'", "add a line such as `type: local`"),
    ("type:", ":1: missing key 'type'", "add a line"),
    (
        "type: remote-docker",
        ":1: type must be one of local, docker, remote, remotedocker, cluster, slurm, not 'remote-docker'",
        "did you mean 'remotedocker'?",
    ),
    ("type: remote", ":1: missing key 'address', which type remote requires", None),
    ("type: remote\naddress: -oProxyCommand=id", ":2: address must not contain spaces or start with a dash", None),
    ("type: remote\naddress: [a, b]", ":2: address must be a string, not a list", None),
    ("type: remote\naddress: ''", ":2: address is empty", None),
    ("type: docker\nnvidiaDocker: maybe", ":2: nvidiaDocker must be true or false, not 'maybe'", None),
    ("type: docker\nnvidiaDocker: 1", ":2: nvidiaDocker must be true or false, not '1'", None),
    ("type: cluster\nyarnDeployMode: standalone", ":2: yarnDeployMode must be one of cluster, client", None),
    ("type: local\nType: docker", ":2: duplicate key 'type'; it is first defined on line 1", None),
]

RUNCONFIG_ERRORS = [
    ("PrepareEnvironment: yes please", ":1: PrepareEnvironment must be true or false, not 'yes please'", None),
    ("Framwork: Python", ":1: unknown key 'Framwork'", "did you mean 'Framework'?"),
    (
        "\nFramework: PySpark2",
        ":2: Framework must be one of Python, PySpark, not 'PySpark2'",
        "did you mean 'PySpark'?",
    ),
    (
        "ArgumentVector: train.py --lr 1",
        ":1: ArgumentVector must be a list, not 'train.py --lr 1'",
        "write each argument",
    ),
    (
        "ArgumentVector:\n- a.py\n- b: c",
        ":3: an item of ArgumentVector must be a string, not a mapping",
        "quote an item",
    ),
    ("ArgumentVector:\n- a.py\n- # no", ":3: an item of ArgumentVector is empty", 'use ""'),
    ("Target: ../local", ":1: Target must be the name of a .compute file, not '../local'", "without folder"),
    ("Target: -x", ":1: Target must be the name", None),
    ("EnvironmentVariables: [A]", ":1: EnvironmentVariables must be a mapping of names to values, not a list", None),
    ("EnvironmentVariables:\n  A: 1\n  2B: 1", ":3: '2B' in EnvironmentVariables is not a valid name", "letters"),
    ("EnvironmentVariables:\n  A=B: 1", ":2: 'A=B' in EnvironmentVariables is not a valid name", None),
    ("EnvironmentVariables:\n  A: [1]", ":2: A in EnvironmentVariables must be a string, not a list", None),
    ("EnvironmentVariables:\n  A: null", ":2: A in EnvironmentVariables is null", 'use "null" for that string'),
    ("CondaDependenciesFile: ../conda.yml", ":1: CondaDependenciesFile must be a path inside the project", "copy"),
    ("CondaDependenciesFile: /etc/passwd", ":1: CondaDependenciesFile must be a path inside the project", None),
    ("CondaDependenciesFile: C:\\x.yml", ":1: CondaDependenciesFile must be a path inside the project", None),
    ("FetchOutputs: some", ":1: FetchOutputs must be all, none, or a size such as 500 MB, not 'some'", None),
    ("MetricGoals:\n  width: smaller", ":2: width in MetricGoals must be max or min, not 'smaller'", None),
    ("Retries: many", ":1: Retries must be a number from 0 to 1000, not 'many'", None),
    ("RetryOn: [faild]", ":1: an item of RetryOn must be one of failed, oom, lost", "did you mean 'failed'?"),
    ("RetryDelay: soon", ":1: RetryDelay must be a duration such as 10s or 5m, not 'soon'", None),
    ("MetricGoals: [width]", ":1: MetricGoals must be a mapping", None),
    ("DataSourceSettings: x", ":1: DataSourceSettings must be a mapping", None),
]

DEPENDENCIES_ERRORS = [
    ("dependencies: numpy", ":1: dependencies must be a list, not 'numpy'", "`- item`"),
    ("dependencies:\n- a\n- [b]", ":3: an item of dependencies must be a package, not a list", None),
    ("dependencies:\n- conda:\n  - x", ":2: 'conda' is neither a package nor the list", "`- pip:`"),
    ("dependencies:\n- pip: x", ":2: pip must be a list, not 'x'", None),
    ("dependancies: []", ":1: unknown key 'dependancies'", "did you mean 'dependencies'?"),
    ("channels:\n- a: b", ":2: an item of channels must be a string, not a mapping", None),
]

SPARK_ERRORS = [
    ("packages:\n- group: g\n  artifact: a", ":2: Maven package without version", "group, artifact, and version"),
    ("packages: [a]", ":1: an item of packages must be a Maven package, not 'a'", None),
    ("configuration: [a]", ":1: configuration must be a mapping", None),
]


@pytest.mark.parametrize(
    ("reader", "name", "text", "message", "hint"),
    [(read_compute, "gpu.compute", *row) for row in COMPUTE_ERRORS]
    + [(read_runconfig, "gpu.runconfig", *row) for row in RUNCONFIG_ERRORS]
    + [(read_dependencies, "c.yml", *row) for row in DEPENDENCIES_ERRORS]
    + [(read_spark_dependencies, "s.yml", *row) for row in SPARK_ERRORS],
)
def test_invalid_values(tmp_path, monkeypatch, reader, name, text, message, hint) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        reader(write(tmp_path, name, text))
    assert caught.value.message.startswith(name + message)
    assert not caught.value.message.endswith(".")
    if hint:
        assert hint in str(caught.value.hint)


WARNINGS = [
    ("a.compute", "type: local\nfrobnicate: 1", 2, "unknown key 'frobnicate' has no effect"),
    ("a.compute", "type: local\nFramework: Python", 2, "unknown key 'Framework' has no effect"),
    ("a.compute", "type: local\nnvidiaDocker: true", 2, "nvidiaDocker has no effect on targets of type local"),
    ("a.compute", "type: local\nbaseDockerImage: x", 2, "baseDockerImage has no effect on targets of type local"),
    ("a.compute", "type: ray", 1, "type 'ray' is not built in"),
    ("a.compute", "type: remote\naddress: h\nnative: true", 3, "native has no effect"),
    ("a.runconfig", "Framework: Python\nCondaFile: x", 2, "CondaFile is the old name of CondaDependenciesFile"),
    ("a.runconfig", "Framework: Python\nManagedEnvironment: true", 2, "ManagedEnvironment: true is obsolete"),
    ("a.runconfig", "Target: x", None, "Framework is not set; the default is PySpark"),
    ("conda.yml", "variables: {A: b}", 1, "variables has no effect"),
]


@pytest.mark.parametrize(("name", "text", "line", "message"), WARNINGS)
def test_warnings_do_not_prevent_a_run(tmp_path: Path, name: str, text: str, line: int | None, message: str) -> None:
    path = write(tmp_path, name, text)
    reader = {".compute": read_compute, ".runconfig": read_runconfig}.get(path.suffix, read_dependencies)
    reader(path)
    (problem,) = check_file(path)
    assert (problem.severity, problem.line) == ("warning", line)
    assert problem.message.startswith(message)


@pytest.mark.parametrize("kind", keys.TYPES)
def test_shared_folder_is_allowed_for_every_type(tmp_path: Path, kind: str) -> None:
    """``targets.target_facts`` reads nativeSharedDirectory for every type."""
    path = write(tmp_path, "a.compute", f"type: {kind}\naddress: h\nnativeSharedDirectory: /data\n")
    assert [problem.message for problem in check_file(path) if "nativeSharedDirectory" in problem.message] == []
    assert read_compute(path).native_shared_directory == "/data"


def test_installed_plugins_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = "from mlworkbench.targets.types import ComputeType\n{} = ComputeType('{}', 'Anything', None)\n"
    (tmp_path / "moon.py").write_text(row.format("RAY", "ray") + row.format("LOKAL", "lokal"))
    info = tmp_path / "moon-1.0.dist-info"
    info.mkdir()
    points = "[mlworkbench.targets]\nray = moon:RAY\nlokal = moon:LOKAL\n[mlworkbench.frameworks]\nJulia = moon:make\n"
    (info / "entry_points.txt").write_text(points)
    files = [("a.compute", "type: ray"), ("b.compute", "type: lokal"), ("a.runconfig", "Framework: Julia")]
    paths = [write(tmp_path, name, text) for name, text in files]
    before = [[problem.severity for problem in check_file(path)] for path in paths]
    monkeypatch.syspath_prepend(str(tmp_path))
    plugin_registry._all.cache_clear()
    try:
        after = [check_file(path) for path in paths]
        assert read_compute(paths[0]).type == "ray" and read_runconfig(paths[2]).framework == "Julia"
        assert read_compute(paths[1]).type == "lokal", "though it looks like a slip of the pen"
    finally:
        plugin_registry._all.cache_clear()
        sys.modules.pop("moon", None)
    assert (before, after) == ([["warning"], ["error"], ["warning"]], [[], [], []])


def test_custom_network_needs_no_plugin(tmp_path: Path) -> None:
    path = write(tmp_path, "a.compute", "type: docker\nnetwork: my_lab\n")
    assert check_file(path) == [] and read_compute(path).network == "my_lab"


def test_hint_for_key_in_wrong_file(tmp_path: Path) -> None:
    (problem,) = check_file(write(tmp_path, "a.runconfig", "Framework: Python\nnvidiaDocker: true"))
    assert problem.hint == "nvidiaDocker belongs in a .compute file"


def test_all_problems_of_a_file_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, "a.compute", "type: docker\nsharedVolumne: 1\nnvidiaDocker: perhaps\nfoo: 1\n")
    assert [f"{problem} ({problem.severity})" for problem in check_file(path)] == [
        "a.compute:2: unknown key 'sharedVolumne' (error)",
        "a.compute:3: nvidiaDocker must be true or false, not 'perhaps' (error)",
        "a.compute:4: unknown key 'foo' has no effect (warning)",
    ]
    path.write_text("- a")
    (problem,) = check_file(path)
    assert str(problem) == "a.compute:1: the file must be a mapping of keys to values, not a list"


def test_secret_is_dropped(tmp_path: Path) -> None:
    text = "type: remote\naddress: h\npassword: hunter2\n"
    assert compute(tmp_path, text).password is None
    (problem,) = check_file(tmp_path / "gpu.compute")
    assert (problem.line, problem.severity) == (3, "warning")
    assert problem.message.startswith("password is a secret in a file")
    assert "hunter2" not in repr(problem)


# -- key tables ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "value"),
    [(keys.COMPUTE, Compute), (keys.RUNCONFIG, RunConfig), (keys.SPARK_DEPENDENCIES, SparkDependencies)],
)
def test_table_and_model_agree(table: tuple[keys.Key, ...], value: type) -> None:
    fields = {key.field for key in table if key.field}
    # `settings` holds the keys of a plugin's type. Only April 2018 files set `overrides` and `spark_dependencies`.
    besides = {"name", "overrides", "spark_dependencies", "settings"}
    assert fields == set(value.__dataclass_fields__) - besides  # type: ignore[attr-defined]
    for key in table:
        assert key.doc and not key.doc.endswith("."), key.name
        default = value.__dataclass_fields__[key.field].default if key.field else None  # type: ignore[attr-defined]
        if key.default is not None and not keys.applies_to(key):
            assert key.default == default, key.name


# -- properties ------------------------------------------------------------------------------------


READERS = (read_compute, read_runconfig, read_dependencies, read_spark_dependencies)
KEY_NAMES = st.sampled_from(
    [key.name for table in (keys.COMPUTE, keys.RUNCONFIG, keys.DEPENDENCIES, keys.SPARK_DEPENDENCIES) for key in table]
)
VALUES = st.sampled_from(
    [
        "",
        "true",
        "local",
        "remote",
        "[a, b]",
        "{a: b}",
        "[[a]]",
        "[{pip: [a]}]",
        "{a: {b: c}}",
        "'x'",
        "~",
        "[~]",
        "{A: ~}",
        "[{group: a}]",
        "a:b:c",
        "-1",
        "!x y",
        "*a",
        "&a b",
    ]
)
LINES = st.lists(st.tuples(KEY_NAMES, VALUES).map(lambda pair: f"{pair[0]}: {pair[1]}"), max_size=6).map("\n".join)


@QUICK
@given(data=st.one_of(st.binary(max_size=200), LINES.map(str.encode)))
def test_readers_raise_nothing_but_config_errors(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.compute"
    path.write_bytes(data)
    for reader in READERS:
        try:
            outcome: object = reader(path)
        except ConfigError as error:
            outcome = error.message
        assert not isinstance(outcome, str) or "x.compute:" in outcome


@QUICK
@given(data=LINES.map(str.encode), suffix=st.sampled_from([".compute", ".runconfig", ".yml"]))
def test_a_file_without_errors_can_be_read(tmp_path: Path, data: bytes, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(data)
    reader = {".compute": read_compute, ".runconfig": read_runconfig}.get(suffix, read_dependencies)
    errors = [problem for problem in check_file(path) if problem.severity == "error"]
    raised = None
    try:
        reader(path)
    except ConfigError as error:
        raised = error.message
    if raised is None:
        assert errors == []
    else:
        assert raised in {str(problem) for problem in errors}
