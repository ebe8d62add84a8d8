"""Files in every format of the original: their values, and the reported problems."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlworkbench.config import keys
from mlworkbench.config.config_files import check_file, read_compute, read_runconfig
from mlworkbench.config.legacy_formats import apply_overrides
from mlworkbench.errors import ConfigError
from mlworkbench.model import Compute, RunConfig
from mlworkbench.project_dependencies import SparkDependencies
from mlworkbench.targets.types import type_of

NO_FRAMEWORK = "Framework is not set"
POINTER = "AzureMlSecret=my_dsvm#ninghai#0123456789abcdef0123456789abcdef"


def run(target: str = "gpu", script: str = "$file", **fields: Any) -> RunConfig:
    """Return the expected value of a file gpu.runconfig."""
    values = {"argument_vector": (script,)} if script else {}
    return RunConfig(name="gpu", target=target, **{**values, **fields})


def machine(kind: str, **fields: Any) -> Compute:
    """Return the expected value of a file gpu.compute."""
    image = {"base_docker_image": keys.DEFAULT_IMAGE} if type_of(Compute("gpu", kind)).contained else {}
    yarn = {"yarn_deploy_mode": "cluster"} if kind == "cluster" else {}
    return Compute("gpu", kind, **{**image, **yarn, **fields})


# Each row: the file, its value, and the beginning of each reported problem.
Row = tuple[str, RunConfig | Compute, list[str]]

# -- YAML with capitalized keys: from September 2017, and current files ------------------------------

PASCAL: list[Row] = [
    (
        'ArgumentVector:\n- "$file"\nTarget: local\nFramework: Python\n',
        run("local", framework="Python"),
        [],
    ),
    (
        """\
# The program name and arguments to run when they are not specified through other means.
ArgumentVector:
  - "$file"

# The name of the compute target to use for this run.
Target: "docker"

# Environment variables set for the run.
EnvironmentVariables:
  "EXAMPLE_ENV_VAR": "Example Value"

Framework: "PySpark"
CondaDependenciesFile: "aml_config/conda_dependencies.yml"
SparkDependenciesFile: "aml_config/spark_dependencies.yml"
PrepareEnvironment: true
TrackedRun: true
""",
        run("docker", environment_variables={"EXAMPLE_ENV_VAR": "Example Value"}),
        [],
    ),
    (  # as attach wrote it: in alphabetical order, with nulls
        """\
ArgumentVector:
- $file
CondaDependenciesFile: null
EnvironmentVariables: null
Framework: PySpark
PrepareEnvironment: false
SparkDependenciesFile: null
Target: my_dsvm
TrackedRun: true
UseSampling: true
""",
        run("my_dsvm", prepare_environment=False),
        [],
    ),
    ('"Framework": "Python"\n', run(script="", framework="Python"), []),
    ("Framework: Python\nArgumentVector:\n", run(script="", framework="Python"), []),
    (
        "ArgumentVector: [train.py, --lr, 0.10, --epochs, 20]\nFramework: Python\nTarget: local\n",
        run(
            "local",
            "",
            argument_vector=("train.py", "--lr", "0.10", "--epochs", "20"),
            framework="Python",
        ),
        [],
    ),
    ("Framework: Python\nUseSampling: false\n", run(script="", framework="Python", use_sampling=False), []),
    ("Framework: Python\nTrackedRun: false\n", run(script="", framework="Python", tracked_run=False), []),
    (
        "Framework: Python\nCondaDependenciesFile: aml_config/conda_dependencies_gpu.yml\n",
        run(script="", framework="Python", conda_dependencies_file="aml_config/conda_dependencies_gpu.yml"),
        [],
    ),
    (
        "Framework: Python\nCondaDependenciesFile: Config\\conda_dependencies.yml\n",
        run(script="", framework="Python", conda_dependencies_file="Config/conda_dependencies.yml"),
        [],
    ),
    ("Framework: PySpark\nTarget: myhdi\n", run("myhdi", ""), []),
    ("Target: myhdi\n", run("myhdi", ""), [NO_FRAMEWORK]),
    (
        "Framework: Python\nDataSourceSettings:\n  iris.dsource:\n    Sampling:\n      Sample: first 1000 rows\n",
        run(
            script="",
            framework="Python",
            data_source_settings={"iris.dsource": {"Sampling": {"Sample": "first 1000 rows"}}},
        ),
        [],
    ),
    (
        "Framework: Python\nDataSourceSubstitutions:\n  iris.dsource: iris-large.dsource\n",
        run(script="", framework="Python", data_source_substitutions={"iris.dsource": "iris-large.dsource"}),
        [],
    ),
    ("Framework: Python\nFetchOutputs: 500 MB\n", run(script="", framework="Python", fetch_outputs="500 MB"), []),
    ("\ufeffFramework: Python\r\nTarget: local\r\n", run("local", "", framework="Python"), []),
    ("type: local\npythonLocation: python\n", machine("local", python_location="python"), []),
    (
        'pythonLocation: "python"\nsparkSubmitLocation: "spark-submit"\ntype: "local"\n',
        machine("local", python_location="python", spark_submit_location="spark-submit"),
        [],
    ),
    (
        'type: local\npythonLocation: "C:\\\\Anaconda3\\\\python.exe"\nnativeSharedDirectory: ~/.azureml/share/\n',
        machine("local", python_location="C:\\Anaconda3\\python.exe", native_shared_directory="~/.azureml/share/"),
        [],
    ),
    (
        'type: "localdocker"\nbaseDockerImage: "microsoft/mmlspark:plus-0.7.91"\n',
        machine("docker", base_docker_image="microsoft/mmlspark:plus-0.7.91"),
        [],
    ),
    ('type: "docker"\nbaseDockerImage: null\n', machine("docker"), []),
    (
        "type: docker\nbaseDockerImage: microsoft/mmlspark:plus-0.9.9\nsharedVolumes: false\n",
        machine("docker", base_docker_image="microsoft/mmlspark:plus-0.9.9"),
        [],
    ),
    (
        f"""\
