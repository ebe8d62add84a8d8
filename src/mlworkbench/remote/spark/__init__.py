"""Spark on this machine: what there is of it, what an application of ours does, what executors get."""
