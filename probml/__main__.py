"""`python -m probml`: the command line where no script is installed."""

from probml.commandline.main import main

main()
