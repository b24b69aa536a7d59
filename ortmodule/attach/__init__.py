"""Optimizers that step within the backward: what ORTModule.attach gives.

Torch's hooks on parameters tell when a gradient is complete, however the module runs.
Imports guards.
"""
