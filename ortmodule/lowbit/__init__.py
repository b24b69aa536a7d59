"""Layers whose frozen weight is kept in few bits, and how they show it as floats.

ortmodule.lora makes them; a product reads the bits where they lie (translate/rules/quantized.py).
Imports no package but torch_internals.
"""
