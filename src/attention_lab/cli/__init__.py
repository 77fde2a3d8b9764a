"""Between Hydra and a command: the command line in, one line and an exit code out."""
