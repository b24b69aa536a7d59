"""NotCapturable: the reason why a module, or one call of it, cannot run through the engine.

Raised by capture.py, contract.py and translate/; module.py turns it into a reported fallback.
"""


class NotCapturable(Exception):
    """The module cannot be captured whole; `reason` says why, the rest says where."""

    def __init__(
        self,
        reason: str,
        op: str | None = None,
        module: str | None = None,
        file: str | None = None,
        line: int | None = None,
    ):
        self.reason, self.op, self.module, self.file, self.line = reason, op, module, file, line
        place = f"; module {module}" if module else ""
        place += f"; {file}:{line}" if file else ""
        super().__init__(f"[{op}] {reason}{place}" if op else f"{reason}{place}")


class NeedsExactSizes(NotCapturable):
    """A size must be a number: the call is captured once more, for its own sizes only."""
