"""Environments on a target: state (environment_state.py), builds (build.py), removal (garbage_collection.py)."""
