"""Python inside a graph: autograd.Functions, hooks on gradients, collectives, control flow.

Holds what stands in torch's place while a module is captured, so that a traced graph has one
operator for each of these; translate has their rules.
Imports records, guards, side_effects and translate.
"""
