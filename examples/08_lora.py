"""LoRA of a pretrained encoder: beside eager and beside training all of it; then two adapters, each
for a task of its own, served from one loaded base."""

import pathlib
import sys

import adapters
import topics
from peft import PeftModel

from ortmodule import ORTModule

OUT = pathlib.Path(__file__).resolve().parent.parent / "out"
TOPICS, QUESTIONS = str(OUT / "adapter_topics"), str(OUT / "adapter_questions")


def serve() -> dict[str, float]:
    """The accuracy of each adapter for its task, switched without loading the base again."""
    model = PeftModel.from_pretrained(topics.encoder(), TOPICS, adapter_name="topics")
    model.load_adapter(QUESTIONS, adapter_name="questions")
    run, (_, data) = ORTModule(model), topics.split()
    found = {}
    for name, task in {"topics": data, "questions": adapters.as_questions(data)}.items():
        model.set_adapter(name)
        found[name] = topics.accuracy(run, task, adapters.BATCH)
    return found


def main() -> int | str:
    ours = adapters.in_a_process(ours=True, save=TOPICS)
    results = {
        "all of it, eager": adapters.in_a_process(ours=False, full=True),
        "LoRA, eager": adapters.in_a_process(ours=False),
        "LoRA, ORTModule": ours,
    }
    other = adapters.in_a_process(ours=True, save=QUESTIONS, questions=True)
    print(adapters.table(results))
    print(ours["report"].line())
    served = serve()
    print("served from one base:", *(f"{name} {share:.1%}" for name, share in served.items()))
    if ours["report"].fallbacks:
        return "\n".join(map(str, ours["report"].fallbacks))
    as_trained = {"topics": ours["accuracy"], "questions": other["accuracy"]}
    return 0 if served == as_trained else f"trained adapters had {as_trained}"


if __name__ == "__main__":
    sys.exit(main())
