"""Tokenizers move with their model: what one framework's files say, in the files of another. Standard library only."""
