"""Failures that are known: a pattern of the smallest program or of why it fails, and the reason."""

import re

KNOWN: list[tuple[str, str]] = []


def reason(text: str, verdict: dict) -> str | None:
    """Why this failure is known; None where it is new."""
    for pattern, why in KNOWN:
        if re.search(pattern, text) or re.search(pattern, verdict.get("why", "")):
            return why
    return None
