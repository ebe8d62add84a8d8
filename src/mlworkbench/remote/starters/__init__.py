"""How a supervisor gets to run on a target, one file per starter; ``starter.py`` says what each must be able to do."""

DETACHED = "detached"
PLUGIN = "plugin:"  # before the name of a file in plugins/
RUNNING, ENDED, UNKNOWN = "running", "ended", "unknown"  # states that mlw itself names; a scheduler may say "queued"
