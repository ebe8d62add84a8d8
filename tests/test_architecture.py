"""The shape of the code: import direction, budgets, borders. Read it as the summary of ARCHITECTURE.md."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "mlworkbench"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "samples" not in path.parts)

# A module may import from its own layer's folder and from layers further down.
LAYERS = [
    {"testing"},  # for tests of plugins; nothing of the product imports it
    {"cli", "__main__", "start"},
    {"ui"},
    {"runs"},
    {"report"},
    {
        *("attach", "submission", "resubmit", "prepare", "follow", "run_observer", "inferred_state"),
        *("refresh", "fetch", "import_runs"),
        *("export", "laptop"),
    },
    {"plan", "request"},
    {"sweep"},
    {"targets", "environments", "frameworks", "config", "snapshot", "history", "runfiles", "preflight"},
    {"hosts"},
    {"registry", "secret", "attachments", "client_identity", "consents", "settings", "explain"},
    {"paths", "model"},
    {"failure"},
    {"errors", "version", "isolation", "typed"},
]
LONGEST_MODULE, LONGEST_FUNCTION = 400, 50
# The last stop of a program, where anything may arrive; places where whatever happens, the user's run must get its
# start or its ending told; the browser's door, and what keeps its pages fresh.
BROAD = {
    "cli/main.py",
    "remote/background.py",
    "remote/companions/group.py",
    "remote/environments/rattle.py",
    "remote/launcher.py",
    "remote/resources/resource.py",
    "remote/supervisor.py",
    "remote/starters/starter.py",
    "ui/gate.py",
    "ui/live.py",
}
# May call json.loads: scripts that run without our modules; our own index and data files; loops over metric lines,
# which are the hot path and catch RecursionError themselves. All others call remote.shared.untrusted.parse_json.
PLAIN_JSON = {
    "remote/shared/untrusted.py",
    *("remote/__main__.py", "remote/environments/rattle.py"),
    "remote/environments/interpreter_facts.py",
    *("history/rows.py", "history/migrate.py"),
    *("config/gallery.py", "environments/sources.py", "environments/pinned_tools.py", "environments/conda.py"),
    *("history/reading.py", "history/series/lines.py"),
}
# Words that are also names of compute types, and where they mean something else. No other module may contain them:
# what there is to know about a type is in its row (targets/types.py).
OTHER_MEANINGS = {
    # The compute target and the run configuration `local`, which every new project has.
    **dict.fromkeys(("attach/attach.py", "cli/doctor_gpu.py", "cli/project.py", "config/project.py"), {"local"}),
    **dict.fromkeys(("submission.py", "ui/answers/prompt.py", "ui/parts/runbar.py"), {"local"}),
    # The container engine, and findings about it.
    **dict.fromkeys(("hosts/facts.py", "laptop/judge.py", "preflight/finding.py", "targets/check.py"), {"docker"}),
    **dict.fromkeys(("targets/container.py", "targets/ground.py", "ui/pages/targets/card.py"), {"docker"}),
    # The key `cluster` of May 2017, Spark's deploy mode, and Spark's master.
    **dict.fromkeys(
        ("config/compute_keys.py", "config/files.py", "config/schema.py", "preflight/spark.py"), {"cluster"}
    ),
    "frameworks/pyspark.py": {"cluster", "local"},
    # The folder of the code that travels, the name of this machine in messages, and a label of outputs.
    "hosts/local.py": {"local", "remote"},
    **dict.fromkeys(("hosts/ssh.py", "ui/pages/run/outputs.py"), {"remote"}),
    # All of the above: what travels never sees a compute type.
    "remote": {"cluster", "docker", "local", "remote"},
}
# Modules that name a row instead of asking for the type of a target: the files of May 2017, which had no types; runs
# of scripts that nobody submitted; the defaults of a Target and of tests of plugins.
NAMED_ROWS = {
    "config/files.py": {"CLUSTER", "REMOTEDOCKER"},
    "history/outside.py": {"LOCAL"},
    "targets/target.py": {"LOCAL"},
    "testing/inputs.py": {"LOCAL"},
}


# Client modules that run code of targets: this machine is the target, too, or the same rule holds on both sides.
# All others import ``remote.shared`` only.
TARGET_CODE = {
    *("hosts/local.py", "laptop/gather.py"),  # this machine as a target; its facts
    *("runfiles/clean.py", "runfiles/content.py", "runfiles/manifest.py"),  # run folders on this machine
    *("environments/mirrors.py", "environments/pip.py", "environments/supply.py"),  # packages fetched here, to be sent
    *("targets/container.py", "targets/gpurequest.py", "targets/consent.py", "attach/purge.py"),  # the same rules
    *("ui/answers/gpu.py", "runs/run_messages.py"),  # the same texts
}


def name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def part(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def nodes(path: Path) -> list[ast.AST]:
    """The syntax of a module, the module itself first; read once for all tests."""
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imports(path: Path) -> set[str]:
    """First part, below the package, of every module of ours that is imported; relative ones resolved."""
    package = path.relative_to(SOURCE).parent.parts
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else None
            if base is None:
                if (node.module or "").split(".")[0] == "mlworkbench":
                    found.add(((node.module or "") + ".").split(".")[1])
                continue
            whole = [*base, *(node.module.split(".") if node.module else [])]
            found.update([whole[0]] if whole else [alias.name for alias in node.names])
        elif isinstance(node, ast.Import):
            found.update(a.name.split(".")[1] for a in node.names if a.name.startswith("mlworkbench."))
    return found


def layer(which: str) -> int | None:
    return next((index for index, names in enumerate(LAYERS) if which in names), None)


def test_every_part_has_its_layer():
    parts = {part(path) for path in MODULES} - {"__init__", "remote"}
    assert parts == set().union(*LAYERS)


def test_imports_go_one_way():
    wrong = []
    for path in MODULES:
        here = layer(part(path))
        if here is None:
            continue
        for other in imports(path) - {"remote", part(path)}:
            there = layer(other)
            if (
                there is None
                or there < here
                or (there == here and LAYERS[here] == {"paths", "model"} and other == "paths")
            ):
                wrong.append(f"{name(path)} imports {other}")
    assert wrong == []


def test_pytest_is_for_the_testing_package_only():
    wrong = []
    for path in MODULES:
        for node in nodes(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if part(path) != "testing" and any(one.split(".")[0] in ("pytest", "_pytest") for one in names):
                wrong.append(name(path))
    assert wrong == []


def test_what_travels_imports_nothing_of_the_rest():
    wrong = []
    for path in MODULES:
        if part(path) == "remote":
            wrong += [
                f"{name(path)} imports {other}" for other in imports(path) - {"remote"} if "inrun" not in path.parts
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
                words = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
                if words[0] == "remote" and words[1:2] not in (["shared"], []) or words == ["remote"]:
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
            ast.parse(path.read_text(), feature_version=(3, 5) if "inrun" in path.parts else (3, 8))


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
                public = [one.name for one in node.body if isinstance(one, ast.FunctionDef) and one.name[0] != "_"]
                assert len(public) <= 15, f"{name(path)}: {node.name} has {len(public)} public methods"


def test_everything_is_caught_in_named_places_only():
    found = set()
    for path in MODULES:
        for node in nodes(path):
            if isinstance(node, ast.ExceptHandler) and "inrun" not in path.parts:
                caught = getattr(node.type, "id", None)
                reraises = any(isinstance(one, ast.Raise) and one.exc is None for one in ast.walk(node))
                if (node.type is None or caught in ("Exception", "BaseException")) and not reraises:
                    found.add(name(path))
    assert found <= BROAD


TYPES = SOURCE / "targets" / "types.py"


@cache
def rows() -> dict[str, str]:
    """Row of targets/types.py → name of the compute type."""
    found = {}
    for node in nodes(TYPES):
        call = node.value if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) else None
        if call is not None and ast.unparse(call.func) == "ComputeType":
            found[ast.unparse(node.targets[0])] = ast.literal_eval(call.args[0])
    return found


def test_nobody_but_the_table_names_compute_types():
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


def test_nobody_compares_a_compute_type():
    """Nor where the word has another meaning, too: ``x.type == "docker"``, ``in``, ``match``, and tables by type."""
    wrong = []
    for path in MODULES:
        for node in nodes(path):
            if isinstance(node, (ast.Compare, ast.Match, ast.Subscript, ast.Call)):
                inside = list(ast.walk(node.subject if isinstance(node, ast.Match) else node))
                cases = [case.pattern for case in node.cases] if isinstance(node, ast.Match) else []
                literals = [*inside, *(part for case in cases for part in ast.walk(case))]
                asks = any(isinstance(one, ast.Attribute) and one.attr == "type" for one in inside)
                if asks and any(isinstance(one, ast.Constant) and one.value in rows().values() for one in literals):
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


def test_there_is_no_drawer():
    words = {"utils", "util", "common", "helpers", "helper", "core", "manager", "service", "misc"}
    ours = [path for path in MODULES if "azureml" not in path.parts]  # whose names scripts of the original import
    assert [name(path) for path in ours if path.stem in words or words & set(path.relative_to(SOURCE).parts)] == []


def test_foreign_json_is_parsed_in_one_place():
    """It may be nested deeply enough to raise what nobody expects of a parser."""
    calls = {
        name(path)
        for path in MODULES
        if "inrun" not in path.parts
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
