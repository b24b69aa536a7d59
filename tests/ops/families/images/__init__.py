"""Families of images: where they are sampled, and patches of them."""
