"""Small models of transformers, for sweep.py and tests/models/test_architectures.py.

Each is random, without dropout, layerdrop and drop path, so that a step is the same in any engine.
vision_models.py has those of timm and torchvision.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

# What configurations call their sizes.
_SIZES = {
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embedding_size": 16,
    "word_embed_proj_dim": 32, "intermediate_size": 64, "ffn_dim": 64, "d_ff": 64, "hidden_dim": 64,
    "ffn_hidden_size": 64, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "d_kv": 8, "head_dim": 8,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "num_decoder_layers": 2,
    "encoder_layers": 2, "decoder_layers": 2, "num_attention_heads": 4, "n_head": 4, "n_heads": 4,
    "num_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "num_key_value_heads": 2, "multi_query_group_num": 2, "rotary_dim": 4, "vocab_size": 99,
    "max_position_embeddings": 64, "n_positions": 64, "n_ctx": 64, "num_experts": 4,
    "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8, "v_head_dim": 8, "state_size": 8, "time_step_rank": 4,
    "image_size": 32, "patch_size": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1,
}  # fmt: skip
_DROPPED = ("dropout", "pdrop", "drop_path", "layerdrop", "drop_rate", "drop_connect")

# What these sizes do not suit; of a part of a configuration as "text_config.vocab_size".
_OWN = {
    "bamba": {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 8},
    "bit": {"embedding_size": 32, "hidden_sizes": [128, 256], "depths": [1, 1]},
    "blip-2": {"num_query_tokens": 16, "image_token_id": 98, "image_token_index": 98,
               "qformer_config.encoder_hidden_size": 32},
    "blip": {"text_config.encoder_hidden_size": 32},
    "convnext": {"num_stages": 4, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1],
                 "patch_size": 4},
    "convnextv2": {"num_stages": 4, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1],
                 "patch_size": 4},
    "funnel": {"block_sizes": [1, 1, 1]},
    "levit": {"patch_size": 16},
    "siglip": {"text_config.projection_size": 32},
    "deepseek_v3": {"num_key_value_heads": 4},
    "dpt": {"num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [8, 16, 24, 32], "fusion_hidden_size": 16,
            "use_auxiliary_head": False},
    "efficientnet": {"width_coefficient": 1.0, "depth_coefficient": 0.5, "hidden_dim": 1280},
    "llava": {"image_token_index": 98, "image_token_id": 98},
    "longt5": {"decoder_start_token_id": 1},
    "luke": {"entity_vocab_size": 9, "entity_emb_size": 8},
    "mamba2": {"num_heads": 8, "n_groups": 2, "chunk_size": 8},
    "marian": {"decoder_vocab_size": 99},
    "resnet": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 2]},
    "squeezebert": {"embedding_size": 32},
    "swin": {"depths": [2, 2], "num_heads": [2, 4], "embed_dim": 16, "patch_size": 4,
             "window_size": 4},
    "swinv2": {"depths": [2, 2], "num_heads": [2, 4], "embed_dim": 16, "patch_size": 4,
               "window_size": 4},
    "switch_transformers": {"decoder_start_token_id": 1},
    "t5": {"decoder_start_token_id": 1},
    "umt5": {"decoder_start_token_id": 1},
    "vilt": {"num_images": -1, "modality_type_vocab_size": 2, "max_image_length": -1},
    "audio-spectrogram-transformer": {"max_length": 40, "num_mel_bins": 16},
    "speech_to_text": {"input_feat_per_channel": 8, "max_source_positions": 40,
                       "max_target_positions": 30, "conv_channels": 16},
}  # fmt: skip

CAUSAL = (
    "gpt2", "gpt_neo", "gpt_neox", "gptj", "llama", "mistral", "mixtral", "qwen2", "qwen3",
    "qwen2_moe", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "opt", "bloom",
    "falcon", "mpt", "codegen", "stablelm", "starcoder2", "olmo", "olmo2", "cohere", "gpt_bigcode",
    "biogpt", "xglm", "granite", "granitemoe", "mamba", "persimmon", "nemotron", "ctrl",
    "openai-gpt", "xlnet", "smollm3", "glm", "gpt_oss", "mamba2", "falcon_mamba", "rwkv", "jamba",
    "olmoe", "phimoe", "jetmoe", "deepseek_v3", "recurrent_gemma", "exaone4", "bamba", "glm4_moe",
    "qwen3_next",
)  # fmt: skip
MASKED = (
    "bert", "roberta", "distilbert", "albert", "electra", "deberta", "deberta-v2", "mpnet",
    "camembert", "fnet", "squeezebert", "convbert", "roformer", "modernbert", "ernie", "rembert",
    "xlm-roberta", "esm", "funnel", "longformer", "mobilebert", "nystromformer", "flaubert",
    "big_bird", "xlm", "megatron-bert", "yoso", "luke",
)  # fmt: skip
SEQUENCES = (
    "t5", "mt5", "bart", "mbart", "pegasus", "marian", "blenderbot", "blenderbot-small", "m2m_100",
    "plbart", "umt5", "longt5", "switch_transformers", "prophetnet", "mvp", "led",
    "bigbird_pegasus", "pegasus_x", "nllb-moe",
)  # fmt: skip
IMAGES = (
    "vit", "deit", "beit", "swin", "swinv2", "convnext", "convnextv2", "resnet", "segformer",
    "dinov2", "regnet", "mobilenet_v1", "mobilenet_v2", "mobilevit", "poolformer", "pvt", "levit",
    "cvt", "efficientnet", "bit", "vit_msn", "siglip", "focalnet", "swiftformer",
    "data2vec-vision",
)  # fmt: skip
SOUNDS = (
    "wav2vec2", "hubert", "wavlm", "unispeech", "unispeech-sat", "sew", "data2vec-audio",
)  # fmt: skip
# Their classes, where no Auto class has them.
_CLASSES = {"deit": "DeiTForImageClassification", "levit": "LevitForImageClassification"}


def models() -> dict[str, Callable[[], tuple[nn.Module, dict[str, Any]]]]:
    """By name what makes a model and the keywords of a call."""
    found: dict[str, Callable] = {}
    for kinds, auto, inputs in (
        (CAUSAL, "AutoModelForCausalLM", _text),
        (MASKED, "AutoModelForMaskedLM", _text),
        (SEQUENCES, "AutoModelForSeq2SeqLM", _sequence),
        (IMAGES, "AutoModelForImageClassification", _image),
        (SOUNDS, "AutoModelForAudioClassification", _sound),
        (("audio-spectrogram-transformer",), "AutoModelForAudioClassification", _spectrum),
        (("whisper",), "AutoModelForSpeechSeq2Seq", _speech),
        (("speech_to_text",), "AutoModelForSpeechSeq2Seq", _speech_in_time),
        (("yolos",), "AutoModelForObjectDetection", _pixels),
        (("dpt",), "AutoModelForSemanticSegmentation", _pixels),
        (("clip", "chinese_clip", "siglip"), "AutoModel", _text_and_image),
        (("git",), "AutoModelForCausalLM", _captioned),
        (("blip", "blip-2", "llava"), "AutoModelForImageTextToText", _captioned),
        (("vilt",), "AutoModelForVisualQuestionAnswering", _question),
    ):
        for kind in kinds:
            name = f"transformers/{kind}"
            name = name if name not in found else f"{name}-text"
            found[name] = _maker(kind, auto, inputs)
    return found


def _maker(kind: str, auto: str, inputs: Callable[[], dict]) -> Callable:
    def make():
        import transformers

        torch.manual_seed(0)
        config = configuration(kind)
        if kind in _CLASSES:
            model = getattr(transformers, _CLASSES[kind])(config)
        else:
            model = getattr(transformers, auto).from_config(config)
        return model.train(), inputs()

    return make


def configuration(kind: str) -> Any:
    """transformers' configuration of a kind of model, made small."""
    import transformers

    config = transformers.AutoConfig.for_model(kind)
    _shrink(config)
    if kind in SOUNDS:
        config.conv_dim, config.conv_stride, config.conv_kernel = (16, 16), (5, 4), (10, 4)
        config.num_feat_extract_layers, config.classifier_proj_size = 2, 16
        config.num_conv_pos_embeddings, config.num_conv_pos_embedding_groups = 8, 2
        config.mask_time_prob = 0.0
    if kind == "whisper":
        config.max_source_positions, config.max_target_positions, config.num_mel_bins = 20, 30, 8
    for path, value in _OWN.get(kind, {}).items():
        *parts, name = path.split(".")
        setattr(functools.reduce(getattr, parts, config), name, value)
    config.use_cache = False
    return config


