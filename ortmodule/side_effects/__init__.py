"""What forward does to the world while it runs to be learnt from, found and put back.

A run of forward comes in; what it wrote, drew and imported goes out, and the world is as it was.
The module's tensors are the capturing thread's own meanwhile.
Imports guards.
"""
