"""Failures that are known: a pattern of the smallest program or of why it fails, and the reason."""

import re

KNOWN: list[tuple[str, str]] = [
    ("lu_cpu", "eager has no kernel for bfloat16, ours computes it"),
    ("does not exist, the input has rank 0", "onnxruntime takes any axis of a scalar"),
    (r"\[Compress\] condition (has shape .* expected one|takes row)", "the standard has one axis"),
    (r"\[Squeeze\] size of an axis that stays", "a file's rank may not depend on a size: told"),
    (r"\[HannWindow\] the rank of its result", "the standard's size is a scalar: told"),
    (r"\[CenterCropPad\] shape has 1 numbers", "the standard has one for each axis: told"),
    (r"\[GatherND\] the rank of its result .* only at run time", "a rank of a size: told"),
    (
        r"(?s)op\.Unique.*\[GatherElements\] index .* out of range",
        "onnxruntime refuses it too, onnx's reference takes another element",
    ),
    (r"\[Squeeze\] axes .* name an axis twice", "onnxruntime takes one, numpy does not: told"),
    (r"\[(Log|ort::SafeSqrt)\] input 'x' has dtype int", "logs, roots of sums of integers: told"),
    (r"\[(Mod|Div)\] division of an integer by zero", "onnxruntime's answer is none: told"),
    (r"the axes of a reduction are known only at run time", "a rank of a number: told"),
    (
        r"(?s)op\.MeanVarianceNormalization.*tensor\(.*nan",
        "a variance of zero: onnxruntime has no epsilon, the standard's function has",
    ),
    (r"op\.Unique\(op\.MeanVarianceNormalization", "the same: its NaNs are counted"),
    (r"op\.TopK\(.*op\.Atanh", "places of NaNs, where they are in onnxruntime's order"),
    (
        r"(?s)op\.(ReduceM|Arg|TopK|MaxPool|Clip).*\n.*tensor\(.*nan",
        "where NaN is in onnxruntime's order",
    ),
]


def reason(text: str, verdict: dict) -> str | None:
    """Why this failure is known; None where it is new."""
    for pattern, why in KNOWN:
        if re.search(pattern, f"{text}\n{verdict.get('why', '')}"):
            return why
    return None