def _shrink(config: Any) -> None:
    import transformers

    for name, value in _SIZES.items():
        if hasattr(config, name):
            with contextlib.suppress(Exception):  # made of others
                setattr(config, name, value)
    for name, value in list(vars(config).items()):
        if isinstance(value, float) and any(part in name for part in _DROPPED):
            setattr(config, name, 0.0)
        if isinstance(value, transformers.PretrainedConfig):
            _shrink(value)


def _ids(length: int = 12) -> torch.Tensor:
    return torch.randint(3, 99, (2, length))


def _text() -> dict:
    ids = _ids()
    return {"input_ids": ids, "labels": ids}


def _sequence() -> dict:
    return {"input_ids": _ids(), "labels": _ids(7)}


def _image() -> dict:
    return {"pixel_values": torch.randn(8, 3, 32, 32), "labels": torch.arange(8) % 2}


def _sound() -> dict:
    return {"input_values": torch.randn(2, 1600), "labels": torch.tensor([1, 1])}


def _speech() -> dict:
    return {"input_features": torch.randn(2, 8, 40), "labels": _ids(7)}


def _spectrum() -> dict:
    return {"input_values": torch.randn(2, 40, 16), "labels": torch.tensor([0, 1])}


def _speech_in_time() -> dict:
    return {"input_features": torch.randn(2, 40, 8), "labels": _ids(7)}


