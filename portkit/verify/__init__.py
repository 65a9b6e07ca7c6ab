"""The proof that two models compute the same function: inputs, runs, and a limit derived from measured noise."""
