"""Tiny configurations of the models that must train like eager: two layers, width up to 64.

Each builder returns (module, batch): a fresh module from the current seed and the keyword arguments
of one call, whose result has a loss (or is a tensor, which is then squared and averaged).
"""

import torch
from torch import nn


def _ids(batch, length, vocab):
    return torch.randint(3, vocab, (batch, length))


def bert(dropout=0.1, batch=4, length=12):
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=40, num_labels=3,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, length // 2 :] = 0
    inputs = {
        "input_ids": _ids(batch, length, 99),
        "attention_mask": mask,
        "labels": torch.randint(0, 3, (batch,)),
    }
    return BertForSequenceClassification(config), inputs


def gpt2(dropout=0.1, batch=4, length=12):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=99, n_positions=40, n_embd=32, n_layer=2, n_head=4,
        resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout,
    )  # fmt: skip
    ids = _ids(batch, length, 99)
    return GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids.clone()}


def llama_lora(dropout=0.1, batch=4, length=12):
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=99, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=40,
    )  # fmt: skip
    lora = LoraConfig(
        r=4,
        lora_alpha=8,
        lora_dropout=dropout,
        target_modules=["q_proj", "v_proj"],
        task_type="CAUSAL_LM",
    )
    ids = _ids(batch, length, 99)
    model = get_peft_model(LlamaForCausalLM(config), lora)
    for name, parameter in model.named_parameters():  # B starts at zero: no gradient would reach A
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.02)
    return model, {"input_ids": ids, "labels": ids.clone()}


def vit(dropout=0.1, batch=4, length=None):
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        image_size=32, patch_size=8, num_labels=5,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    inputs = {
        "pixel_values": torch.randn(batch, 3, 32, 32),
        "labels": torch.randint(0, 5, (batch,)),
    }
    return ViTForImageClassification(config), inputs


class _Classifier(nn.Module):
    """A torchvision network with its loss inside."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, labels):
        return nn.functional.cross_entropy(self.net(x), labels)


def resnet50(
    dropout=0.0, batch=4, length=None, zero_init_residual=False, blocks=(3, 4, 6, 3), width=64
):
    from torchvision.models.resnet import Bottleneck, ResNet

    options = {"zero_init_residual": zero_init_residual, "width_per_group": width}
    net = _Classifier(ResNet(Bottleneck, blocks, num_classes=5, **options))
    return net, {"x": torch.randn(batch, 3, 64, 64), "labels": torch.randint(0, 5, (batch,))}


def resnet14(**options):
    """A narrow block for each of ResNet-50's stages: its operators, where depth tells no more."""
    return resnet50(**options, blocks=(1, 1, 1, 1), width=16)


class LstmClassifier(nn.Module):
    """Embedding, two LSTM layers, the last state into a linear classifier."""

    def __init__(self, dropout):
        super().__init__()
        self.embedding = nn.Embedding(99, 24)
        self.lstm = nn.LSTM(24, 32, num_layers=2, batch_first=True, dropout=dropout)
        self.head = nn.Linear(32, 4)

    def forward(self, ids, labels):
        hidden, _ = self.lstm(self.embedding(ids))
        return nn.functional.cross_entropy(self.head(hidden[:, -1]), labels)


def lstm(dropout=0.1, batch=4, length=12):
    inputs = {"ids": _ids(batch, length, 99), "labels": torch.randint(0, 4, (batch,))}
    return LstmClassifier(dropout), inputs


def t5(dropout=0.1, batch=4, length=12):
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=dropout,
        decoder_start_token_id=0, pad_token_id=0,
    )  # fmt: skip
    return T5ForConditionalGeneration(config), {
        "input_ids": _ids(batch, length, 99),
        "labels": _ids(batch, 7, 99),
    }


class Mlp(nn.Module):
    """64-128-128-10 with GELU and one layer norm; the loss is the caller's."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Dropout(dropout),
            nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 10),
        )  # fmt: skip

    def forward(self, x):
        return self.net(x)


def mlp(dropout=0.1, batch=32, length=None):
    return Mlp(dropout), {"x": torch.randn(batch, 64)}


MODELS = {
    "bert": bert, "gpt2": gpt2, "llama_lora": llama_lora, "vit": vit,
    "resnet50": resnet50, "lstm": lstm, "t5": t5, "mlp": mlp,
}  # fmt: skip


def loss_of(result):
    """The scalar to differentiate: the result's loss, or the mean square of a tensor."""
    if isinstance(result, torch.Tensor):
        return result if result.dim() == 0 else (result * result).mean()
    return result["loss"] if isinstance(result, dict) else result[0]
