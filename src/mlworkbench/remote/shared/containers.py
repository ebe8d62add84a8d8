"""Container constants that client and target share."""

from __future__ import annotations

SUGGESTED_IMAGE = "python:3.12-slim-bookworm"
# Key in the run's secrets: the password for container["registry"]. Not a valid name for a user's variable.
REGISTRY_PASSWORD = "mlw.registry"
SHARE = "/azureml-share/"  # path of the shared folder inside a container, as in Azure ML Workbench

# Codes of problems that mlw detects itself. For other problems, the engine's own message is reported.
NO_RESPONSE, NO_NAMESPACES, NO_UIDMAP, NO_IDS = "no-response", "no-user-namespaces", "no-uidmap", "no-subordinate-ids"
