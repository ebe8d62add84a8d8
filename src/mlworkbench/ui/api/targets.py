"""Compute targets: facts, GPUs, attach, check, prepare, clean; and submit."""

from __future__ import annotations

from fastapi import APIRouter

from ..desk import Desk


def routes(desk: Desk) -> APIRouter:
    return APIRouter(tags=["targets"])
