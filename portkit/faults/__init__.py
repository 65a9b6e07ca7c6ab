"""The checker is itself checked: faults that real conversions have had, put into a sound model one at a time."""
