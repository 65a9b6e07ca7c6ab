"""Compare two checkpoints of any layouts in logical names, and say what may have happened where they differ."""
