"""The proof that two models compute one function: inputs, runs, and a limit derived from measured noise."""

PROOFS = ("tensors", "facts", "forward")  # in the order in which they are made
