"""Vision models of `timm` and `torchvision`: classification, segmentation, detection, optical flow."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from conformance.models.entry import Entry, Subject, disable_dropout, loss_of

__all__ = ["ENTRIES"]

CLASSES = 5


def _images(size: int, count: int = 4) -> Tensor:
    return torch.randn(count, 3, size, size)


def _classify(model: nn.Module, batch: Any) -> Tensor:
    images, labels = batch
    result = model(images)
    if isinstance(result, Tensor):
        return nn.functional.cross_entropy(result, labels)
    # Inception and GoogLeNet return their auxiliary heads too.
    heads = [one for one in result if one is not None]
    return torch.stack([nn.functional.cross_entropy(one, labels) for one in heads]).sum()


def _first(model: nn.Module, batch: Any) -> Any:
    return model(batch[0])


def timm_entry(name: str, size: int = 64, **options: Any) -> Entry:
    """Return an entry for a model of `timm`."""

    def make() -> Subject:
        import timm

        model = timm.create_model(name, pretrained=False, num_classes=CLASSES, **options)
        return Subject(disable_dropout(model), (_images(size), torch.arange(4)), _first, _classify)

    return Entry(name, make, ("timm",))


def torchvision_entry(name: str, size: int = 64, **options: Any) -> Entry:
    """Return an entry for a classifier of `torchvision`."""

    def make() -> Subject:
        import torchvision

        model = torchvision.models.get_model(name, weights=None, num_classes=CLASSES, **options)
        return Subject(disable_dropout(model), (_images(size), torch.arange(4)), _first, _classify)

    return Entry(f"{name} (torchvision)", make, ("torchvision",))


TIMM = (
    timm_entry("resnet18"),
    timm_entry("resnet26d"),
    timm_entry("seresnext26d_32x4d"),
    timm_entry("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 16, 24, 32)),
    timm_entry("convnextv2_atto", depths=(1, 1, 1, 1), dims=(8, 16, 24, 32)),
    timm_entry("efficientnet_b0"),
    timm_entry("tf_efficientnetv2_b0"),
    timm_entry("mobilenetv3_small_050"),
    timm_entry("mobilenetv4_conv_small_035"),
    timm_entry("densenet121", growth_rate=4, block_config=(2, 2, 2, 2)),
    timm_entry("regnetx_002"),
    timm_entry("regnety_002"),
    timm_entry("ghostnet_050"),
    timm_entry("dla46_c"),
    timm_entry("hrnet_w18_small"),
    timm_entry("nf_regnet_b0"),
    timm_entry("resnetv2_50", layers=(1, 1, 1, 1), channels=(16, 16, 32, 32)),
    timm_entry("darknet17"),
    timm_entry("repvgg_a0"),
    timm_entry("lcnet_035"),
    timm_entry("fbnetc_100"),
    timm_entry("vit_tiny_patch16_224", 32, img_size=32, depth=2),
    timm_entry("vit_small_patch14_dinov2", 28, img_size=28, depth=2, embed_dim=32, num_heads=2),
    timm_entry("vit_base_patch16_clip_224", 32, img_size=32, depth=2, embed_dim=32, num_heads=2),
    timm_entry("deit_tiny_distilled_patch16_224", 32, img_size=32, depth=2),
    timm_entry("cait_xxs24_224", 32, img_size=32, depth=2),
    timm_entry("beit_base_patch16_224", 32, img_size=32, depth=2, embed_dim=32, num_heads=2),
    timm_entry("eva02_tiny_patch14_224", 28, img_size=28, depth=2),
    timm_entry("swin_tiny_patch4_window7_224", 56, img_size=56, depths=(2, 2), num_heads=(2, 4), embed_dim=16),
    timm_entry("swinv2_cr_tiny_224", 56, img_size=56, depths=(2, 2), num_heads=(2, 4), embed_dim=16),
    timm_entry("swinv2_tiny_window8_256", 64, img_size=64, depths=(2, 2), num_heads=(2, 4), embed_dim=16),
    timm_entry("maxvit_rmlp_pico_rw_256", 64, img_size=64),
    timm_entry("maxvit_tiny_tf_224", 64, img_size=64, depths=(1, 1), embed_dim=(32, 64), stem_width=16),
    timm_entry("coatnet_pico_rw_224", 64, img_size=64),
    timm_entry("mixer_s32_224", 64, img_size=64),
    timm_entry("gmlp_ti16_224", 32, img_size=32),
    timm_entry("resmlp_12_224", 32, img_size=32),
    timm_entry("hiera_tiny_224", 224, embed_dim=16, stages=(1, 1, 1, 1), num_heads=1),
    timm_entry("pit_ti_224", 64, img_size=64),
    timm_entry("pvt_v2_b0"),
    timm_entry("twins_pcpvt_small", 64, img_size=64),
    timm_entry("poolformer_s12"),
    timm_entry("levit_128s", 224),
    timm_entry("crossvit_tiny_240", 240, depth=[[1, 1, 0]]),
    timm_entry("xcit_nano_12_p16_224", 32, img_size=32, depth=2),
    timm_entry("volo_d1_224", 64, img_size=64),
    timm_entry("mobilevit_xxs", 64),
    timm_entry("mobilevitv2_050", 64),
    timm_entry("edgenext_xx_small", 64),
    timm_entry("focalnet_tiny_srf"),
    timm_entry("davit_tiny", depths=(1, 1, 1, 1), embed_dims=(16, 32, 32, 64), num_heads=(2, 2, 2, 2)),
    timm_entry("efficientformer_l1", 224, depths=(1, 1, 1, 1), embed_dims=(16, 16, 32, 32)),
    timm_entry("fastvit_t8", 64),
    timm_entry("tiny_vit_5m_224", 224),
    timm_entry("convit_tiny", 32, img_size=32, depth=2),
    timm_entry("visformer_tiny", 32, img_size=32),
    timm_entry("botnet26t_256", 64, img_size=64),
    timm_entry("lambda_resnet26t", 64, img_size=64),
    timm_entry("vovnet39a"),
    timm_entry("starnet_s1"),
    timm_entry("naflexvit_base_patch16_gap", depth=2, embed_dim=32, num_heads=2),
)

TORCHVISION = (
    torchvision_entry("vgg11_bn"),
    torchvision_entry("alexnet", 64),
    torchvision_entry("squeezenet1_1", 64),
    torchvision_entry("googlenet", 64, aux_logits=True, init_weights=False),
    torchvision_entry("shufflenet_v2_x0_5", 64),
    torchvision_entry("mnasnet0_5", 64),
    torchvision_entry("mobilenet_v2"),
    torchvision_entry("resnext50_32x4d"),
    torchvision_entry("swin_v2_t", 64),
)


# -- video, segmentation ------------------------------------------------------------------------------------------


def _video(name: str) -> Entry:
    def make() -> Subject:
        import torchvision

        model = torchvision.models.get_model(name, weights=None, num_classes=CLASSES)
        return Subject(disable_dropout(model), (torch.randn(2, 3, 4, 32, 32), torch.arange(2)), _first, _classify)

    return Entry(f"{name} (torchvision)", make, ("torchvision",))


def _segment(model: nn.Module, batch: Any) -> Tensor:
    result = model(batch[0])
    return sum((nn.functional.cross_entropy(one, batch[1]) for one in result.values()), torch.zeros(()))


def _segmentation(name: str, **options: Any) -> Entry:
    def make() -> Subject:
        import torchvision

        model = torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=CLASSES, **options)
        return Subject(disable_dropout(model), (_images(64), torch.randint(CLASSES, (4, 64, 64))), _first, _segment)

    return Entry(f"{name} (torchvision)", make, ("torchvision",))


# -- detection ----------------------------------------------------------------------------------------------------


def _targets() -> list[dict[str, Tensor]]:
    boxes = torch.tensor([[4.0, 4.0, 30.0, 30.0], [20.0, 10.0, 60.0, 50.0]])
    masks = torch.zeros(2, 64, 64, dtype=torch.uint8)
    masks[0, 4:30, 4:30] = masks[1, 10:50, 20:60] = 1
    return [{"boxes": boxes, "labels": torch.tensor([1, 2]), "masks": masks} for _ in range(2)]


def _detect(model: nn.Module, batch: Any) -> Tensor:
    images, targets = batch
    return torch.stack(list(model(list(images), targets).values())).sum()


def _detections(model: nn.Module, batch: Any) -> Any:
    return model(list(batch[0]))


def _detection(name: str, **options: Any) -> Entry:
    def make() -> Subject:
        import torchvision

        model = torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=CLASSES, **options)
        return Subject(disable_dropout(model), (_images(64, 2), _targets()), _detections, _detect)

    return Entry(f"{name} (torchvision)", make, ("torchvision",))


class _Regions(nn.Module):
    """Classifier of boxes: a modulated deformable convolution, then one of torchvision's ops that pool boxes."""

    def __init__(self, pool: str, bins: int, **options: Any) -> None:
        super().__init__()
        import torchvision

        sensitive = pool.startswith("ps_")
        channels = CLASSES * bins * bins if sensitive else 8
        self.stem = nn.Conv2d(3, 8, 3, stride=4, padding=1)
        self.offsets = nn.Conv2d(8, 2 * 2 * 9, 3, padding=1)
        self.masks = nn.Conv2d(8, 2 * 9, 3, padding=1)
        self.deformable = torchvision.ops.DeformConv2d(8, channels, 3, padding=1)
        self.head = nn.Identity() if sensitive else nn.Conv2d(channels, CLASSES, 1)
        self.pool = getattr(torchvision.ops, pool)
        self.pool_options = {"output_size": bins, "spatial_scale": 0.25, **options}

    def forward(self, images: Tensor, boxes: list[Tensor]) -> Tensor:
        x = self.stem(images).relu()
        x = self.deformable(x, self.offsets(x), self.masks(x).sigmoid())
        return self.head(self.pool(x, boxes, **self.pool_options)).mean((2, 3))


