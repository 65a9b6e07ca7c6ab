"""`python -m portkit`, for a Python whose scripts are not on the path."""

from portkit.cli import main

main(prog_name="portkit")
