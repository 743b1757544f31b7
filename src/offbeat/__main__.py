"""`python -m offbeat`."""

import os
import sys

if sys.path[:1] == [os.getcwd()]:  # put there by `-m`: a file beside us is not to be taken for a module of Python's
    del sys.path[0]

from offbeat.cli import main

main()
