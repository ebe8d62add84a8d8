"""The format of client IDs. A client is one user's data folder on one computer."""

from __future__ import annotations

import re

CLIENT = re.compile(r"[0-9a-f]{32}")
