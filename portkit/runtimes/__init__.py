"""Ways to run a model's forward pass: transformers, KerasHub, Burn, and the reference in numpy.

The only place, with the readers of pickles, where a framework is imported: inside the function that needs it.
"""
