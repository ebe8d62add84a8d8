"""Architecture rules: import direction, size limits, and boundaries. See ARCHITECTURE.md."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "mlworkbench"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "samples" not in path.parts)

# A module may import from its own layer and from lower layers.
LAYERS = [
    {"testing"},  # for tests of plugins; the product does not import it
    {"cli", "__main__", "process_entry"},
    {"ui"},
    {"notebook"},
    {"runs"},
    {"report"},
    {
        *(
            "attach",
            "submission",
            "submission_checks",
            "checkpoint_upload",
            "resubmit",
            "environment_builds",
            "follow",
            "run_observer",
            "scheduler_state",
            "received_data",
            "inferred_state",
        ),
        *("refresh_runs", "fetch_outputs", "import_runs"),
        *("export", "doctor"),
    },
    {"plan", "process_plan", "scheduler_plan", "submit_request", "passed_variables"},
    {"sweep_axes", "metric_goal"},
    {"targets", "environments", "frameworks", "config", "snapshot", "history", "runfiles", "preflight"},
    {"hosts"},
    {
        "plugin_registry",
        "secret_sources",
        "attachments",
        "client_identity",
        "container_consents",
        "saved_views",
        "user_settings",
        "explain",
    },
    {"paths", "model"},
    {"failure", "retries", "slurm_options", "spec_parts", "project_dependencies"},
    {"errors", "version", "import_isolation", "dataclass_check", "sanitize"},
]
LONGEST_MODULE, LONGEST_FUNCTION = 400, 50
# Modules that may catch all exceptions: entry points of programs, code that must always report the start or the end of
# a run, the access control of the UI, and the refresh of its pages.
BROAD = {
    "cli/main.py",
    "remote/background_process.py",
    "remote/companions/group.py",
    "remote/environments/conda_install.py",
    "remote/launcher.py",
    "remote/resources/resource.py",
    "remote/output_collection.py",
    "remote/starters/starter.py",
    "ui/auth_middleware.py",
    "ui/run_poller.py",
}
# Modules that may call json.loads: scripts that run without our modules, readers of our own index and data files, and
# loops over metric lines, which must be fast and catch RecursionError. All others call untrusted_json.parse_json.
PLAIN_JSON = {
    "remote/shared/untrusted_json.py",
    *("remote/__main__.py", "remote/environments/conda_install.py"),
    "remote/environments/interpreter_stub.py",
    *("history/rows.py", "history/migrate.py", "history/run_columns.py"),
    *(
        "config/gallery.py",
        "environments/source_builds.py",
        "environments/pinned_tools.py",
        "environments/conda_solve.py",
    ),
    *("history/journal_parsing.py", "history/series/metric_lines.py"),
}
# Modules that contain the name of a compute type with another meaning. All other modules must not contain such names,
# because the properties of a type are in its definition (targets/types.py).
OTHER_MEANINGS = {
    # The compute target and the run configuration `local`, which every new project has.
    **dict.fromkeys(
        ("attach/attach_machine.py", "cli/doctor_gpu.py", "cli/project.py", "config/project_folder.py"), {"local"}
    ),
    **dict.fromkeys(("submission.py", "ui/queries/shell_startup.py", "ui/components/run_bar.py"), {"local"}),
    # The container engine, and findings about it.
    **dict.fromkeys(
        ("hosts/host_facts.py", "doctor/diagnosis_rules.py", "preflight/finding.py", "targets/machine_check.py"),
        {"docker"},
    ),
    **dict.fromkeys(
        ("targets/container_plan.py", "targets/target_facts.py", "ui/pages/targets/target_card.py"), {"docker"}
    ),
    # The key `cluster` of May 2017, Spark's deploy mode, and Spark's master.
    **dict.fromkeys(
        ("config/compute_keys.py", "config/config_files.py", "config/json_schema.py", "preflight/spark_rules.py"),
        {"cluster"},
    ),
    "frameworks/pyspark.py": {"cluster", "local"},
    # The folder of remote code, the name of this machine in messages, and a label of outputs.
    "hosts/local_host.py": {"local", "remote"},
    **dict.fromkeys(("hosts/ssh_host.py", "ui/pages/run/outputs.py"), {"remote"}),
    # The starter of the type with the same name.
    "targets/compute_type.py": {"slurm"},
    # All of the above: remote code never sees a compute type.
    "remote": {"cluster", "docker", "local", "remote", "slurm"},
}
# Modules that refer to one type instead of the type of a target: for files of May 2017, which had no types, for runs
# of scripts that were not submitted, and for the defaults of Target and of plugin tests.
NAMED_ROWS = {
    "config/config_files.py": {"CLUSTER", "REMOTEDOCKER"},
    "history/untracked_runs.py": {"LOCAL"},
    "targets/target.py": {"LOCAL"},
    "testing/inputs.py": {"LOCAL"},
}


# Client modules that use remote code: this machine is also a target, or the same rule applies on both sides.
# All others import ``remote.shared`` only.
TARGET_CODE = {
    *("hosts/local_host.py", "doctor/collect.py"),  # this machine as a target, and its facts
    *(
        "runfiles/clean_local.py",
        "runfiles/file_content.py",
        "runfiles/output_manifest.py",
    ),  # run folders on this machine
    *(
        "environments/mirrors.py",
        "environments/pip_solve.py",
        "environments/package_supply.py",
    ),  # packages downloaded here for upload
    *(
        "targets/container_plan.py",
        "targets/gpu_request_check.py",
        "targets/consent_check.py",
        "attach/purge_plan.py",
    ),  # the same rules on the client and on the target
    *("ui/queries/gpu_verdict.py", "runs/run_messages.py"),  # texts that are also used on the target
}


def name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def part(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Return all syntax nodes of a module, starting with the module; cached for all tests."""
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imports(path: Path) -> set[str]:
    """Return the top-level modules and packages of mlworkbench that a module imports."""
    package = path.relative_to(SOURCE).parent.parts
    names = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else None
            if base is None:
                if (node.module or "").split(".")[0] == "mlworkbench":
                    names.add(((node.module or "") + ".").split(".")[1])
                continue
            whole = [*base, *(node.module.split(".") if node.module else [])]
            names.update([whole[0]] if whole else [alias.name for alias in node.names])
        elif isinstance(node, ast.Import):
            names.update(a.name.split(".")[1] for a in node.names if a.name.startswith("mlworkbench."))
    return names