def _region_loss(model: nn.Module, batch: Any) -> Tensor:
    return nn.functional.cross_entropy(model(*batch), torch.arange(4))


def _regions(pool: str, **options: Any) -> Entry:
    def make() -> Subject:
        boxes = [one["boxes"] for one in _targets()]
        batch = (_images(64, 2), boxes)
        return Subject(_Regions(pool, 3, **options), batch, lambda model, batch: model(*batch), _region_loss)

    return Entry(f"regions of a deformable convolution, {pool} (torchvision)", make, ("torchvision",))


def _flow(model: nn.Module, batch: Any) -> Any:
    return model(*batch, num_flow_updates=2)


def _raft() -> Subject:
    import torchvision

    return Subject(
        disable_dropout(torchvision.models.get_model("raft_small", weights=None)),
        (_images(128, 2), _images(128, 2)),
        _flow,
        lambda model, batch: loss_of(_flow(model, batch)),
    )


SMALL_IMAGES = {"min_size": 64, "max_size": 64}

OTHERS = (
    _video("r3d_18"),
    _video("r2plus1d_18"),
    _segmentation("fcn_resnet50", aux_loss=True),
    _segmentation("deeplabv3_resnet50", aux_loss=True),
    _segmentation("deeplabv3_mobilenet_v3_large"),
    _segmentation("lraspp_mobilenet_v3_large"),
    _detection("fasterrcnn_mobilenet_v3_large_320_fpn", **SMALL_IMAGES),
    _detection("maskrcnn_resnet50_fpn", **SMALL_IMAGES),
    _detection("retinanet_resnet50_fpn", **SMALL_IMAGES),
    _detection("fcos_resnet50_fpn", **SMALL_IMAGES),
    _detection("ssdlite320_mobilenet_v3_large"),
    _regions("roi_align", sampling_ratio=2, aligned=True),
    _regions("roi_pool"),
    _regions("ps_roi_align"),
    _regions("ps_roi_pool"),
    Entry("raft_small (torchvision)", _raft, ("torchvision",)),
)

ENTRIES = (*TIMM, *TORCHVISION, *OTHERS)
