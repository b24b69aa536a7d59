"""Families of signals: windows and Fourier transforms."""
