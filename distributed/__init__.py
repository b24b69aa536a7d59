"""Streamed gradients, buckets, sharded optimizer, launch."""
