"""How a supervisor gets to run on a target, one file per starter; ``starter.py`` says what each must be able to do."""
