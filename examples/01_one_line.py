"""One line: all-MiniLM-L6-v2 learns to tell topics, in eager PyTorch and through ORTModule.

Each engine trains in a process of its own, with the same seed. out/ gets the loss curves, the graph
view and the trained model as ONNX, which our InferenceSession and onnxruntime then run.
"""

import pathlib
import statistics
import sys
import time

import fresh
import onnxruntime
import report
import topics
import torch
from tqdm import tqdm

from ortmodule import InferenceSession, Options, ORTModule, view

OUT = pathlib.Path(__file__).resolve().parent.parent / "out"
EPOCHS, BATCH = 3, 16
ONNX, DUMP = OUT / "topics.onnx", OUT / "graph"


def train(engine: str) -> dict:
    """Fine-tunes with one engine; losses, times, memory, accuracy and what explain() says."""
    base = fresh.memory("VmRSS")
    training_set, test_set = topics.split()
    model = topics.encoder()
    if engine == "ORTModule":
        model = ORTModule(model, Options(dump=str(DUMP)))  # the one line; the view wants a dump
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    generator = torch.Generator().manual_seed(0)
    losses, seconds, first = [], [], 0.0
    with tqdm(total=EPOCHS * (len(training_set["labels"]) // BATCH), desc=f"{engine:9}") as bar:
        for _ in range(EPOCHS):
            for batch in topics.batches(training_set, BATCH, generator):
                start = time.perf_counter()
                optimizer.zero_grad()
                loss = model(**batch).loss
                loss.backward()
                first = first or time.perf_counter() - start
                optimizer.step()
                seconds.append(time.perf_counter() - start)
                losses.append(loss.item())
                bar.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
                bar.update()
    result = {"losses": losses, "first": first, "step": statistics.median(seconds[1:])}
    result["peak"] = fresh.memory("VmHWM") - base
    if engine == "ORTModule":
        result["report"] = model.explain()
    return result | test(model, test_set)


@torch.no_grad()
def test(model, data: dict) -> dict:
    """Accuracy on the test set; from ORTModule also the ONNX file, and eager's logits for it."""
    result = {"accuracy": topics.accuracy(model, data, BATCH)}
    if hasattr(model, "export_onnx"):
        model.export_onnx(ONNX)
        *_, batch = topics.batches(data, BATCH)
        del batch["labels"]
        result["feed"] = {k: v.numpy() for k, v in batch.items()}
        result["logits"] = model.module(**batch).logits.numpy()
    return result


def compare_onnx(ours: dict) -> bool:
    """Runs the ONNX file in both sessions; whether they agree with eager PyTorch."""
    agree = True
    for name, session in (
        ("our InferenceSession", InferenceSession(ONNX)),
        ("onnxruntime", onnxruntime.InferenceSession(ONNX)),
    ):
        feed = {port.name: ours["feed"][port.name] for port in session.get_inputs()}
        error = abs(session.run(["logits"], feed)[0] - ours["logits"]).max()
        agree &= bool(error < 1e-3)
        print(f"{name:24}largest difference from eager PyTorch {error:.1e}")
    return agree


def main() -> int:
    OUT.mkdir(exist_ok=True)
    results = {engine: fresh.in_a_process(train, engine) for engine in ("eager", "ORTModule")}
    print(report.table(results, EPOCHS))
    for fallback in results["ORTModule"]["report"].fallbacks:
        print(f"fallback: {fallback}")
    report.curves(results, OUT / "loss.png")
    (OUT / "graph.html").write_text(view.page(view.read(DUMP)))
    agree = compare_onnx(results["ORTModule"])
    print(f"in {OUT}: loss.png, graph.html, {ONNX.name}")
    return 0 if agree else "the ONNX file and eager PyTorch disagree"


if __name__ == "__main__":
    sys.exit(main())
