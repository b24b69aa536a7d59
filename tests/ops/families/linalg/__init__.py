"""Families of linear algebra beyond products."""
