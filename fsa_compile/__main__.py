"""`python -m fsa_compile`: the `fsa-compile` command."""

import sys

from fsa_compile.cli.commands import main

sys.exit(main())
