"""Forty networks of transformers and timm, small, that have to be captured whole.

Each builder returns (module, arguments of one call) from the current seed. Called by
test_listed.py.
"""

import torch

_TEXT = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 40, "pad_token_id": 0,
}  # fmt: skip
_NO_DROPOUT = {
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "attention_dropout": 0.0,
    "dropout": 0.0, "dropout_rate": 0.0, "activation_dropout": 0.0, "hidden_dropout": 0.0,
    "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0, "drop_path_rate": 0.0,
}  # fmt: skip
_HEADS = {"num_key_value_heads": 2}
_SEQ2SEQ = {
    "vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "pad_token_id": 0,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "max_position_embeddings": 40, "decoder_start_token_id": 2,
}  # fmt: skip
_PIXELS = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "image_size": 32, "patch_size": 8, "num_labels": 5,
}  # fmt: skip

# class of transformers: its configuration; the inputs follow from the class's task.
TRANSFORMERS = {
    "BertForMaskedLM": _TEXT,
    "RobertaForSequenceClassification": _TEXT,
    "DistilBertForSequenceClassification": {
        "vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64,
        "max_position_embeddings": 40, "seq_classif_dropout": 0.0,
    },
    "AlbertForSequenceClassification": _TEXT | {"embedding_size": 16, "classifier_dropout_prob": 0},
    "ElectraForSequenceClassification": _TEXT | {"embedding_size": 16},
    "MobileBertForSequenceClassification": _TEXT | {
        "embedding_size": 32, "intra_bottleneck_size": 32,
    },
    "MPNetForSequenceClassification": _TEXT,
    "DebertaV2ForMaskedLM": _TEXT,
    "GPT2LMHeadModel": {
        "vocab_size": 99, "n_positions": 40, "n_embd": 32, "n_layer": 2, "n_head": 4,
    },
    "GPTNeoXForCausalLM": _TEXT,
    "OPTForCausalLM": _TEXT | {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "StableLmForCausalLM": _TEXT | _HEADS,
    "LlamaForCausalLM": _TEXT | _HEADS,
    "MistralForCausalLM": _TEXT | _HEADS,
    "Qwen2ForCausalLM": _TEXT | _HEADS,
    "Qwen3ForCausalLM": _TEXT | _HEADS | {"head_dim": 8},
    "GemmaForCausalLM": _TEXT | _HEADS | {"head_dim": 8},
    "PhiForCausalLM": _TEXT,
    "T5ForConditionalGeneration": {
        "vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
        "decoder_start_token_id": 0, "pad_token_id": 0,
    },
    "BartForConditionalGeneration": _SEQ2SEQ,
    "ViTForImageClassification": _PIXELS,
    "DeiTForImageClassification": _PIXELS,
    "BeitForImageClassification": _PIXELS,
    "ConvNextForImageClassification": {
        "hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 2, 1], "num_labels": 5,
    },
}  # fmt: skip

TIMM = {
    "resnet18": 64, "resnext50_32x4d": 64, "seresnet50": 64, "regnety_002": 64,
    "mobilenetv2_050": 64, "mobilenetv3_small_050": 64, "efficientnet_b0": 64, "densenet121": 64,
    "convnext_atto": 64, "vit_tiny_patch16_224": 224, "deit_tiny_patch16_224": 224,
    "swin_tiny_patch4_window7_224": 224, "mixer_s32_224": 224, "mobilevit_xxs": 64,
    "visformer_tiny": 224, "hrnet_w18_small": 64,
}  # fmt: skip


def _transformer(name: str):
    import transformers

    cls = getattr(transformers, name)
    torch.manual_seed(0)
    module = cls(cls.config_class(**_NO_DROPOUT | TRANSFORMERS[name]))
    if "Image" in name:
        size = getattr(module.config, "image_size", 32)
        size = 32 if not isinstance(size, int) or size > 64 else size
        return module, {"pixel_values": torch.randn(2, 3, size, size), "labels": torch.arange(2)}
    ids = torch.randint(3, 99, (2, 12))
    labels = torch.arange(2) if "Sequence" in name else ids.clone()
    return module, {"input_ids": ids, "labels": labels}


def _timm(name: str):
    import timm

    size = TIMM[name]
    torch.manual_seed(0)
    return timm.create_model(name, num_classes=5), {"x": torch.randn(2, 3, size, size)}


def build(name: str):
    """The module, and the arguments of a call."""
    return _transformer(name) if name in TRANSFORMERS else _timm(name)
