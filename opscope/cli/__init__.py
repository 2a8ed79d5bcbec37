"""The opscope command, one subcommand a file."""
