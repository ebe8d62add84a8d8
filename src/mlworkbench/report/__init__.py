"""What is said of runs, to people and programs alike: the command line and the browser show the same."""
