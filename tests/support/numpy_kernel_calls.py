"""Calls of every kernel of the NumPy backend, in the text form of `eagerdecomp explain --call`. Eager rejects some of them."""

from __future__ import annotations

import torch

ONE_TENSOR = [
    "f32[4, 5]",
    "f32[4, 5][1, 4]",
    "f32[2, 3, 4, 5][60, 1, 15, 3]",
    "f64[3]",
    "f64[]",
    "bf16[7]",
    "f16[3, 2]",
    "i64[4]",
    "b8[3]",
    "c64[2, 2]",
    "f32[0, 3]",
    "u8[5]",
    "i8[3, 2][1, 3]",
    "f32[3, 4][0, 1]",
]
TWO_TENSORS = [
    "f32[4, 5], f32[4, 5]",
    "f32[4, 5][1, 4], f32[5]",
    "f32[4, 1], f64[5]",
    "f32[3], i64[3]",
    "bf16[4], f32[]",
    "bf16[4], bf16[4]",
    "f16[2, 2], bf16[2, 2]",
    "i64[4], i64[4]",
    "i8[4], u8[4]",
    "b8[3], b8[3]",
    "b8[3], i32[3]",
    "c64[2], f64[2]",
    "f32[0, 3], f32[3]",
    "f32[2, 3, 4, 5][60, 1, 15, 3], f32[3, 1, 1]",
    "u8[5], i16[]",
    "f32[3], f32[4]",
]
TENSOR_AND_SCALAR = [
    "f32[4, 5][1, 4], 2",
    "f32[4], 0.5",
    "f64[], -3",
    "bf16[4], 1.7",
    "f16[4], 2",
    "i64[4], 2",
    "i64[4], 1.5",
    "b8[3], 2",
    "b8[3], True",
    "u8[5], 3",
    "i32[3], -2",
    "c64[2], 2.0",
    "f32[0], 1",
]
WITH_DIMS = [
    "f32[3, 4, 5], [1]",
    "f32[3, 4, 5][1, 3, 12], [0, -1], True",
    "f32[4], [0]",
    "f32[], [0]",
    "bf16[3, 40], [1]",
    "f16[3, 4], [0]",
    "f64[3, 4], [1]",
    "i64[3, 4], [1]",
    "b8[3, 4], [0]",
    "u8[3, 4], [-1]",
    "c64[3, 2], [0]",
    "f32[3, 0], [0]",
    "f32[3, 0], [1]",
    "f32[3, 4], [2]",
    "f32[3, 4], [0, 0]",
]
WITH_DIM = [
    "f32[3, 4], 1",
    "f32[3, 4][1, 3], 0",
    "f32[], 0",
    "bf16[3, 3], -1",
    "f16[5], 0",
    "i64[3, 4], 1",
    "b8[3, 4], 0",
    "u8[4], 0",
    "f32[3, 4], 5",
    "f32[2, 0], 0",
    "f32[0, 2], 0",
]
WITHOUT_DIMS = [text.partition(", [")[0] for text in WITH_DIMS]
IMAGE = "f32[2, 3, 6, 7]"
IMAGES = [IMAGE, f"{IMAGE}[126, 1, 21, 3]", "f64[3, 6, 7]", "bf16[1, 2, 6, 7]", "f16[2, 6, 7]", "f32[2, 6, 7, 3][126, 1, 18, 6]"]
SPACE = "f32[2, 3, 6, 7, 5]"

