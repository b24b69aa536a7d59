"""Failures that are known: a pattern of the smallest program or of why it fails, and the reason."""

import re

KNOWN: list[tuple[str, str]] = [
    ("lu_cpu", "eager has no kernel for bfloat16, ours computes it"),
    ("does not exist, the input has rank 0", "onnxruntime takes any axis of a scalar"),
    (r"\[Compress\] condition (has shape .* expected one|takes row)", "the standard has one axis"),
    ("op .LayerNormalization. has another meaning", "the standard has it since opset 17"),
    (r"\[Squeeze\] size of an axis that stays", "a file's rank may not depend on a size: told"),
    (r"\[Log\] input 'x' has dtype int", "logarithms of sums of integers are not taken: told"),
]


def reason(text: str, verdict: dict) -> str | None:
    """Why this failure is known; None where it is new."""
    for pattern, why in KNOWN:
        if re.search(pattern, text) or re.search(pattern, verdict.get("why", "")):
            return why
    return None
