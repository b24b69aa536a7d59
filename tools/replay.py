"""`make replay`: the plans of the example models compared with those recorded in tests/plans.

A refactor must leave them unchanged; a change that means to change them records them anew with
`make replay ARGS=--record`, and the diff is reviewed. What is compared is the same on every CPU:
the steps' ops, providers, segments and results, and the bytes of values, all of them row-major; no
kernels, no scratch.
NAME.bf16 are those of a training step under autocast to bfloat16: where its casts stand.
"""

import argparse
import difflib
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDED = ROOT / "tests" / "plans"
sys.path.insert(0, str(ROOT / "tests" / "models"))


def plans_of(name: str) -> list[dict]:
    """The plans of a training step and of an evaluation of a tiny model, out of a dump."""
    name, _, half = name.partition(".")
    import torch
    import zoo

    from ortmodule import Options, ORTModule, view

    torch.manual_seed(0)
    module, batch = zoo.MODELS[name]()
    with tempfile.TemporaryDirectory() as folder:
        model = ORTModule(module.train(), Options(fallback="error", dump=folder, off=("layouts",)))
        with torch.autocast("cpu", torch.bfloat16, enabled=bool(half)):
            loss = zoo.loss_of(model(**batch))
        loss.backward()
        with torch.no_grad():
            model.eval()(**batch)
        return [plan.content for plan in view.read(folder).plans]


def names() -> list[str]:
    """What is recorded."""
    import zoo

    return [*zoo.MODELS, *(f"{name}.bf16" for name in zoo.MODELS)]


def fullest(plan: dict) -> int:
    """Bytes of the values that are alive at the step with the most of them."""
    change = [0] * (len(plan["steps"]) + 1)
    for _, size, first, last in plan["values"]:
        change[first] += size
        change[last + 1] -= size
    most = now = 0
    for step in change:
        now += step
        most = max(most, now)
    return most


def text_of(plans: list[dict]) -> str:
    """The plans as text, a line a step."""
    lines = []
    for plan in plans:
        steps, forward = plan["steps"], plan["forward_steps"]
        counts = f"{forward} forward and {len(steps) - forward} backward steps"
        lines.append(f"plan: {counts}, {fullest(plan)} bytes of values at the fullest step")
        for step in steps:
            where = "forward" if step["segment"] < 0 else f"segment {step['segment']}"
            ops = "+".join(step["ops"]) or "copy"
            lines.append(
                f"  {where} {step['provider']}: {ops} -> {', '.join(step['types'])}".rstrip(" ->")
            )
    return "\n".join(lines) + "\n"


def compare(name: str, record: bool) -> str:
    """The diff between the recorded plans and today's; empty when there is none."""
    path = RECORDED / f"{name}.txt"
    now = text_of(plans_of(name))
    before = path.read_text() if path.exists() else ""
    if record:
        path.parent.mkdir(exist_ok=True)
        path.write_text(now)
    recorded = str(path.relative_to(ROOT))
    lines = before.splitlines(True), now.splitlines(True)
    return "".join(difflib.unified_diff(*lines, recorded, "now", n=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(names())}")
    parser.add_argument("--record", action="store_true", help="today's plans are the right ones")
    given = parser.parse_args()
    unknown = set(given.models) - set(names())
    if unknown:
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    changed = []
    for name in given.models or names():
        diff = compare(name, given.record)
        if diff:
            changed.append(name)
            print(diff, end="")
    if changed and not given.record:
        sys.exit(f"plans changed: {', '.join(changed)}; if meant, `make replay ARGS=--record`")
    print(f"recorded: {', '.join(changed) or 'nothing new'}" if given.record else "plans unchanged")


if __name__ == "__main__":
    main()
