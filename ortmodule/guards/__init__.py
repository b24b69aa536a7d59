"""What a module's forward reads of the world, and whether that is still as it was.

A module and the functions that its forward enters come in; a Snapshot goes out, which tells at
each call what differs.
Imports calls and records.
"""
