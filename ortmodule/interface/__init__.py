"""What the stages of a capture hand to each other, and to the engine.

Records and no stage: inputs, outputs and write-backs of a graph, its sizes as expressions, what
eager's autograd graph says of its outputs, and Python callables that run as its steps.
Imports no package but torch_internals.
"""
