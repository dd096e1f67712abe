"""The command line: data on standard output, messages on standard error, documented exit codes.

* 0: the command finished, or the user stopped it.
* 1: the pipeline was refused or failed, a benchmark is void, or ``tailrace doctor`` reports something as missing.
* 2: the command could not run: an invalid argument, a refused setting or login, or something missing that it needs.
* 130, 143: Ctrl-C or SIGTERM ended the command before it finished.
"""

from tailrace.cli.app import main

__all__ = ["main"]
