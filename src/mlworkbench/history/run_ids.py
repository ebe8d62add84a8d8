"""Run IDs: readable, unique, and safe as file, container, and job names."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

_ADJECTIVES = (
    "able amber ample azure balmy bold brave brief bright brisk broad calm candid cheery chief civil clean clear clever"
    " cosy crisp deft eager early easy exact fair fine firm fleet fond free fresh gentle glad grand green happy hardy"
    " honest jolly keen kind lively loyal lucid lucky mellow merry mild modest neat nimble noble patient plain polite"
    " proud quick quiet rapid ready regal robust rosy sharp silent sleek smart smooth snug solid steady stout sunny"
    " sure swift tidy trim true vivid warm wise witty"
).split()
_NOUNS = (
    "alder ant aspen badger bear beaver beech birch bison briar cedar clover condor coral crane crow cypress deer"
    " dolphin dove eagle elder elk elm falcon fern finch fir fox gannet gecko goose hare hawk hazel heron holly ibex"
    " iris ivy jay kestrel koala larch lark laurel lemur lily linden lynx magpie maple marten mole moose newt oak orca"
    " osprey otter owl panda pike pine plover poplar puffin quail raven robin rowan salmon seal sparrow spruce stork"
    " swan swift teal tern thrush tiger toad trout tulip viper vole walrus whale willow wolf wren yew"
).split()
_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"  # no characters that look alike


def new_id(project: str) -> str:
    """Return an ID such as ``demo-swift-otter-7k2q``. The caller must ensure that it is unique."""
    tail = "".join(_choose(_LETTERS) for _ in range(4))
    return f"{_stem(project)}-{_choose(_ADJECTIVES)}-{_choose(_NOUNS)}-{tail}"


def strip_project(run_id: str, project: str) -> str:
    """Return the ID without its project part, ``swift-otter-7k2q``, for use beside the project."""
    return run_id.removeprefix(f"{_stem(project)}-")


def _stem(project: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", project.lower()).strip("-")[:24].strip("-") or "run"


def _choose(choices: Sequence[str]) -> str:
    return choices[int.from_bytes(os.urandom(4), "big") % len(choices)]
