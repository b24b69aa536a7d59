"""peft: LoRA of a small Llama in eager PyTorch and through ORTModule, merged at the end."""

import sys

import report
import topics
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForSequenceClassification

from ortmodule import ORTModule

STEPS, BATCH = 12, 16


def small_llama() -> LlamaForSequenceClassification:
    """An untrained Llama of two layers, the same at each call."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=30522,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=128,
        num_labels=len(topics.TOPICS),
        pad_token_id=0,
    )
    return LlamaForSequenceClassification(config)


def train(ours: bool) -> tuple[list[float], torch.nn.Module]:
    """The losses of STEPS steps and of the merged model, and the model that was trained."""
    lora = LoraConfig(task_type="SEQ_CLS", r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"])
    model = get_peft_model(small_llama(), lora)
    if ours:
        model = ORTModule(model)  # the one line
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    losses = []
    for batch in list(topics.batches(topics.split()[0], BATCH))[:STEPS]:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    merged = model.merge_and_unload()
    with torch.no_grad():
        losses.append(merged(**batch).loss.item())
    return losses, model


def main() -> int:
    eager, _ = train(ours=False)
    losses, model = train(ours=True)
    return report.compare(eager, losses, model.explain())


if __name__ == "__main__":
    sys.exit(main())
