"""The ID of a client: the folder of one user on one computer."""

from __future__ import annotations

import re

CLIENT = re.compile(r"[0-9a-f]{32}")