#: Calls of the kernels whose arguments are more than one or two tensors.
CALLS: dict[str, list[str]] = {
    "_adaptive_avg_pool2d": [f"{x}, [{size}]" for x in IMAGES for size in ("2, 3", "6, 7", "9, 1")],
    "_adaptive_avg_pool2d_backward": ["f32[2, 3, 2, 3], " + IMAGE, "f32[3, 9, 1], f32[3, 6, 7]", f"f32[2, 3, 2, 2], {IMAGES[1]}"],
    "_adaptive_avg_pool3d": [f"{SPACE}, [2, 3, 1]", "f32[3, 6, 7, 5], [6, 2, 8]"],
    "_cdist_forward": [f"f32[4, 3], f32[5, 3], {p}, None" for p in ("0.0", "1.0", "2.0", "3.5", "inf")]
    + ["f64[2, 4, 3], f64[2, 1, 3], 2.0, 1"],
    "_fft_c2r": ["c64[3, 4], [1], 0, 6", "c64[3, 4][1, 3], [0, 1], 1, 7", "c128[2, 3, 4], [0, 2], 2, 6"],
    "_fft_r2c": ["f32[3, 4], [1], 0, True", "f32[3, 4][1, 3], [0], 1, False", "f64[2, 3, 4], [2, 0, 1], 2, True"],
    "_local_scalar_dense": ["f32[]", "i64[1, 1]", "b8[]", "bf16[]", "c64[]", "f32[2]"],
    "_log_softmax": [f"{one}, False" for one in WITH_DIM],
    "_native_batch_norm_legit": [
        f"{x}, f32[3], f32[3], f32[3], f32[3], {mode}, 0.3, 1e-05"
        for x in (IMAGE, IMAGES[1], "f32[4, 3]")
        for mode in (True, False)
    ],
    "_native_batch_norm_legit.no_stats": [f"{IMAGE}, f32[3], None, True, 0.3, 1e-05", "bf16[4, 3], None, None, True, 0.3, 1e-05"],
    "_native_batch_norm_legit_no_training": [f"{IMAGE}, None, None, f32[3], f32[3], 0.3, 1e-05"],
    "_pdist_forward": [f"f32[5, 3], {p}" for p in ("0.0", "1.0", "2.0", "inf")],
    "_softmax": [f"{one}, False" for one in WITH_DIM],
    "_to_copy": [
        f"{one}, dtype={dtype}"
        for one in ("f32[3, 4][1, 3]", "i64[4]", "b8[3]", "c64[2]", "bf16[5]")
        for dtype in ("f64", "f16", "bf16", "i32", "u8", "b8", "c64")
    ]
    + [f"{IMAGE}, memory_format=channels_last"],
    "adaptive_avg_pool1d": ["f32[2, 3, 6], [4]", "f32[3, 6], [6]"],
    "addmm": [
        "f32[5], f32[4, 3], f32[3, 5]",
        "f32[4, 1], f32[4, 3][1, 4], f32[3, 5], beta=0.5, alpha=2",
        "bf16[5], bf16[4, 3], bf16[3, 5]",
        "i64[5], i64[4, 3], i64[3, 5]",
        "f32[], f32[4, 0], f32[0, 5]",
        "f32[5], f32[4, 3], f32[4, 5]",
    ],
    "any": ONE_TENSOR,
    "any.dim": WITH_DIM,
    "any.dims": WITH_DIMS,
    "arange.start_step": [
        "0, 5, 1",
        "1, 8.5, 2",
        "5, -3, -2",
        "0, 1, 0.1, dtype=f64",
        "0, 5, 2, dtype=f32",
        "0, 5, 1, dtype=bf16",
        "3, 1, 1",
        "0, 5, 0",
    ],
    "argmax": [*WITH_DIM, "f32[3, 4]", "f32[3, 4][1, 3], 1, True", "f32[3, 4], None, True", "f32[0]"],
    "argmin": [*WITH_DIM, "f32[3, 4]", "i64[3, 4], 0, True"],
    "atan2.out": ["f32[3, 4], f32[4], out=f32[3, 4][1, 3]", "f64[2], f32[2], out=f64[2]"],
    "avg_pool1d": ["f32[2, 3, 7], [3]", "f32[3, 7], [2], [1], [1], True, False"],
    "avg_pool2d": [
        f"{x}, {rest}"
        for x in IMAGES
        for rest in ("[2, 2]", "[3], [2], [1], True", "[3, 2], [2, 1], [1, 0], False, False", "[2, 2], [], [1, 1], True, True, 3")
    ],
    "avg_pool2d_backward": [
        f"f32[2, 3, 3, 3], {IMAGE}, [2, 2], [2, 2], [0, 0], False, True, None",
        f"f32[2, 3, 4, 4], {IMAGES[1]}, [3], [2], [1], True, False, None",
    ],
    "avg_pool3d": [f"{SPACE}, [2, 2, 2]", f"{SPACE}, [3], [2], [1], True, False"],
    "bmm": [
        "f32[2, 3, 4], f32[2, 4, 5]",
        "f32[2, 3, 4][12, 1, 3], f32[2, 4, 5]",
        "f16[2, 3, 4], f16[2, 4, 5]",
        "i64[1, 2, 2], i64[1, 2, 2]",
        "c64[1, 2, 2], c64[1, 2, 2]",
        "f32[2, 3, 4], f32[3, 4, 5]",
    ],
    "cat": [
        "[f32[2, 3], f32[1, 3]]",
        "[f32[2, 3], f64[2, 1]], 1",
        "[f32[0], f32[2, 3]], -1",
        "[bf16[2], i64[3]]",
        f"[{IMAGES[1]}, {IMAGES[1]}], 1",
        f"[{IMAGES[1]}, {IMAGE}], 1",
        "[f32[2, 3], f32[2, 4]]",
        "[f32[], f32[]]",
    ],
    "clamp": [f"{x}, {rest}" for x in ONE_TENSOR for rest in ("0, 1", "None, 0.5", "-1", "max=2")] + ["f32[3]"],
    "clamp.Tensor": [
        "f32[3, 4], f32[4], f32[3, 1]",
        "f32[3], None, f64[]",
        "i64[3], f32[3]",
        "f32[3, 4][1, 3], max=f32[3, 4]",
        "bf16[3], bf16[3]",
    ],
    "clone": [*ONE_TENSOR, f"{IMAGE}, memory_format=channels_last", f"{IMAGES[1]}, memory_format=contiguous_format"],
    "col2im": ["f32[2, 12, 20], [5, 6], [2, 2], [1, 1], [0, 0], [1, 1]", "f32[12, 12], [5, 6], [2, 2], [2, 1], [1, 0], [2, 1]"],
    "constant_pad_nd": [f"{x}, {rest}" for x in ONE_TENSOR[:4] for rest in ("[1, 2]", "[-1, 0], 3", "[0, 0]")]
    + [f"{IMAGES[1]}, [1, 1, -2, 0], 0.5", "f32[3, 4], [-1, -1, 0, -1]", "f32[3], [1]", "f32[3], [-2, -2]"],
    "convolution": [
        f"f32[2, 4, 6, 7]{x}, f32[6, 4, 3, 2], f32[6], {rest}, False, [0, 0], 1"
        for x in ("", "[168, 1, 28, 4]")
        for rest in ("[1, 1], [0, 0], [1, 1]", "[2], [1], [1]", "[2, 1], [1, 2], [2, 1]")
    ]
    + [
        "f32[2, 4, 6], f32[6, 2, 3], None, [1], [1], [1], False, [0], 2",
        "f32[4, 6], f32[6, 4, 3], None, [1], [0], [1], False, [0], 1",
        f"{SPACE}, f32[2, 3, 2, 2, 2], None, [1], [0], [1], False, [0], 1",
        "f32[2, 4, 5, 6], f32[4, 3, 3, 2], f32[6], [2, 3], [1, 0], [1, 2], True, [1, 0], 2",
        "bf16[1, 2, 5, 5], bf16[3, 2, 2, 2], bf16[3], [1], [0], [1], False, [0], 1",
        "f32[1, 2, 2, 2], f32[3, 2, 4, 4], None, [1], [0], [1], False, [0], 1",
    ],
    "convolution_backward": [
        f"f32[2, 6, 4, 6]{x}, f32[2, 4, 6, 7]{x}, f32[6, 2, 3, 2], [6], [1], [0], [1], False, [0], 2, {mask}"
        for x in ("",)
        for mask in ([True] * 3, [False, True, False], [True, False, False])
    ]
    + [
        "f32[2, 4, 5], f32[2, 3, 9], f32[4, 3, 2], [4], [2], [1], [1], False, [0], 1, [True, True, True]",
        "f32[2, 6, 10, 18], f32[2, 4, 5, 6], f32[4, 3, 3, 2], [6], [2, 3], [1, 0], [1, 2], True, [1, 0], 2, [True, True, True]",
    ],
    "copy": ["f32[3, 4], f64[4]", "i64[3, 4][1, 3], f32[3, 4]", "bf16[3], i64[]"],
    "copy_": [
        "f32[3, 4][1, 3], f32[4]",
        "i64[3], f32[3]",
        "bf16[3], f64[3]",
        "u8[3], f32[3]",
        "b8[3], f32[3]",
        "f32[3], c64[3]",
        "f32[3], f32[4]",
    ],
    "cumsum": [*WITH_DIM, "f32[3, 4], 0, dtype=f64", "bf16[100], 0"],
    "diagonal": ["f32[3, 4]", "f32[3, 4], -1", "f32[2, 3, 4][1, 2, 6], 1, -1, 0", "f32[2, 3], 5", "f32[3]", "f32[3, 4], 0, 1, 1"],
    "div.Scalar_mode": [f"{one}, rounding_mode={mode}" for one in TENSOR_AND_SCALAR for mode in ("'trunc'", "'floor'", "None")],
    "div.Tensor_mode": [f"{one}, rounding_mode={mode}" for one in TWO_TENSORS for mode in ("'trunc'", "'floor'", "None")],
    "elu": [*ONE_TENSOR, "f32[9], 0.5, 1.5, 2.0"],
    "embedding": ["f32[9, 3], i64[2, 4]", "bf16[9, 3], i32[5], 1", "f32[9, 3][1, 9], i64[0]", "f32[2, 3], i64[9]"],
    "embedding_dense_backward": ["f32[2, 4, 3], i64[2, 4], 9, -1, False", "f32[5, 3], i32[5], 9, 1, True"],
    "expand": [
        "f32[3, 1], [3, 4]",
        "f32[3], [2, -1]",
        "f32[], [2, 2]",
        "f32[1, 3][9, 1], [1, 1, 3]",
        "f32[3], [4]",
        "f32[3, 1], [3]",
        "f32[3], [-1, 3]",
    ],
    "fill.Scalar": [f"{x}, 2" for x in ONE_TENSOR] + ["f32[3, 4][1, 3], 0.5", "i64[2], 1.5"],
    "flip": ["f32[3, 4], [0]", "f32[3, 4][1, 3], [0, -1]", "i64[3], []", "f32[3], [0, 0]", "bf16[3], [0]"],
    "full": ["[2, 3], 1.5", "[], 3", "[2], True", "[2], 3, dtype=bf16", "[0], 1j", "[2], -1, dtype=i8", "[-1], 0"],
    "full_like": [*(f"{x}, 3" for x in ONE_TENSOR), "f32[3], 2, dtype=i64", f"{IMAGE}, 1.5, memory_format=channels_last"],
    "gather": [
        "f32[3, 4], 1, i64[3, 2]",
        "f32[3, 4][1, 3], 0, i64[1, 4]",
        "bf16[9], 0, i64[4]",
        "f32[], 0, i64[]",
        "i64[3], 0, i64[0]",
        "f32[1, 1], 0, i64[4, 1]",
        "f32[3], 0, i64[2, 2]",
        "f32[3], 0, f32[2]",
    ],
    "gelu": [f"{x}, approximate={kind}" for x in ONE_TENSOR for kind in ("'none'", "'tanh'")],
    "hardtanh": [*ONE_TENSOR, "f32[9], -0.5, 0.25"],
    "index.Tensor": [
        "f32[4, 5], [i64[3]]",
        "f32[4, 5], [None, i64[2, 3]]",
        "f32[4, 5, 6][30, 1, 5], [i64[3], None, i64[3]]",
        "f32[4, 5, 6], [None, i64[2, 1], i64[3]]",
        "f32[4, 5], [b8[4, 5]]",
        "f32[4, 5], [b8[4]]",
        "f32[2, 3, 4, 5][60, 1, 15, 3], [None, None, None, i64[2, 3]]",
        "bf16[9], [i32[4]]",
        "f32[4], [f32[2]]",
        "f32[4], [b8[3]]",
        "f32[2], [i64[9]]",
        "f32[4], [i64[2], i64[2]]",
    ],
    "index_put": [
        "f32[4, 5], [i64[3]], f32[5]",
        "f32[4, 5][1, 4], [None, i64[2]], f32[4, 2], True",
        "f32[4, 5], [b8[4, 5]], f32[]",
        "i64[4], [i64[3]], i64[3], True",
        "bf16[4, 5], [i64[3], i64[3]], bf16[3]",
        "f32[4], [i64[2]], f64[2]",
    ],
    "index_select": [
        "f32[4, 5], 1, i64[3]",
        "f32[4, 5][1, 4], 0, i32[2]",
        "bf16[9], -1, i64[]",
        "f32[], 0, i64[1]",
        "f32[4], 0, i64[2, 2]",
        "f32[4], 0, f32[2]",
        "f32[2], 0, i64[9]",
    ],
    "leaky_relu": [*ONE_TENSOR, "f32[9], 0.3"],
    "masked_scatter": [
        "f32[3, 4], b8[3, 4], f32[12]",
        "f32[4], b8[3, 4], f32[4, 3]",
        "f32[3, 4][1, 3], b8[4], f32[12]",
        "i64[2], i64[2], i64[2]",
    ],
    "max.dim": [*WITH_DIM, "f32[3, 4], 1, True"],
    "max_pool2d_with_indices": [
        f"{x}, {rest}" for x in IMAGES for rest in ("[2, 2]", "[3], [2], [1], [1], True", "[3, 2], [2, 1], [1, 1], [2, 1]")
    ],
    "max_pool2d_with_indices_backward": [
        "f32[2, 3, 2, 2], f32[2, 3, 4, 4], [2, 2], [2, 2], [0, 0], [1, 1], False, i64[2, 3, 2, 2]"
    ],
    "max_pool3d_with_indices": [f"{SPACE}, [2, 2, 2]", f"{SPACE}, [3], [2], [1], [1], True"],
    "mean": [*(x for x in WITHOUT_DIMS), "i64[3], dtype=f32"],
    "mean.dim": [*WITH_DIMS, "i64[3, 4], [0], dtype=f64", "f32[3, 4], []"],
    "min.dim": [*WITH_DIM, "f32[3, 4], 1, True"],
    "mm": [
        "f32[3, 4], f32[4, 5]",
        "f32[3, 4][1, 3], f32[4, 5][1, 4]",
        "f64[3, 4], f64[4, 5]",
        "bf16[3, 4], bf16[4, 5]",
        "f16[3, 4], f16[4, 5]",
        "i64[3, 4], i64[4, 5]",
        "c64[3, 4], c64[4, 5]",
        "f32[3, 0], f32[0, 5]",
        "f32[3, 4], f32[5, 4]",
        "f32[3, 4], f64[4, 5]",
        "f32[3], f32[3]",
    ],
    "native_dropout": [
        "f32[9], 0.5, False",
        "f32[3, 4][1, 3], 0.0, True",
        "f32[0], 0.5, True",
        "f32[9], 1.0, True",
        "f32[9], 1.5, True",
    ],
    "native_group_norm": [
        "f32[2, 6, 3, 5], f32[6], f32[6], 2, 6, 15, 3, 1e-05",
        "f64[2, 4, 5], None, None, 2, 4, 5, 2, 1e-05",
        "bf16[2, 4, 5], bf16[4], bf16[4], 2, 4, 5, 1, 1e-05",
    ],
    "native_group_norm_backward": [
        "f32[2, 6, 15], f32[2, 6, 15], f32[2, 3], f32[2, 3], f32[6], 2, 6, 15, 3, [True, True, True]",
        "f32[2, 6, 15], f32[2, 6, 15], f32[2, 3], f32[2, 3], None, 2, 6, 15, 3, [True, False, False]",
    ],
    "native_layer_norm": [
        "f32[2, 3, 8], [8], f32[8], f32[8], 1e-05",
        "f32[2, 3, 8][24, 1, 3], [3, 8], None, None, 0.1",
        "bf16[4, 8], [8], bf16[8], bf16[8], 1e-05",
        "f32[2, 8], [7], None, None, 1e-05",
        "i64[2, 8], [8], None, None, 1e-05",
    ],
    "native_layer_norm_backward": [
        "f32[4, 8], f32[4, 8], [8], f32[4, 1], f32[4, 1], f32[8], f32[8], [True, True, True]",
        "f32[4, 8], f32[4, 8], [8], f32[4, 1], f32[4, 1], None, None, [True, False, False]",
    ],
    "nonzero": ONE_TENSOR,
    "permute": ["f32[2, 3, 4], [2, 0, 1]", "f32[2, 3], [-1, 0]", "f32[], []", "f32[2, 3], [0, 0]", "f32[2, 3], [0]"],
    "pow.Scalar": ["2, f32[3, 4][1, 3]", "2, i64[4]", "0.5, bf16[3]", "2.5, i64[3]", "1, f32[2]"],
    "pow.Tensor_Scalar": [*TENSOR_AND_SCALAR, "f32[4], 2.0", "i64[3], 0"],
    "prod": [*(x for x in WITHOUT_DIMS), "f32[9], dtype=f64"],
    "prod.dim_int": [*WITH_DIM, "i8[3, 4], 1, True, dtype=i64"],
    "rand": ["[0]", "[3, 7]", "[100], dtype=f64", "[50], dtype=bf16", "[50], dtype=f16", "[3], dtype=i64"],
    "randn": [
        "[0]",
        "[3]",
        "[3, 7]",
        "[100], dtype=f64",
        "[50], dtype=bf16",
        "[15], dtype=f16",
        "[9], dtype=c64",
        "[20], dtype=c128",
    ],
    "randperm": ["0", "1", "20", "9, dtype=i32", "-1"],
    "reflection_pad1d": ["f32[2, 3, 6], [2, 1]", "f32[3, 6], [5, 0]", "f32[3, 6], [6, 0]", "c64[3, 6], [1, 1]"],
    "reflection_pad2d": [f"{x}, [1, 2, 0, 3]" for x in IMAGES],
    "reflection_pad3d": [f"{SPACE}, [1, 2, 0, 3, 1, 1]"],
    "repeat": ["f32[3], [2]", "f32[2, 3][1, 2], [2, 1, 2]", "bf16[], [3]", "f32[2, 3], [2]", "f32[2], [0]"],
    "replication_pad2d": [f"{x}, [1, 2, 0, 3]" for x in IMAGES],
    "replication_pad3d": [f"{SPACE}, [1, 2, 0, 3, 1, 1]"],
    "scalar_tensor": ["2", "1.5", "True", "3, dtype=bf16", "1j, dtype=c64"],
    "scatter.src": [
        "f32[9, 4], 0, i64[3, 4], f32[3, 4]",
        "f32[3, 9][1, 3], 1, i64[3, 1], f32[3, 2]",
        "bf16[9], 0, i64[1], bf16[1]",
        "f32[], 0, i64[], f32[]",
        "f32[9], 0, i64[2], f64[2]",
        "f32[2], 0, i64[9], f32[9]",
    ],
    "scatter.value": ["f32[9, 4], 0, i64[3, 4], 1.5", "i64[9], 0, i64[3], 2", "f32[9], 0, i64[2, 2], 1"],
    "scatter_add": [
        "f32[9, 4], 0, i64[3, 4], f32[3, 4]",
        "bf16[9], 0, i64[5], bf16[5]",
        "i64[9], 0, i64[5], i64[5]",
        "b8[9], 0, i64[5], b8[5]",
        "f32[], 0, i64[], f32[]",
    ],
    "scatter_reduce.two": [
        f"{x}, {kind}, include_self={own}"
        for x in ("f32[9, 4], 0, i64[3, 4], f32[3, 4]", "i64[9], 0, i64[5], i64[5]")
        for kind in ("'sum'", "'prod'", "'mean'", "'amax'", "'amin'")
        for own in (True, False)
    ],
    "select.int": ["f32[3, 4], 1, 2", "f32[3, 4][1, 3], -2, -1", "f32[3], 0, 3", "f32[], 0, 0"],
    "select_scatter": ["f32[3, 4], f32[4], 0, 1", "f32[3, 4][1, 3], f32[3], 1, -1", "f32[3, 4], f32[3], 0, 1"],
    "slice.Tensor": [
        "f32[5, 4], 0, 1, 4, 2",
        "f32[5, 4], 1, -3",
        "f32[5], 0, 3, 2",
        "f32[5], 0, None, 9223372036854775807",
        "f32[5], 0, 0, 5, 0",
        "f32[]",
    ],
    "slice_scatter": ["f32[5, 4], f32[2, 4], 0, 1, 4, 2", "f32[3, 4][1, 3], f32[3, 1], 1, -1", "f32[5], f32[2], 0, 0, 3"],
    "sort": ["f32[3, 8]", "f32[3, 8][1, 3], 0, True", "i64[30], -1, True", "bf16[30]", "b8[9]", "f32[]", "f32[3], 1"],
    "split_with_sizes": ["f32[5, 4], [2, 3]", "f32[5, 4], [1, 0, 3], 1", "f32[5], [2, 2]", "f32[5], [6, -1]"],
    "squeeze.dim": ["f32[1, 3, 1], 0", "f32[1, 3], 1", "f32[], 0", "f32[1], 2"],
    "squeeze.dims": ["f32[1, 3, 1], [0, 2]", "f32[1, 3], [1]", "f32[], []", "f32[1], [0, 0]"],
    "sum.dim_IntList": [*WITH_DIMS, "f32[3, 4], None", "f32[3, 4], []", "b8[9], [0], dtype=f32", "f32[3000, 2], [0]"],
    "topk": ["f32[3, 8], 2", "f32[3, 8][1, 3], 2, 0, False", "i64[9], 9", "f32[], 1", "f32[3], 4"],
    "unsqueeze": ["f32[2, 3][1, 2], 0", "f32[2, 3], -1", "f32[2, 3], 1", "f32[], 0", "f32[2], 3"],
    "var.correction": [f"{x}, correction=1" for x in WITH_DIMS]
    + ["f32[9]", "f32[3, 4], [0], correction=0, keepdim=True", "f32[1], [0]", "f64[3, 4], [1], correction=1.5"],
    "var.dim": [*WITH_DIMS, "f32[3, 4], [0], False"],
    "view": [
        "f32[2, 3, 4], [6, 4]",
        "f32[2, 3, 4], [-1]",
        "f32[4, 6][1, 4], [2, 2, 6]",
        "f32[4, 6][1, 4], [24]",
        "f32[0, 3], [3, 0]",
        "f32[], [1, 1]",
        "f32[6], [4]",
        "f32[0], [-1, 0]",
    ],
    "where.self": [
        "b8[3, 4], f32[4], f32[3, 1]",
        "b8[3], i64[], bf16[3]",
        "b8[3, 4][1, 3], f32[3, 4][1, 3], f64[]",
        "f32[3], f32[3], f32[3]",
    ],
}

for _name, _list in (("Tensor", TWO_TENSORS), ("Scalar", TENSOR_AND_SCALAR)):
    for _packet in ("add", "sub"):
        _by_name = [f"{one}, alpha={alpha}" for one in _list for alpha in (2, -0.5)]
        CALLS[f"{_packet}.{_name}"] = [*_list, *_by_name] if _name == "Tensor" else [*_list, *(f"{one}, 2" for one in _list)]

for _name in ("amax", "amin"):
    CALLS[_name] = [*WITH_DIMS, "f32[3, 4]", "f32[0]"]

#: The dtypes with arithmetic on the CPU.
CPU_DTYPES = {
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
}
