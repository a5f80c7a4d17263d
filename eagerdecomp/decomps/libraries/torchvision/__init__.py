"""torchvision's detection ops: non-maximum suppression, pooling of regions, deformable convolution."""
