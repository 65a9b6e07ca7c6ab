"""Goldens: a few numbers from outside, or recorded earlier, that a checkpoint in any layout must reproduce."""