def layer(which: str) -> int | None:
    return next((index for index, names in enumerate(LAYERS) if which in names), None)


def test_every_part_has_its_layer():
    parts = {part(path) for path in MODULES} - {"__init__", "remote"}
    assert parts == set().union(*LAYERS)


def test_imports_follow_the_layers():
    wrong = []
    for path in MODULES:
        importing = layer(part(path))
        if importing is None:
            continue
        for other in imports(path) - {"remote", part(path)}:
            imported = layer(other)
            if (
                imported is None
                or imported < importing
                or (imported == importing and LAYERS[importing] == {"paths", "model"} and other == "paths")
            ):
                wrong.append(f"{name(path)} imports {other}")
    assert wrong == []


def imported_modules(path: Path, known: set[str]) -> set[str]:
    """Return the modules of mlworkbench that a module imports, also inside functions, but not for type checking."""
    package = path.relative_to(SOURCE).parent.parts
    for_types = {
        id(node)
        for block in nodes(path)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for node in ast.walk(block)
    }
    names = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.level and id(node) not in for_types:
            base = [*package[: len(package) - node.level + 1], *(node.module.split(".") if node.module else [])]
            names.update("/".join([*base, alias.name]) for alias in node.names)
            names.add("/".join(base))
    return names & known


def test_no_import_cycles():
    """A function-level import may save time, but must not hide a cycle: two modules that need each other are one."""
    known = {name(path).removesuffix(".py"): path for path in MODULES if path.stem != "__init__"}
    remaining = {module: imported_modules(path, {*known}) - {module} for module, path in known.items()}
    while leaves := {module for module, imported in remaining.items() if not imported}:
        remaining = {module: imported - leaves for module, imported in remaining.items() if module not in leaves}
    assert remaining == {}


