"""Models of timm and torchvision at small image sizes, for sweep.py; see architectures.py."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

# One or two of each family, its smallest. All take images of 64 by 64 pixels but those of _SIDES.
TIMM = (
    "resnet10t", "resnet18", "ecaresnet26t", "resnetv2_18", "resnetv2_50d_gn", "resnest14d",
    "res2net50_26w_4s", "skresnet18", "legacy_seresnet18", "legacy_xception", "xception41p",
    "densenet121", "rdnet_tiny", "dla34", "dpn48b", "vgg11_bn", "inception_v3", "inception_v4",
    "inception_next_atto", "inception_resnet_v2", "nasnetalarge", "pnasnet5large", "tresnet_m",
    "selecsls42", "hrnet_w18_small", "vovnet39a", "ese_vovnet19b_slim", "regnetx_002",
    "regnety_002", "regnetz_b16", "repvgg_a0", "mobileone_s0", "gernet_s", "gcresnext26ts",
    "botnet26t_256", "halonet26t", "lambda_resnet26t", "cs3darknet_s", "cspresnet50",
    "eca_nfnet_l0", "nf_resnet26", "convnext_atto", "convmixer_768_32", "efficientnet_b0",
    "efficientnetv2_rw_t", "tf_efficientnet_b0", "mnasnet_small", "mixnet_s", "tinynet_e",
    "hardcorenas_a", "mobilenetv2_050", "mobilenetv3_small_050", "mobilenetv4_conv_small",
    "mobilenetv4_hybrid_medium", "lcnet_050", "fbnetc_100", "ghostnet_050", "ghostnetv2_100",
    "rexnet_100", "repghostnet_050", "repvit_m0_9", "fasternet_t0", "starnet_s050", "shvit_s1",
    "hgnet_tiny", "hgnetv2_b0", "mobilevit_xxs", "mobilevitv2_050", "edgenext_xx_small",
    "efficientformer_l1", "efficientformerv2_s0", "efficientvit_b0", "efficientvit_m0",
    "fastvit_t8", "poolformer_s12", "caformer_s18", "convformer_s18", "mambaout_femto",
    "vit_tiny_patch16_224", "vit_relpos_small_patch16_224", "vit_tiny_r_s16_p8_224",
    "deit_tiny_patch16_224", "deit_tiny_distilled_patch16_224", "deit3_small_patch16_224",
    "beit_base_patch16_224", "eva02_tiny_patch14_224", "swin_tiny_patch4_window7_224",
    "swinv2_cr_tiny_224", "swinv2_tiny_window8_256", "maxvit_nano_rw_256", "coatnet_nano_rw_224",
    "mixer_s16_224", "gmlp_ti16_224", "resmlp_12_224", "cait_xxs24_224", "coat_tiny",
    "coat_lite_tiny", "crossvit_tiny_240", "convit_tiny", "xcit_nano_12_p8_224", "pit_ti_224",
    "levit_128s", "visformer_tiny", "volo_d1_224", "twins_pcpvt_small", "twins_svt_small",
    "tnt_s_patch16_224", "davit_tiny", "gcvit_xxtiny", "focalnet_tiny_srf", "mvitv2_tiny",
    "nest_tiny", "pvt_v2_b0", "sequencer2d_s", "tiny_vit_5m_224", "hiera_tiny_224",
    "nextvit_small", "swiftformer_xs",
)  # fmt: skip
# What a family needs: windows and kernels larger than 64 pixels leave.
_SIDES = {
    "inception": 96, "nasnetalarge": 96, "pnasnet5large": 96, "legacy_xception": 96, "nest": 128,
    "halonet": 256, "botnet": 128, "crossvit": 240, "gcvit": 128, "maxvit": 128,
    "efficientformer_l1": 224,
}  # fmt: skip


def models() -> dict[str, Callable[[], tuple[nn.Module, dict[str, Any]]]]:
    """By name what makes a model and the keywords of a call."""
    found: dict[str, Callable] = {}
    for name in TIMM:
        found[f"timm/{name}"] = functools.partial(_timm, name)
    for name in _listed("classification"):
        found[f"torchvision/{name}"] = functools.partial(_classifier, name)
    for name in _listed("segmentation"):
        found[f"torchvision/{name}"] = functools.partial(_segmenter, name)
    for name in _listed("detection"):
        found[f"torchvision/{name}"] = functools.partial(_detector, name)
    return found


def _listed(kind: str) -> list[str]:
    from torchvision import models

    module = models if kind == "classification" else getattr(models, kind)
    return [name for name in models.list_models(module) if not name.startswith("quantized")]


def _timm(name: str) -> tuple[nn.Module, dict]:
    import timm

    torch.manual_seed(0)
    side = next((side for family, side in _SIDES.items() if name.startswith(family)), 64)
    sizes = {"num_classes": 10, "pretrained": False}
    try:
        model = timm.create_model(name, img_size=side, **sizes)
    except TypeError:  # of any size
        model = timm.create_model(name, **sizes)
    return _steady(model), {"x": torch.randn(4, 3, side, side)}


def _classifier(name: str) -> tuple[nn.Module, dict]:
    sizes, side = {}, 64
    if name.startswith("vit"):
        sizes["image_size"] = side = 56 if name == "vit_h_14" else 64
    if name == "maxvit_t":
        sizes["input_size"], side = (224, 224), 224
    if name in ("googlenet", "inception_v3"):
        sizes, side = {"init_weights": False}, 96 if name == "googlenet" else 299
    return _torchvision(name, num_classes=10, **sizes), {"x": torch.randn(4, 3, side, side)}


def _segmenter(name: str) -> tuple[nn.Module, dict]:
    model = _torchvision(name, weights_backbone=None, num_classes=5)
    return model, {"input" if name.startswith("lraspp") else "x": torch.randn(2, 3, 64, 64)}


def _detector(name: str) -> tuple[nn.Module, dict]:
    sizes = {} if name.startswith("ssd") else {"min_size": 96, "max_size": 128}
    if "rcnn" in name:
        sizes |= {"box_batch_size_per_image": 32, "rpn_post_nms_top_n_train": 100}
    model = _torchvision(name, weights_backbone=None, num_classes=5, **sizes)
    images = [torch.rand(3, 96, 96), torch.rand(3, 80, 96)]
    return model, {"images": images, "targets": [_target(name) for _ in images]}


def _target(name: str) -> dict:
    boxes = [[8.0, 8.0, 50.0, 60.0], [20.0, 30.0, 90.0, 78.0]]
    target = {"boxes": torch.tensor(boxes), "labels": torch.tensor([1, 2])}
    if name.startswith("mask"):
        target["masks"] = torch.randint(0, 2, (2, 96, 96), dtype=torch.uint8)
    if name.startswith("keypoint"):
        target["keypoints"] = torch.rand(2, 17, 3) * 90
    return target


def _torchvision(name: str, **sizes: Any) -> nn.Module:
    from torchvision import models

    torch.manual_seed(0)
    return _steady(models.get_model(name, weights=None, **sizes))


def _steady(model: nn.Module) -> nn.Module:
    """In training, but without what a step draws."""
    for module in model.modules():
        for name in ("p", "drop_prob", "drop_rate", "drop", "dropout", "stochastic_depth_prob"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model.train()
