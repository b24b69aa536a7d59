"""The workloads of compare.py: each makes a module and a function that runs forward to the loss.

Called by compare.py, in its process and in fresh ones. Weights are random, sizes are real ones;
dropout is the configuration's own unless `dropout` says otherwise.
"""

import torch
from torch import nn
from torch.nn import functional


def _ids(batch: int, length: int, vocabulary: int) -> torch.Tensor:
    return torch.randint(3, vocabulary, (batch, length))


def bert(batch: int = 8, length: int = 128, dropout: float = 0.1):
    """BertForSequenceClassification, base config; labels in, loss out."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    inputs = {
        "input_ids": _ids(batch, length, config.vocab_size),
        "attention_mask": torch.ones(batch, length, dtype=torch.long),
        "labels": torch.randint(0, 2, (batch,)),
    }
    return BertForSequenceClassification(config), lambda model: model(**inputs).loss


def gpt2(batch: int = 4, length: int = 128, dropout: float = 0.1):
    """GPT2LMHeadModel, the 124 million parameters."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout)
    ids = _ids(batch, length, config.vocab_size)
    return GPT2LMHeadModel(config), lambda model: model(input_ids=ids, labels=ids).loss


def llama_lora(batch: int = 1, length: int = 128, dropout: float = 0.05):
    """LlamaForCausalLM of TinyLlama's 1.1 billion parameters, LoRA of rank 8 on q and v."""
    return _lora(batch, length, dropout, width=2048, hidden=5632, layers=22, heads=32, groups=4)


def llama_small_lora(batch: int = 2, length: int = 256, dropout: float = 0.05):
    """LlamaForCausalLM of 110 million parameters, LoRA of rank 8 on q and v."""
    return _lora(batch, length, dropout, width=768, hidden=2048, layers=9, heads=12, groups=12)


def _lora(
    batch: int, length: int, dropout: float, *, width: int, hidden: int, layers: int, heads: int,
    groups: int,
):  # fmt: skip
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000, hidden_size=width, intermediate_size=hidden, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=groups, max_position_embeddings=2048,
    )  # fmt: skip
    lora = LoraConfig(
        r=8, lora_dropout=dropout, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"
    )
    model = get_peft_model(LlamaForCausalLM(config), lora)
    for name, parameter in model.named_parameters():  # B starts at zero: no gradient would reach A
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.02)
    ids = _ids(batch, length, config.vocab_size)
    return model, lambda model: model(input_ids=ids, labels=ids).loss


def vit(batch: int = 4, dropout: float = 0.0):
    """ViTForImageClassification, base config: 224 x 224 in patches of 16."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    pixels, labels = torch.randn(batch, 3, 224, 224), torch.randint(0, 2, (batch,))
    model = ViTForImageClassification(config)
    return model, lambda model: model(pixel_values=pixels, labels=labels).loss


def resnet50(batch: int = 8, dropout: float = 0.0):
    """torchvision's ResNet-50 at 224 x 224; cross entropy outside of the module."""
    import torchvision

    x, y = torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))
    return torchvision.models.resnet50(), lambda model: functional.cross_entropy(model(x), y)


class LstmClassifier(nn.Module):
    """Embedding, two LSTM layers, the last state into a linear classifier."""

    def __init__(self, dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(20000, 300)
        self.lstm = nn.LSTM(300, 512, num_layers=2, batch_first=True, dropout=dropout)
        self.head = nn.Linear(512, 4)

    def forward(self, ids):
        hidden, _ = self.lstm(self.embedding(ids))
        return self.head(hidden[:, -1])


def lstm(batch: int = 32, length: int = 64, dropout: float = 0.1):
    """LSTM classifier: words of 300, two layers of 512; cross entropy outside of the module."""
    ids, labels = _ids(batch, length, 20000), torch.randint(0, 4, (batch,))
    model = LstmClassifier(dropout)
    return model, lambda model: functional.cross_entropy(model(ids), labels)


def t5(batch: int = 4, length: int = 64, dropout: float = 0.1):
    """T5ForConditionalGeneration of t5-small's sizes."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(dropout_rate=dropout, decoder_start_token_id=0, pad_token_id=0)
    ids = _ids(batch, length, config.vocab_size)
    labels = _ids(batch, length // 2, config.vocab_size)
    model = T5ForConditionalGeneration(config)
    return model, lambda model: model(input_ids=ids, labels=labels).loss


def mlp(batch: int = 32, dropout: float = 0.0):
    """MLP 64-128-128-10, GELU and one layer norm; cross entropy outside of the module."""
    module = nn.Sequential(
        nn.Linear(64, 128),
        nn.GELU(),
        nn.LayerNorm(128),
        nn.Linear(128, 128),
        nn.GELU(),
        nn.Linear(128, 10),
    )
    x, y = torch.randn(batch, 64), torch.randint(0, 10, (batch,))
    return module, lambda model: functional.cross_entropy(model(x), y)


def linear(rows=1024, inputs=768, outputs=3072):
    """Products alone, forward and both gradients: oneDNN's rate (ours) beside MKL's (eager)."""
    module = nn.Linear(inputs, outputs, bias=False)
    x = torch.randn(rows, inputs, requires_grad=True)
    return module, lambda model: model(x).sum()


MODELS = {
    "bert": bert, "gpt2": gpt2, "llama_lora": llama_lora,
    "llama_small_lora": llama_small_lora, "vit": vit,
    "resnet50": resnet50, "lstm": lstm, "t5": t5, "mlp": mlp,
    "linear": linear,
}  # fmt: skip
