"""Philox4x32-10 in numpy (Salmon et al. 2011), and the masks that dropout draws from it."""

import numpy as np

LOW = np.uint64(0xFFFFFFFF)


def philox(counter: np.ndarray, key: int) -> np.ndarray:
    """counter [n, 4] of 32-bit words in uint64 -> random words of the same shape."""
    c = counter.astype(np.uint64)
    k0, k1 = np.uint64(key & 0xFFFFFFFF), np.uint64(key >> 32)
    for _ in range(10):
        a, b = c[:, 0] * np.uint64(0xD2511F53), c[:, 2] * np.uint64(0xCD9E8D57)
        high_a, high_b = a >> np.uint64(32), b >> np.uint64(32)
        c = np.stack([high_b ^ c[:, 1] ^ k0, b & LOW, high_a ^ c[:, 3] ^ k1, a & LOW], 1)
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & LOW, (k1 + np.uint64(0xBB67AE85)) & LOW
    return c


def uniform(count: int, key: int, stream: int) -> np.ndarray:
    """[0, 1) for each element: 24 bits of word i % 4 of the block (i // 4, stream)."""
    blocks = np.arange(-(-count // 4), dtype=np.uint64)
    counter = np.stack([blocks & LOW, blocks >> np.uint64(32), 0 * blocks + np.uint64(stream)], 1)
    counter = np.concatenate([counter, np.zeros((len(blocks), 1), np.uint64)], 1)
    return (philox(counter, key).reshape(-1)[:count] >> np.uint64(8)) * 2.0**-24
