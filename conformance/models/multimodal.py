"""Models of `transformers` for images, images with text, and time series: classification, detection, segmentation, depth."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from conformance.models.entry import Entry
from conformance.models.language import LENGTH, SMALL, VOCABULARY, hf_entry, resolved

__all__ = ["ENTRIES"]

VIT: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "num_labels": 3,
}
TEXT: dict[str, Any] = {**SMALL, "projection_dim": 16}


def _classes() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([0, 1])}


def _image(size: int = 32) -> Any:
    return lambda: {"pixel_values": torch.randn(2, 3, size, size)}


def _map(size: int = 32) -> Any:
    return lambda: {"pixel_values": torch.randn(2, 3, size, size), "labels": torch.randint(3, (2, size, size))}


def _pairs(**more: Any) -> Any:
    return lambda: {"input_ids": torch.randint(3, VOCABULARY, (2, LENGTH)), "pixel_values": torch.randn(2, 3, 32, 32), **more}


def _boxes(size: int = 32) -> Any:
    def make() -> dict[str, Any]:
        boxes = torch.tensor([[0.3, 0.3, 0.2, 0.2], [0.6, 0.5, 0.3, 0.4]])
        return {
            "pixel_values": torch.randn(2, 3, size, size),
            "labels": [{"class_labels": torch.tensor([0, 2]), "boxes": boxes} for _ in range(2)],
        }

    return make


def _masks(size: int) -> Any:
    def make() -> dict[str, Any]:
        masks = torch.zeros(2, size, size)
        masks[0, 4:16, 4:16] = masks[1, 10:30, 12:28] = 1
        return {
            "pixel_values": torch.randn(2, 3, size, size),
            "mask_labels": [masks, masks],
            "class_labels": [torch.tensor([0, 1])] * 2,
        }

    return make


def _config(name: str, **options: Any) -> Any:
    def make() -> Any:
        import transformers

        return getattr(transformers, name)(**resolved(options))

    return make


RESNET = {
    "embedding_size": 8,
    "hidden_sizes": [8, 16, 24, 32],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
    "out_features": ["stage4"],
}
DETR: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "num_queries": 6,
    "num_labels": 3,
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
    "backbone": None,
    "backbone_config": _config("ResNetConfig", **RESNET),
}
RESNET4 = _config("ResNetConfig", **{**RESNET, "out_features": ["stage1", "stage2", "stage3", "stage4"]})
SWIN4 = _config(
    "SwinConfig",
    image_size=64,
    patch_size=2,
    embed_dim=8,
    depths=[1, 1, 1, 1],
    num_heads=[1, 1, 2, 2],
    window_size=4,
    out_features=["stage1", "stage2", "stage3", "stage4"],
)
RESNET3 = _config("ResNetConfig", **{**RESNET, "out_features": ["stage2", "stage3", "stage4"]})

ENTRIES: tuple[Entry, ...] = (
    hf_entry("vit (transformers)", "ViTConfig", "ViTForImageClassification", _classes, VIT),
    hf_entry("deit (transformers)", "DeiTConfig", "DeiTForImageClassification", _classes, VIT),
    hf_entry(
        "beit (transformers)", "BeitConfig", "BeitForImageClassification", _classes, {**VIT, "use_relative_position_bias": True}
    ),
    hf_entry(
        "vit-mae",
        "ViTMAEConfig",
        "ViTMAEForPreTraining",
        _image(),
        {
            **VIT,
            "decoder_hidden_size": 16,
            "decoder_num_hidden_layers": 1,
            "decoder_num_attention_heads": 2,
            "decoder_intermediate_size": 32,
        },
    ),
    hf_entry("dinov2 (transformers)", "Dinov2Config", "Dinov2ForImageClassification", _classes, VIT),
    hf_entry(
        "convnextv2 (transformers)",
        "ConvNextV2Config",
        "ConvNextV2ForImageClassification",
        _classes,
        {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "num_labels": 3},
    ),
    hf_entry(
        "swin (transformers)",
        "SwinConfig",
        "SwinForImageClassification",
        _classes,
        {
            "image_size": 32,
            "patch_size": 2,
            "embed_dim": 16,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
            "num_labels": 3,
        },
    ),
    hf_entry(
        "cvt",
        "CvtConfig",
        "CvtForImageClassification",
        _classes,
        {"embed_dim": [8, 16, 24], "num_heads": [1, 2, 2], "depth": [1, 2, 3], "num_labels": 3},
    ),
    hf_entry(
        "segformer",
        "SegformerConfig",
        "SegformerForSemanticSegmentation",
        _map(64),
        {
            "hidden_sizes": [8, 16, 16, 16],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 2],
            "decoder_hidden_size": 16,
            "num_labels": 3,
        },
    ),
    hf_entry(
        "upernet",
        "UperNetConfig",
        "UperNetForSemanticSegmentation",
        _map(64),
        {
            "backbone_config": RESNET4,
            "hidden_size": 16,
            "num_labels": 3,
            "auxiliary_in_channels": 24,
            "auxiliary_channels": 16,
            "pool_scales": [1, 2],
        },
    ),
    hf_entry(
        "dpt",
        "DPTConfig",
        "DPTForDepthEstimation",
        _image(),
        {
            **VIT,
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [8, 8, 16, 16],
            "fusion_hidden_size": 16,
            "is_hybrid": False,
        },
    ),
    hf_entry(
        "glpn",
        "GLPNConfig",
        "GLPNForDepthEstimation",
        lambda: {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.rand(2, 32, 32) + 0.1},
        {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 2], "decoder_hidden_size": 16},
    ),
    hf_entry("detr", "DetrConfig", "DetrForObjectDetection", _boxes(), DETR),
    hf_entry("conditional-detr", "ConditionalDetrConfig", "ConditionalDetrForObjectDetection", _boxes(), DETR),
    hf_entry(
        "deformable-detr",
        "DeformableDetrConfig",
        "DeformableDetrForObjectDetection",
        _boxes(64),
        {**DETR, "backbone_config": RESNET3},
    ),
    hf_entry(
        "yolos", "YolosConfig", "YolosForObjectDetection", _boxes(), {**VIT, "image_size": [32, 32], "num_detection_tokens": 6}
    ),
    hf_entry(
        "rt-detr",
        "RTDetrConfig",
        "RTDetrForObjectDetection",
        _boxes(64),
        {
            "d_model": 32,
            "encoder_hidden_dim": 32,
            "encoder_in_channels": [16, 24, 32],
            "feat_strides": [8, 16, 32],
            "encoder_ffn_dim": 64,
            "encoder_attention_heads": 4,
            "decoder_in_channels": [32, 32, 32],
            "decoder_layers": 2,
            "decoder_attention_heads": 4,
            "decoder_ffn_dim": 64,
            "num_queries": 6,
            "num_denoising": 0,
            "num_labels": 3,
            "hidden_expansion": 0.5,
            "backbone_config": _config("RTDetrResNetConfig", **{**RESNET, "out_features": ["stage2", "stage3", "stage4"]}),
        },
    ),
    hf_entry(
        "maskformer",
        "MaskFormerConfig",
        "MaskFormerForInstanceSegmentation",
        _masks(64),
        {
            "fpn_feature_size": 32,
            "mask_feature_size": 32,
            "num_labels": 3,
            "decoder_config": _config("DetrConfig", **{**DETR, "num_queries": 4}),
            "backbone_config": SWIN4,
        },
    ),
    hf_entry(
        "mask2former",
        "Mask2FormerConfig",
        "Mask2FormerForUniversalSegmentation",
        _masks(64),
        {
            "feature_size": 32,
            "mask_feature_size": 32,
            "hidden_dim": 32,
            "encoder_feedforward_dim": 32,
            "encoder_layers": 1,
            "decoder_layers": 2,
            "num_attention_heads": 2,
            "dim_feedforward": 32,
            "num_queries": 4,
            "num_labels": 3,
            "train_num_points": 16,
            "backbone_config": SWIN4,
        },
    ),
    hf_entry(
        "sam",
        "SamConfig",
        "SamModel",
        lambda: {"pixel_values": torch.randn(1, 3, 64, 64), "input_points": torch.tensor([[[[20.0, 30.0], [40.0, 10.0]]]])},
        {
            "vision_config": {
                "hidden_size": 32,
                "output_channels": 16,
                "num_pos_feats": 8,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": 64,
                "patch_size": 8,
                "mlp_dim": 64,
                "window_size": 4,
                "global_attn_indexes": [1],
            },
            "prompt_encoder_config": {"hidden_size": 16, "image_size": 64, "patch_size": 8, "mask_input_channels": 4},
            "mask_decoder_config": {
                "hidden_size": 16,
                "mlp_dim": 32,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "iou_head_hidden_dim": 16,
            },
        },
    ),
    hf_entry(
        "clip",
        "CLIPConfig",
        "CLIPModel",
        _pairs(return_loss=True),
        {"text_config": {**TEXT, "eos_token_id": 98}, "vision_config": VIT, "projection_dim": 16},
    ),
    hf_entry(
        "siglip",
        "SiglipConfig",
        "SiglipModel",
        _pairs(return_loss=True),
        {"text_config": {**TEXT, "projection_size": 32}, "vision_config": VIT},
    ),
    hf_entry(
        "blip",
        "BlipConfig",
        "BlipForConditionalGeneration",
        _pairs(labels=torch.randint(3, VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(0))),
        {"text_config": {**TEXT, "encoder_hidden_size": 32}, "vision_config": VIT, "projection_dim": 16},
    ),
    hf_entry(
        "vilt", "ViltConfig", "ViltForQuestionAnswering", _pairs(labels=torch.tensor([[0.0, 1, 0], [1, 0, 0]])), {**SMALL, **VIT}
    ),
    hf_entry(
        "llava",
        "LlavaConfig",
        "LlavaForConditionalGeneration",
        lambda: {
            "input_ids": (ids := torch.cat([torch.full((2, 16), 98), torch.randint(3, 90, (2, 6))], 1)),
            "labels": ids,
            "pixel_values": torch.randn(2, 3, 32, 32),
        },
        {
            "text_config": _config("LlamaConfig", **SMALL),
            "vision_config": _config("CLIPVisionConfig", **VIT),
            "image_token_index": 98,
            "vision_feature_layer": -1,
        },
    ),
    hf_entry(
        "trocr",
        "TrOCRConfig",
        "TrOCRForCausalLM",
        "tokens",
        {**SMALL, "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 64},
        generates=True,
    ),
    hf_entry(
        "perceiver",
        "PerceiverConfig",
        "PerceiverForSequenceClassification",
        "classes",
        {
            **SMALL,
            "num_latents": 8,
            "d_latents": 32,
            "d_model": 32,
            "num_blocks": 1,
            "num_self_attends_per_block": 2,
            "num_self_attention_heads": 2,
            "num_cross_attention_heads": 2,
            "qk_channels": 32,
            "v_channels": 32,
        },
    ),
    hf_entry(
        "decision transformer",
        "DecisionTransformerConfig",
        "DecisionTransformerModel",
        lambda: {
            "states": torch.randn(2, 5, 4),
            "actions": torch.randn(2, 5, 2),
            "rewards": torch.randn(2, 5, 1),
            "returns_to_go": torch.randn(2, 5, 1),
            "timesteps": torch.arange(5).repeat(2, 1),
            "attention_mask": torch.ones(2, 5),
        },
        {"state_dim": 4, "act_dim": 2, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    ),
    hf_entry(
        "time series transformer",
        "TimeSeriesTransformerConfig",
        "TimeSeriesTransformerForPrediction",
        lambda: {
            "past_values": torch.rand(2, 15),
            "past_time_features": torch.rand(2, 15, 1),
            "past_observed_mask": torch.ones(2, 15),
            "future_values": torch.rand(2, 4),
            "future_time_features": torch.rand(2, 4, 1),
        },
        {
            "prediction_length": 4,
            "context_length": 8,
            "num_time_features": 1,
            "d_model": 16,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_ffn_dim": 32,
            "decoder_ffn_dim": 32,
        },
    ),
    hf_entry(
        "patchtst",
        "PatchTSTConfig",
        "PatchTSTForPrediction",
        lambda: {"past_values": torch.rand(2, 32, 3), "future_values": torch.rand(2, 8, 3)},
        {
            "num_input_channels": 3,
            "context_length": 32,
            "patch_length": 8,
            "patch_stride": 8,
            "prediction_length": 8,
            "d_model": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "ffn_dim": 32,
        },
    ),
    hf_entry(
        "autoformer",
        "AutoformerConfig",
        "AutoformerForPrediction",
        lambda: {
            "past_values": torch.rand(2, 23),
            "past_time_features": torch.rand(2, 23, 1),
            "past_observed_mask": torch.ones(2, 23),
            "future_values": torch.rand(2, 4),
            "future_time_features": torch.rand(2, 4, 1),
        },
        {
            "prediction_length": 4,
            "context_length": 16,
            "num_time_features": 1,
            "d_model": 16,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_ffn_dim": 32,
            "decoder_ffn_dim": 32,
            "label_length": 4,
            "moving_average": 5,
        },
    ),
)