address: 10.0.0.4
baseDockerImage: microsoft/mmlspark:plus-gpu-0.9.9
nativeSharedDirectory: ~/.azureml/share/
nvidiaDocker: true
password: {POINTER}
sharedVolumes: true
type: remotedocker
userManagedEnvironment: false
username: ninghai
""",
        machine(
            "remotedocker",
            address="10.0.0.4",
            username="ninghai",
            password=POINTER,
            base_docker_image="microsoft/mmlspark:plus-gpu-0.9.9",
            shared_volumes=True,
            native_shared_directory="~/.azureml/share/",
            nvidia_docker=True,
            user_managed_environment=False,
        ),
        [],
    ),
    (
        "address: my-dsvm.westus2.cloudapp.azure.com\nuserManagedEnvironment: true\n"
        "pythonLocation: /anaconda/bin/python\ntype: remote\nusername: me\n",
        machine(
            "remote",
            address="my-dsvm.westus2.cloudapp.azure.com",
            username="me",
            user_managed_environment=True,
            python_location="/anaconda/bin/python",
        ),
        [],
    ),
    (
        f"address: iris-ssh.azurehdinsight.net\npassword: {POINTER}\n"
        "type: cluster\nusername: sshuser\nyarnDeployMode: client\n",
        machine(
            "cluster",
            address="iris-ssh.azurehdinsight.net",
            username="sshuser",
            password=POINTER,
            yarn_deploy_mode="client",
        ),
        [],
    ),
    (
        "address: iris-ssh.azurehdinsight.net\ntype: cluster\n",
        machine("cluster", address="iris-ssh.azurehdinsight.net"),
        [],
    ),
]

# -- JSON, May to August 2017, and YAML with keys of that format -------------------------------------

OLD_NAME = "CondaFile is the old name of CondaDependenciesFile"
AS_EVER = "ManagedEnvironment: true is obsolete; it is the default"
BY_HAND = "ManagedEnvironment: false is obsolete; it means userManagedEnvironment: true"
TWO_FLAGS = "cluster and native are obsolete; here they mean type: "
SECRET = "password is a secret in a file"

JSON: list[Row] = [
    (
        """\
{
  "ArgumentVector":[
    "$file"
  ],
  "CondaFile":null,
  "ManagedEnvironment":true,
  "TrackedRun":true,
  "Target":"local"
}""",
        run("local"),
        [NO_FRAMEWORK, AS_EVER],
    ),
    (  # with a line break inside a string, which JSON forbids but the original wrote
        """\
{
  "Description":"Run the project in a container.\\n
Packages are managed by Conda -- to change them, edit conda_dependencies.yml",
  "ArgumentVector":[
    "$file"
  ],
  "CondaFile":null,
  "ManagedEnvironment":true,
  "TrackedRun":true,
  "Target":"docker"
}
""",
        run("docker"),
        [NO_FRAMEWORK, AS_EVER],
    ),
    (
        '{"Description": "", "ArgumentVector": ["$file"], "CondaFile": null, "TrackedRun": true, "Target": "local",\n'
        ' "PrepareEnvironment": true, "Framework": "Python"}',
        run("local", framework="Python"),
        [],
    ),
    (
        '{"ArgumentVector":["$file"],"Target":"my_vm","PrepareEnvironment":false,"Framework":"PySpark"}',
        run("my_vm", prepare_environment=False),
        [],
    ),
    (
        '{"CondaFile":"aml_config/conda_dependencies.yml","Framework":"Python"}',
        run(script="", framework="Python"),
        [OLD_NAME],
    ),
    (
        '{"Framework":"Python",\n"CondaFile":"gpu.yml"}',
        run(script="", framework="Python", conda_dependencies_file="gpu.yml"),
        [OLD_NAME],
    ),
    ('{"Framework":"Python","TrackedRun":false}', run(script="", framework="Python", tracked_run=False), []),
    (
        '{"Framework":"Python","ManagedEnvironment":false}',
        run(script="", framework="Python", overrides={"user_managed_environment": True}),
        [BY_HAND],
    ),
    ('{"Framework":"Python","ManagedEnvironment":null}', run(script="", framework="Python"), []),
    ('{"Target":"local"}', run("local", ""), [NO_FRAMEWORK]),
    ('{"Target":null,"Framework":"Python"}', run(script="", framework="Python"), []),
    ("{}", run(script=""), [NO_FRAMEWORK]),
    (
        '{"ArgumentVector":["train.py","--rate","0.01"],"Framework":"Python","Target":"local"}',
        run("local", "", argument_vector=("train.py", "--rate", "0.01"), framework="Python"),
        [],
    ),
    ('{"ArgumentVector":[],"Framework":"Python"}', run(script="", framework="Python"), []),
    (
        '{"Framework":"Python","EnvironmentVariables":{"A":"1","B":"two words"}}',
        run(script="", framework="Python", environment_variables={"A": "1", "B": "two words"}),
        [],
    ),
    ('{"Framework":"Python","EnvironmentVariables":null}', run(script="", framework="Python"), []),
    ('{"Framework":"Python","Description":null}', run(script="", framework="Python"), []),
    ('\ufeff{\r\n  "Framework":"Python",\r\n  "Target":"local"\r\n}\r\n', run("local", "", framework="Python"), []),
    (  # YAML with the key names of the JSON format
        '---\nArgumentVector:\n- "$file"\nFramework: Python\nCondaFile: \nManagedEnvironment: true\n'
        "TrackedRun: true\nTarget: docker\nPrepareEnvironment: true",
        run("docker", framework="Python"),
        [AS_EVER],
    ),
    (
        "CondaFile: null\nCondaDependenciesFile: aml_config/c.yml\nFramework: Python\n",
        run(script="", framework="Python", conda_dependencies_file="aml_config/c.yml"),
        [],
    ),
    (
        "CondaDependenciesFile:\nCondaFile: aml_config/c.yml\nFramework: Python\n",
        run(script="", framework="Python", conda_dependencies_file="aml_config/c.yml"),
        [OLD_NAME],
    ),
    (
        'Description: "Runs in Docker"\nCondaFile: aml_config/c.yml\nManagedEnvironment: false\nTarget: docker\n',
        run("docker", "", conda_dependencies_file="aml_config/c.yml", overrides={"user_managed_environment": True}),
        [NO_FRAMEWORK, OLD_NAME, BY_HAND],
    ),
    (  # targets of May 2017
        'address: "CLUSTER.azurehdinsight.net"\nusername: "sshuser"\npassword: "PASSWORD"  \n'
        "cluster: True\nnative: True",
        machine("cluster", address="CLUSTER.azurehdinsight.net", username="sshuser"),
        [SECRET, TWO_FLAGS + "cluster"],
    ),
    (
        'address: "10.0.0.4"\nusername: "amit"\npassword: "PASSWORD"\ncluster: False\nnative: False',
        machine("remotedocker", address="10.0.0.4", username="amit"),
        [SECRET, TWO_FLAGS + "remotedocker"],
    ),
    (
        '{"address":"h","cluster":false,"native":false,"baseDockerImage":"microsoft/mmlspark"}',
        machine("remotedocker", address="h", base_docker_image="microsoft/mmlspark"),
        [TWO_FLAGS + "remotedocker"],
    ),
    (
        '{"type":null,"address":"h","cluster":true,"native":true}',
        machine("cluster", address="h"),
        [TWO_FLAGS + "cluster"],
    ),
    ('{"type":"localdocker","baseDockerImage":null}', machine("docker"), []),
    ('{"type":"local","cluster":null,"native":null}', machine("local"), []),
]

# -- nested camelCase, April 2018 --------------------------------------------------------------------

BATCH, INSTANCE = "batchai is not supported", "containerInstance is not supported"
REPOSITORY = "https://mmlspark.azureedge.net/maven"

FULL = """\
# The script to run.
script: train.py
# The arguments to the script file.
arguments: []
target: local
framework: PySpark
prepareEnvironment: true
environment:
# Environment variables set for the run.
  environmentVariables:
    EXAMPLE_ENV_VAR: EXAMPLE_VALUE
  python:
    userManagedDependencies: false
    interpreterPath: python
    condaDependenciesFile: aml_config/conda_dependencies.yml
  docker:
    enabled: true
    baseImage: microsoft/mmlspark:plus-0.9.9
    sharedVolumes: true
    gpuSupport: false
    baseImageRegistry:
      address:
      username:
      password:
  spark:
    repositories:
    - https://mmlspark.azureedge.net/maven
    packages:
    - group: com.microsoft.ml.spark
      artifact: mmlspark_2.11
      version: 0.9.9
