"""The kinds of programs: each with what makes one of a seed and what judges its text.

Both are imported when they are asked for: one kind needs no package of the other's.
"""

import dataclasses
import importlib
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Kind:
    made_by: str
    judged_by: str

    def program(self) -> Callable[[int], str]:
        return importlib.import_module(f"programs.{self.made_by}").program

    def judge(self) -> Callable[[str], dict]:
        return importlib.import_module(f"programs.{self.judged_by}").judge


ALL = {"module": Kind("modules", "run_module"), "onnx": Kind("files", "run_file")}