def _pixels() -> dict:
    return {"pixel_values": torch.randn(2, 3, 32, 32)}


def _captioned() -> dict:
    ids = torch.cat([torch.full((2, 16), 98), torch.randint(3, 97, (2, 8))], 1)  # 98: an image's
    return {"input_ids": ids, "pixel_values": torch.randn(2, 3, 32, 32), "labels": ids}


def _question() -> dict:
    return {"input_ids": _ids(), "pixel_values": torch.randn(2, 3, 32, 32)}


def _text_and_image() -> dict:
    return {"input_ids": _ids(), "pixel_values": torch.randn(2, 3, 32, 32), "return_loss": True}


def step(model: nn.Module, inputs: dict) -> dict[str, torch.Tensor]:
    """One forward and backward: what the model returns, each gradient, and buffers, by name."""
    model.zero_grad()
    torch.manual_seed(1)
    result = model(**inputs)
    loss_of(result).backward()
    found = {f"output {name}": value.detach() for name, value in _floats(result, "")}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            found[f"gradient of {name}"] = parameter.grad
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point():
            found[f"buffer {name}"] = buffer.clone()
    return found


def loss_of(result: Any) -> torch.Tensor:
    """A model's own, or one of all that it returns."""
    loss = getattr(result, "loss", None)
    if loss is not None:
        return loss
    return sum(value.square().mean() for _, value in _floats(result, "") if value.requires_grad)


def _floats(value: Any, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield path, value
    elif isinstance(value, (dict, list, tuple)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _floats(item, f"{path}.{key}" if path else str(key))
