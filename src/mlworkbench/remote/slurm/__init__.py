"""Slurm: its programs, the jobs of runs, and how they end; ``starters/slurm.py`` starts, queries, and cancels runs."""
