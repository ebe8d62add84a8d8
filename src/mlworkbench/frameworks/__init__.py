"""Create the user's command line from the script, its arguments, and the interpreter."""
