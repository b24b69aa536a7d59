"""One call of a module as a graph: a line of stages, each from the records before it.

A module and a described call come in; a Capture goes out: the graph, how its outputs become the
module's result, and the guards under which it serves another call. What no graph holds is a
NotCapturable with its reason and place. Nothing runs on real data.
Imports calls, records, guards, side_effects, translate, python_ops and lowbit.
"""
