"""Fused optimizers, clipping, loss scaling, schedules."""
