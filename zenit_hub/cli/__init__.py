"""The command line: one thin module per command, one sink, one error table."""
