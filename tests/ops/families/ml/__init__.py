"""Families of ai.onnx.ml whose parts are ops of our own."""
