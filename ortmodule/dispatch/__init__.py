"""The way of a call: the capture that serves it, a new one, parts, or eager PyTorch.

A call's arguments come in; the module's result goes out, and what ran is counted for explain().
Imports every package but attach.
"""
