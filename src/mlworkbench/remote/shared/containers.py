"""Names around containers that both sides use."""

from __future__ import annotations

SUGGESTED_IMAGE = "python:3.12-slim-bookworm"
# Among the run's secrets: the password for container["registry"]. No name of a variable, so it is never the user's.
REGISTRY_PASSWORD = "mlw.registry"
SHARE = "/azureml-share/"  # the original's place for the shared folder inside a container

# Codes of what mlw itself finds out; everything else is in an engine's own words.
NO_RESPONSE, NO_NAMESPACES, NO_UIDMAP, NO_IDS = "no-response", "no-user-namespaces", "no-uidmap", "no-subordinate-ids"