def test_pytest_is_for_the_testing_package_only():
    wrong = []
    for path in MODULES:
        for node in nodes(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if part(path) != "testing" and any(module.split(".")[0] in ("pytest", "_pytest") for module in names):
                wrong.append(name(path))
    assert wrong == []


def test_what_travels_imports_nothing_of_the_rest():
    wrong = []
    for path in MODULES:
        if part(path) == "remote":
            wrong += [
                f"{name(path)} imports {other}"
                for other in imports(path) - {"remote"}
                if "inrun" not in path.relative_to(SOURCE).parts
            ]
    assert wrong == []


def test_clients_import_what_is_shared():
    wrong = set()
    for path in MODULES:
        if part(path) in ("remote", "testing"):
            continue
        package = path.relative_to(SOURCE).parent.parts
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and node.level:
                parts = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
                if parts[0] == "remote" and parts[1:2] not in (["shared"], []) or parts == ["remote"]:
                    wrong.add(name(path))
    assert wrong == TARGET_CODE


def test_what_is_shared_imports_nothing_of_targets():
    for path in MODULES:
        if path.relative_to(SOURCE).parts[:2] == ("remote", "shared"):
            depth = len(path.relative_to(SOURCE / "remote" / "shared").parts)
            for node in nodes(path):
                assert not isinstance(node, ast.ImportFrom) or node.level <= depth, name(path)


def test_what_travels_is_readable_by_the_oldest_python():
    for path in MODULES:
        if part(path) == "remote":
            ast.parse(path.read_text(), feature_version=(3, 5) if "inrun" in path.relative_to(SOURCE).parts else (3, 8))


def test_modules_and_functions_are_short():
    wrong = []
    for path in MODULES:
        lines = path.read_text().count("\n")
        if lines > LONGEST_MODULE:
            wrong.append(f"{name(path)}: {lines} lines")
        for node in nodes(path):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    wrong.append(f"{name(path)}: {node.name} has {length} lines")
    assert wrong == []


def test_classes_are_narrow():
    for path in MODULES:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                public = [
                    member.name for member in node.body if isinstance(member, ast.FunctionDef) and member.name[0] != "_"
                ]
                assert len(public) <= 15, f"{name(path)}: {node.name} has {len(public)} public methods"


def test_broad_excepts_are_only_in_listed_places():
    places = set()
    for path in MODULES:
        for node in nodes(path):
            if isinstance(node, ast.ExceptHandler) and "inrun" not in path.relative_to(SOURCE).parts:
                caught = getattr(node.type, "id", None)
                reraises = any(isinstance(child, ast.Raise) and child.exc is None for child in ast.walk(node))
                if (node.type is None or caught in ("Exception", "BaseException")) and not reraises:
                    places.add(name(path))
    assert places <= BROAD


TYPES = SOURCE / "targets" / "types.py"


@cache
def rows() -> dict[str, str]:
    """Map definitions in targets/types.py to names of compute types."""
    types = {}
    for node in nodes(TYPES):
        call = node.value if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) else None
        if call is not None and ast.unparse(call.func) == "ComputeType":
            types[ast.unparse(node.targets[0])] = ast.literal_eval(call.args[0])
    return types


def test_only_the_type_table_names_compute_types():
    names, words, named = rows(), {}, {}
    assert len(names) >= 5
    for path in set(MODULES) - {TYPES}:
        place = "remote" if part(path) == "remote" else name(path)
        for node in nodes(path):
            if isinstance(node, ast.Constant) and node.value in names.values():
                words.setdefault(place, set()).add(node.value)
            elif isinstance(node, (ast.Name, ast.Attribute)) and "targets" in imports(path) | {part(path)}:
                used = node.id if isinstance(node, ast.Name) else node.attr
                if used in names:
                    named.setdefault(place, set()).add(used)
    assert words == OTHER_MEANINGS
    assert named == NAMED_ROWS


def test_no_code_compares_compute_types():
    """Search for comparisons of ``….type`` with a type name: ``==``, ``in``, ``match``, lookups, and calls."""
    wrong = []
    for path in MODULES:
        for node in nodes(path):
            if isinstance(node, (ast.Compare, ast.Match, ast.Subscript, ast.Call)):
                inside = list(ast.walk(node.subject if isinstance(node, ast.Match) else node))
                cases = [case.pattern for case in node.cases] if isinstance(node, ast.Match) else []
                literals = [*inside, *(part for case in cases for part in ast.walk(case))]
                asks = any(isinstance(child, ast.Attribute) and child.attr == "type" for child in inside)
                if asks and any(
                    isinstance(child, ast.Constant) and child.value in rows().values() for child in literals
                ):
                    wrong.append(f"{name(path)}:{node.lineno}: {ast.unparse(node)[:100]}")
    assert wrong == []


def test_nothing_is_a_shell_string():
    for path in MODULES:
        for node in nodes(path):
            if isinstance(node, ast.keyword) and node.arg == "shell":
                raise AssertionError(f"{name(path)}:{node.value.lineno} uses shell=")
            if (
                isinstance(node, ast.Attribute)
                and node.attr in ("system", "popen")
                and getattr(node.value, "id", "") == "os"
            ):
                raise AssertionError(f"{name(path)}:{node.lineno} uses os.{node.attr}")


def test_every_module_says_what_it_is():
    assert [name(path) for path in MODULES if not ast.get_docstring(nodes(path)[0])] == []


def test_no_module_has_a_vague_name():
    vague = {"utils", "util", "common", "helpers", "helper", "core", "manager", "service", "misc"}
    ours = [path for path in MODULES if "azureml" not in path.parts]  # old scripts import these modules
    assert [name(path) for path in ours if path.stem in vague or vague & set(path.relative_to(SOURCE).parts)] == []


def test_foreign_json_is_parsed_in_one_place():
    """Only the listed modules call json.loads. Deeply nested JSON raises RecursionError, which parse_json handles."""
    calls = {
        name(path)
        for path in MODULES
        if "inrun" not in path.relative_to(SOURCE).parts
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and node.attr == "loads" and ast.unparse(node.value) == "json"
    }
    assert calls == PLAIN_JSON


def test_files_are_locked_in_one_place():
    calls = {
        name(path)
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and node.attr == "flock"
    }
    assert calls == {"remote/shared/file_lock.py"}
