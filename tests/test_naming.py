"""The names of modules and public identifiers: standard terms, no private metaphors, no ambiguous module names."""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.test_architecture import MODULES, SOURCE, name, nodes

# Metaphors that earlier versions used, as parts of names, and what to write instead.
BANNED = {
    "apart": "separate_process",
    "asking": "probe, prompt",
    "beneath": "inside, safe_path",
    "bring": "download, fetch",
    "brought": "downloaded, fetched",
    "complaint": "error_message",
    "complaints": "error_messages",
    "deed": "action",
    "deeds": "actions",
    "desk": "backend",
    "door": "entry_point, middleware, api",
    "errand": "operation",
    "errands": "operations",
    "ground": "target_facts",
    "hands": "worker_pool",
    "homecoming": "collect_results",
    "hopeless": "unusable",
    "intake": "ingest",
    "judge": "evaluate, diagnose",
    "lively": "live, download_usage",
    "parcel": "package_upload",
    "patience": "timeout, limit",
    "rattle": "conda_install",
    "said": "message, output",
    "spoken": "printed",
    "stock": "store, upload_source",
    "stranger": "unattached, other_user",
    "strangers": "other_users",
    "tally": "totals, summary",
    "telling": "default_columns, description",
    "told": "reported, received",
    "trouble": "error, problem",
    "troubles": "errors, problems",
    "utmost": "max",
    "whose": "owner",
    "wish": "request",
    "wishes": "filters, requests",
}
# Keys of files, events, and the HTTP API, which keep their names.
SERIALIZED = {"errand", "said", "spoken", "told_tags", "trouble", "troubles"}
# Former module names that the documentation of plugins mentioned; their modules only import the new ones.
FORMER_MODULES = {
    "environments/site.py": "mlworkbench.environments.selection_request",
    "hosts/local.py": "mlworkbench.hosts.local_host",
}
# Packages whose modules may share names: a command, a page, a query, and an API route can have the same subject.
VIEWS = {"cli", "ui/api", "ui/pages", "ui/pages/run", "ui/pages/targets", "ui/queries"}
# Modules with the same role on the client and on the target.
BOTH_SIDES = {"failure.py", "mirrors.py", "parallel_programs.py", "source_builds.py"}


def words(identifier: str) -> set[str]:
    """Return the words of an identifier in snake case or camel case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)}


def public_names(path: Path) -> set[str]:
    """Return the public functions, classes, methods, fields, and constants of a module."""
    names = set()
    for node in nodes(path):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, (ast.Module, ast.ClassDef)):
            for statement in node.body:
                targets = statement.targets if isinstance(statement, ast.Assign) else []
                targets += [statement.target] if isinstance(statement, ast.AnnAssign) else []
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {identifier for identifier in names - SERIALIZED if not identifier.startswith("_")}


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_names_are_standard_terms(path: Path):
    if name(path) in FORMER_MODULES:
        return
    identifiers = {*path.relative_to(SOURCE).with_suffix("").parts, *public_names(path)}
    wrong = {
        identifier: {word: BANNED[word] for word in words(identifier) & set(BANNED)}
        for identifier in sorted(identifiers)
        if words(identifier) & set(BANNED)
    }
    assert wrong == {}, f"rename these in {name(path)}: word → replacement"


def test_module_names_are_unique():
    places = defaultdict(list)
    for path in MODULES:
        if path.stem not in ("__init__", "__main__") and "inrun" not in path.parts and name(path) not in FORMER_MODULES:
            places[path.name].append(path.relative_to(SOURCE).parent.as_posix())
    wrong = {
        module: folders
        for module, folders in places.items()
        if len(folders) > 1 and module not in BOTH_SIDES and not set(folders) <= VIEWS
    }
    assert wrong == {}


@pytest.mark.parametrize(("former", "current"), FORMER_MODULES.items())
def test_former_modules_have_the_documented_names(former: str, current: str):
    module = importlib.import_module("mlworkbench." + former.removesuffix(".py").replace("/", "."))
    assert module.__all__
    assert all(getattr(module, item) is getattr(importlib.import_module(current), item) for item in module.__all__)


def test_unit_tests_mirror_the_source_tree():
    """Each folder of unit tests corresponds to a package."""
    tests = Path(__file__).parent / "unit"
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    assert [str(folder) for folder in sorted(folders) if not (SOURCE / folder).is_dir()] == []
