"""Runs the program: ``python -m piton``."""

import os
import sys

from .client import PitonError, find_program

try:
    program = find_program()
    os.execvp(program, [program, *sys.argv[1:]])
except PitonError as error:
    sys.exit(f"error: {error}")
except OSError as error:
    sys.exit(f"error: cannot start {program}: {error.strerror}")
