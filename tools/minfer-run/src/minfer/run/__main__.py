"""`python -m minfer.run`."""

from minfer.run.cli import main

main()
