"""What the stages of a capture hand to each other, and to the engine.

No stage: inputs, outputs and write-backs of a graph, its sizes as expressions and what is assumed
of them, what eager's autograd graph says of its outputs, and Python that runs as its steps.
Imports no package but torch_internals.
"""
