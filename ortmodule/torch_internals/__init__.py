"""The one door to torch's internals: private names, and functions of torch's that are replaced.

Each name that is imported is a line of one of these files, with what needs it; the rest of the
project takes it from there. Where a torch lacks one, whatever needs it is refused with that reason.
To see which of them the torch at hand has: `python -m ortmodule.torch_internals`.
Imports no package.
"""
