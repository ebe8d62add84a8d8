"""Starts supervisors with the script ~/mlw-job. Runs on the target: Python 3.8, standard library only."""

import os
import subprocess

SCRIPT = os.path.expanduser("~/mlw-job")


def start(run, spec, secrets, supervision):
    """Start a job that runs the supervisor. mlw stores the returned handle in the run folder."""
    return {"job": call("start", *supervision.command, message=supervision.message).strip()}


def status(handles):
    """Report on many runs with one call of the script. It prints a line "ID STATE" for each job that it knows."""
    jobs = {run_id: handle["job"] for run_id, handle in handles.items()}
    states = dict(line.split() for line in call("status", *jobs.values()).splitlines())
    return {run_id: {"state": states.get(job, "unknown")} for run_id, job in jobs.items()}


def cancel(handle, grace):
    """Nothing to do: jobs start at once, and the supervisor finds the request in the run folder."""


def call(*words, message=b""):
    done = subprocess.run([SCRIPT, *words], input=message, stdout=subprocess.PIPE, timeout=60, check=True)
    return done.stdout.decode()
