"""NotCapturable: the reason why a module, or one call of it, cannot run through the engine.

Raised by all that looks at a call (admit.py to finish.py, and what they use); dispatch turns it
into a reported fallback. Its class says where the module runs then: in eager, or, as NeedsCut says,
in parts.
"""

import traceback


class NotCapturable(Exception):
    """The module is not captured whole and runs in eager; `reason` says why, the rest says where.

    `roots`: the functions that forward had entered, where it was looked at. `has_seams`: what
    stands against it is that a submodule communicates. `raised`: forward raised in its fake run,
    as it does where the call is wrong: only eager tells.
    """

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
        self.roots, self.has_seams, self.raised = [], False, False
        super().__init__(f"[{op}] {reason}{place}" if op else f"{reason}{place}")

    def place(self) -> dict[str, str | int | None]:
        """Where: the keywords of another error for the same place."""
        return {"op": self.op, "module": self.module, "file": self.file, "line": self.line}

    def entered(self, roots: list) -> "NotCapturable":
        """The same error, of a forward that entered these functions."""
        self.roots = roots
        return self

    def at_seams(self) -> "NotCapturable":
        """The same error, of a submodule that communicates."""
        self.has_seams = True
        return self

    def bare(self) -> "NotCapturable":
        """The same error without what led to it, whose frames hold the call's tensors."""
        bare = type(self)(self.reason, **self.place())
        bare.roots, bare.has_seams = self.roots, self.has_seams
        bare.raised = self.raised
        return bare


def let_go(error: BaseException | None) -> None:
    """Empties the frames behind an error: in a cycle with it they would hold a call's tensors."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


class Defect(Exception):
    """A failure of ours: `refusal` says of which op, and lets the call run eagerly."""

    def __init__(self, refusal: NotCapturable):
        super().__init__(str(refusal))
        self.refusal = refusal


class NeedsCut(NotCapturable):
    """What stands against one graph is done by Python between two operators, where Dynamo cuts or
    has a guard: the module runs in parts. No answer of the trace's is in it."""


class ReadsData(NeedsCut):
    """Python reads a number out of a tensor and does with it what no graph says: parts may."""


class NeedsExactSizes(NotCapturable):
    """A size must be a number: the call is captured once more, for its own sizes only."""


class NeedsFewerSymbols(NeedsExactSizes):
    """Symbols for all sizes take too long: the call is captured once more, with those of first axes
    alone, which most modules have the batch on."""


class NeedsEagersAnswers(NotCapturable):
    """Forward asks whether it is traced, and fails: it is traced again without being told."""


class WarmUp(NotCapturable):
    """Eager must make this call: forward sets up state that later calls find as it left it."""