history:
  enabled: true
spark:
  configuration:
    spark.app.name: Azure ML Experiment
    spark.yarn.maxAppAttempts: 1
hdi:
  yarnDeployMode: cluster
batchai:
  nodeCount: 1
containerInstance:
  cpuCores: 1
  memoryGb: 4
  region:
"""


def nested(text: str, **fields: Any) -> tuple[str, RunConfig]:
    return "framework: Python\n" + text, run(script="", framework="Python", **fields)


def docker(text: str, **overrides: Any) -> tuple[str, RunConfig]:
    return nested(f"environment:\n  docker:\n{text}", **({"overrides": overrides} if overrides else {}))


APRIL: list[Row] = [
    (
        FULL,
        run(
            "local",
            "train.py",
            environment_variables={"EXAMPLE_ENV_VAR": "EXAMPLE_VALUE"},
            overrides={
                "container": True,
                "base_docker_image": "microsoft/mmlspark:plus-0.9.9",
                "shared_volumes": True,
                "nvidia_docker": False,
                "user_managed_environment": False,
                "yarn_deploy_mode": "cluster",
            },
            spark_dependencies=SparkDependencies(
                configuration={"spark.app.name": "Azure ML Experiment", "spark.yarn.maxAppAttempts": "1"},
                repositories=(REPOSITORY,),
                packages=("com.microsoft.ml.spark:mmlspark_2.11:0.9.9",),
            ),
        ),
        [BATCH, INSTANCE],
    ),
    ("script: train.py\ntarget: local\nframework: Python\n", run("local", "train.py", framework="Python"), []),
    (
        "script: train.py\narguments:\n- --lr\n- 0.10\nframework: Python\n",
        run(script="", argument_vector=("train.py", "--lr", "0.10"), framework="Python"),
        [],
    ),
    ("script: $file\narguments:\nframework: Python\n", run(framework="Python"), []),
    ("script:\narguments: []\nframework: Python\n", run(script="", framework="Python"), []),
    ("target: docker\n", run("docker", ""), [NO_FRAMEWORK]),
    (*nested("prepareEnvironment: false\n", prepare_environment=False), []),
    (*nested("history:\n  enabled: false\n", tracked_run=False), []),
    (*nested("history:\n"), []),
    (
        *nested(
            "environment:\n  environmentVariables:\n    A: 007\n    B:\n",
            environment_variables={"A": "007", "B": ""},
        ),
        [],
    ),
    (*nested("environment:\n  environmentVariables: null\n  python:\n  docker:\n  spark:\n"), []),
    (
        *nested(
            "environment:\n  python:\n    condaDependenciesFile: aml_config/gpu.yml\n",
            conda_dependencies_file="aml_config/gpu.yml",
        ),
        [],
    ),
    (*nested("environment:\n  python:\n    interpreterPath: python\n"), []),
    (
        *nested(
            "environment:\n  python:\n    interpreterPath: /opt/py/bin/python\n",
            overrides={"python_location": "/opt/py/bin/python"},
        ),
        [],
    ),
    (
        *nested(
            "environment:\n  python:\n    userManagedDependencies: true\n",
            overrides={"user_managed_environment": True},
        ),
        [],
    ),
    (*docker("    enabled: true\n", container=True), []),
    (*docker("    enabled: false\n    baseImage: x/y\n    gpuSupport: true\n", container=False), []),
    (*docker("    baseImage: x/y:1\n", base_docker_image="x/y:1"), []),
    (*docker("    gpuSupport: true\n    sharedVolumes: false\n", nvidia_docker=True, shared_volumes=False), []),
    (
        *docker(
            "    baseImage: x/y:1\n    baseImageRegistry: {address: r.example.com}\n",
            base_docker_image="r.example.com/x/y:1",
        ),
        [],
    ),
    (
        *docker(
            "    baseImage: r.example.com/x/y:1\n    baseImageRegistry: {address: r.example.com}\n",
            base_docker_image="r.example.com/x/y:1",
        ),
        [],
    ),
    (*docker("    baseImageRegistry:\n      address: r.example.com\n"), []),
    (
        *docker("    baseImageRegistry:\n      username: me\n      password: hunter2\n"),
        [
            "environment.docker.baseImageRegistry.username has no effect",
            "environment.docker.baseImageRegistry.password is a secret in a file",
        ],
    ),
    (
        *nested(
            "spark:\n  configuration:\n    spark.executor.memory: 4g\n",
            spark_dependencies=SparkDependencies(configuration={"spark.executor.memory": "4g"}),
        ),
        [],
    ),
    (
        *nested(
            "environment:\n  spark:\n    repositories: [https://mmlspark.azureedge.net/maven]\n",
            spark_dependencies=SparkDependencies(repositories=(REPOSITORY,)),
        ),
        [],
    ),
    (*nested("hdi:\n  yarnDeployMode: client\n", overrides={"yarn_deploy_mode": "client"}), []),
    (*nested("batchai:\n  nodeCount: 4\n"), [BATCH]),
    (*nested("containerInstance: {cpuCores: 1, memoryGb: 4, region: westus2}\n"), [INSTANCE]),
    (*nested("batchai:\ncontainerInstance: null\n"), []),
    (
        '{"script": "train.py", "framework": "Python", "environment": {"docker": {"gpuSupport": true}}}',
        run(script="train.py", framework="Python", overrides={"nvidia_docker": True}),
        [],
    ),
]

# Files that the readers accept, although the schemas may reject them.
ODD: list[Row] = [
    ("argumentVector: [a.py]\nframework: python\n", run(script="a.py", framework="Python"), []),
    ("Type: Local\n", machine("local"), []),
    ("type: docker\nsharedVolumes: 'yes'\n", machine("docker", shared_volumes=True), []),
    ("Framework: Python\nPrepareEnvironment: OFF\n", run(script="", framework="Python", prepare_environment=False), []),
    (
        "Script: a.py\nFramework: Python\nEnvironment:\n  Docker:\n    BaseImage: x/y\n",
        run(script="a.py", framework="Python", overrides={"base_docker_image": "x/y"}),
        [],
    ),
    (
        "framework: Python\nnodeCount: 1\n",
        run(script="", framework="Python"),
        ["unknown key 'nodeCount' has no effect"],
    ),
    (
        "framework: Python\nenvironment:\n  docker:\n    shmSize: 1g\n",
        run(script="", framework="Python"),
        ["unknown key 'environment.docker.shmSize' has no effect"],
    ),
    ("type: remote\naddress: h\nnative: True\n", machine("remote", address="h"), ["native has no effect"]),
]


def file_of(folder: Path, row: Row) -> Path:
    path = folder / ("gpu.compute" if isinstance(row[1], Compute) else "gpu.runconfig")
    path.write_text(row[0], encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize("row", [*PASCAL, *JSON, *APRIL, *ODD], ids=lambda row: row[0][:40])
def test_every_format_has_the_same_values(tmp_path: Path, row: Row) -> None:
    path = file_of(tmp_path, row)
    value: object = read_compute(path) if path.suffix == ".compute" else read_runconfig(path)
    assert value == row[1]
    problems = check_file(path)
    assert {problem.severity for problem in problems} <= {"warning"}
    assert len(problems) == len(row[2]), problems
    for problem, beginning in zip(problems, row[2], strict=True):
        assert problem.message.startswith(beginning)
    assert "hunter2" not in repr(value) + repr(problems)


def test_all_formats_are_covered() -> None:
    assert min(len(rows) for rows in (PASCAL, JSON, APRIL)) >= 25


# -- problems: one line each, with the nearest known key ---------------------------------------------

REGISTRY = "environment:\n  docker:\n    baseImageRegistry: "
MISTAKES = [
    ("gpu.compute", "type: docker\nbaseImage: x/y", 2, "unknown key 'baseImage'", "did you mean 'baseDockerImage'?"),
    ("gpu.compute", "sharedVolumne: true\ntype: docker", 1, "unknown key 'sharedVolumne'", "'sharedVolumes'"),
    ("gpu.compute", "type: docker\nnvidiaDocker:true", 2, "not valid YAML", "`nvidiaDocker: …`"),
    ("gpu.compute", "type: docker\nnvidiaDocker:true\naddress: h", 2, "not valid YAML", "`nvidiaDocker: …`"),
    ("gpu.compute", "nvidiaDocker:true\ntype: docker", 1, "not valid YAML", "`nvidiaDocker: …`"),
    ("gpu.compute", "type: docker\nnvidaDocker:true", 2, "not valid YAML", "`nvidiaDocker: …`"),
    ("gpu.compute", 'type: docker\n"nvidiaDocker":true', 2, "not valid YAML", "`nvidiaDocker: …`"),
    ("gpu.compute", "nvidiaDocker:true", 1, "not valid YAML", "`nvidiaDocker: …`"),
    ("gpu.compute", "address: h\ncluster: true\nnative: false", None, "missing key 'type'", "type: local"),
    ("gpu.compute", "address: h\ncluster: true", None, "missing key 'type'", "type: local"),
    ("gpu.compute", "cluster: false\nnative: false", 1, "missing key 'address', which type remotedocker", None),
    ("gpu.runconfig", "Framework:Python", 1, "not valid YAML", "`Framework: …`"),
    ("gpu.runconfig", "Target: x\nFramework:Python\nTrackedRun: true", 2, "not valid YAML", "`Framework: …`"),
    ("gpu.runconfig", "Target: x\nFramework:Python and PrepareEnvironment:true", 2, "not valid", "`Framework: …`"),
    ("gpu.runconfig", "script:train.py\ntarget: x", 1, "not valid YAML", "`script: …`"),
    ("gpu.runconfig", '{"Target":"x"\n"Framework":"Python"}', 2, "not valid YAML: did not find", None),
    (
        "gpu.runconfig",
        "script: a.py\nArgumentVector: [b.py]",
        1,
        "script duplicates ArgumentVector on line 2",
        "one",
    ),
    ("gpu.runconfig", "arguments: [a]", 1, "arguments without a script", "script: train.py"),
    ("gpu.runconfig", "script: [a.py]", 1, "script must be a string, not a list", None),
    ("gpu.runconfig", "script: a.py\narguments: --lr 1", 2, "arguments must be a list, not '--lr 1'", "as an item"),
    (
        "gpu.runconfig",
        "TrackedRun: true\nhistory:\n  enabled: true",
        3,
        "history.enabled duplicates TrackedRun on line 1",
        "remove one of them",
    ),
    (
        "gpu.runconfig",
        "CondaFile: a\nCondaDependenciesFile: b",
        2,
        "CondaDependenciesFile duplicates CondaFile",
        "",
    ),
    ("gpu.runconfig", "CondaFile: ../a", 1, "CondaFile must be a path inside the project", "copy"),
    ("gpu.runconfig", "history:\n  enabled: often", 2, "history.enabled must be true or false, not 'often'", None),
    ("gpu.runconfig", "ManagedEnvironment: often", 1, "ManagedEnvironment must be true or false, not 'often'", None),
    ("gpu.runconfig", "enviroment: {}", 1, "unknown key 'enviroment'", "did you mean 'environment'?"),
    (
        "gpu.runconfig",
        "environment:\n  docker:\n    baseDockerImage: x",
        3,
        "unknown key 'environment.docker.baseDockerImage'",
        "did you mean 'environment.docker.baseImage'?",
    ),
    (
        "gpu.runconfig",
        "environment:\n  python:\n    condaDependencies: {}",
        3,
        "unknown key 'environment.python.condaDependencies'",
        "did you mean 'environment.python.condaDependenciesFile'?",
    ),
    (
        "gpu.runconfig",
        "environment:\n  docker:\n    baseImage: -v /:/host",
        3,
        "environment.docker.baseImage must not contain spaces or start with a dash",
        None,
    ),
    ("gpu.runconfig", "environment: prod", 1, "environment must be a mapping of keys to values", None),
    ("gpu.runconfig", REGISTRY + "hunter2", 3, "environment.docker.baseImageRegistry must be a mapping", None),
    ("gpu.runconfig", REGISTRY + "[{password: hunter2}]", 3, "environment.docker.baseImageRegistry must be", None),
    (
        "gpu.runconfig",
        REGISTRY + "{adress: hunter}",
        3,
        "unknown key 'environment.docker.baseImageRegistry.adress'",
        "address",
    ),
    (
        "gpu.runconfig",
        "hdi: {yarnDeployMode: standalone}",
        1,
        "hdi.yarnDeployMode must be one of cluster, client",
        None,
    ),
]


@pytest.mark.parametrize(("name", "text", "line", "message", "hint"), MISTAKES)
def test_invalid_files(tmp_path: Path, name: str, text: str, line: int | None, message: str, hint: str | None) -> None:
    path = tmp_path / name
    path.write_text(text)
    errors = [problem for problem in check_file(path) if problem.severity == "error"]
    assert [(error.line, error.message[: len(message)]) for error in errors] == [(line, message)]
    assert (hint or "") in str(errors[0].hint)
    with pytest.raises(ConfigError) as caught:
        (read_compute if path.suffix == ".compute" else read_runconfig)(path)
    assert caught.value.message == str(errors[0])
    assert "hunter2" not in repr(errors)


# -- file extension before June 2017 -----------------------------------------------------------------


def test_old_extension(tmp_path: Path) -> None:
    path = tmp_path / "gpu.amb"
    path.write_text(JSON[0][0])
    assert read_runconfig(path) == JSON[0][1]
    assert [(item.severity, item.hint) for item in check_file(path) if ".amb" in item.message] == [
        ("warning", "rename the file to gpu.runconfig")
    ]
    (tmp_path / "gpu.runconfig").write_text("Framework: Python\n")
    (problem,) = check_file(path)
    assert problem.message == "ignored because gpu.runconfig exists"


# -- target settings in run configurations -----------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "enabled", "expected"),
    [
        ("local", True, "docker"),
        ("remote", True, "remotedocker"),
        ("docker", True, "docker"),
        ("remotedocker", True, "remotedocker"),
        ("cluster", True, "cluster"),
        ("ray", True, "ray"),
        ("local", False, "local"),
        ("remote", False, "remote"),
    ],
)
def test_container_or_not(kind: str, enabled: bool, expected: str) -> None:
    assert apply_overrides(machine(kind), {"container": enabled}).type == expected


@pytest.mark.parametrize("kind", ["docker", "remotedocker"])
def test_run_configuration_cannot_disable_container(kind: str) -> None:
    with pytest.raises(ConfigError, match="enabled: false, but target .* runs in a container"):
        apply_overrides(machine(kind), {"container": False})


def test_overrides() -> None:
    local = machine("local", python_location="python3")
    assert apply_overrides(local, {}) is local
    assert apply_overrides(local, {"python_location": "/opt/python"}).python_location == "/opt/python"
    # Keys that a local target does not support are ignored.
    useless = {"base_docker_image": "x", "nvidia_docker": True, "yarn_deploy_mode": "client"}
    assert apply_overrides(local, useless) == local
    assert apply_overrides(local, {**useless, "container": True}) == replace(
        local, type="docker", base_docker_image="x", nvidia_docker=True
    )
    # Without a specified image, a container gets the default image.
    assert apply_overrides(local, {"container": True}).base_docker_image == keys.DEFAULT_IMAGE
    docker_target = machine("docker", base_docker_image="own")
    assert apply_overrides(docker_target, {"container": True, "nvidia_docker": True}) == replace(
        docker_target, nvidia_docker=True
    )
