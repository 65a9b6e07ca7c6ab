"""Conventions of the frameworks' folders: which files there are, and what config.json says. No byte is parsed here."""
