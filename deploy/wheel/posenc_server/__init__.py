"""The programs of posenc: posencd, posenc, posenc-load. `python -m posenc_server` runs posencd."""

import importlib.metadata
import os
import sys

__version__ = importlib.metadata.version("posenc-server")

# One file with all programs; argument 0 or 1 selects the program.
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "posenc-programs")


def run(name=None):
    """Replaces this process by the program `name`; the default is the name of this command."""
    os.execv(PROGRAM, [PROGRAM, name or os.path.basename(sys.argv[0]), *sys.argv[1:]])
