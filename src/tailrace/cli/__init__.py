"""The command line: words on standard error, data on standard output, exit codes that mean something.

0: done, or stopped as asked. 1: the pipeline was refused or failed. 2: the command could not be carried out as
given. 130 and 143: ended by Ctrl-C or SIGTERM before it was done.
"""

from tailrace.cli.app import main

__all__ = ["main"]
