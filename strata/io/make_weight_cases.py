#!/usr/bin/env python3
"""Writes weight_cases.txt: what PyTorch, the package gguf and its quants.py make of small tensors, for the tests of the readers.

  python3 make_weight_cases.py > weight_cases.txt      (needs torch, numpy and gguf)"""
import collections
import io
import os
import sys
import tempfile

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Q

rng = np.random.default_rng(7)


def line(*words):
    print(*words)


def blocks():
    for q in (Q.Q8_0, Q.Q4_0, Q.Q4_K, Q.Q5_K, Q.Q6_K):
        raw = rng.integers(0, 256, (1, gguf.GGML_QUANT_SIZES[q][1]), dtype=np.uint8)
        scales = {Q.Q8_0: [0], Q.Q4_0: [0], Q.Q4_K: [0, 2], Q.Q5_K: [0, 2], Q.Q6_K: [208]}[q]
        for at in scales:
            raw[0, at:at + 2] = np.frombuffer(np.float16(rng.standard_normal()).tobytes(), np.uint8)
        line("decode", q.name, raw.tobytes().hex(), gguf.quants.dequantize(raw, q).astype("<f4").tobytes().hex())
    x = rng.standard_normal((1, 32)).astype(np.float32)
    ties = (np.arange(32, dtype=np.float32) - 16).reshape(1, 32) / 2
    tiny = np.full((1, 32), 1e-42, np.float32)
    with np.errstate(all="ignore"):
        for data in (x, ties, tiny, np.zeros((1, 32), np.float32)):
            for q in (Q.Q8_0, Q.Q4_0):
                line("encode", q.name, data.tobytes().hex(), gguf.quants.quantize(data, q).tobytes().hex())


def gguf_file():
    path = os.path.join(tempfile.mkdtemp(), "x.gguf")
    w = gguf.GGUFWriter(path, "llama")
    w.add_uint8("k.u8", 255)
    w.add_int8("k.i8", -1)
    w.add_uint16("k.u16", 65535)
    w.add_int16("k.i16", -2)
    w.add_uint32("k.u32", 7)
    w.add_int32("k.i32", -5)
    w.add_float32("k.f32", 1.5)
    w.add_uint64("k.u64", 2**63 - 1)
    w.add_int64("k.i64", -2**63)
    w.add_float64("k.f64", 1e300)
    w.add_bool("k.bool", True)
    w.add_string("k.text", "h\u00e4")
    w.add_array("k.texts", ["a", "", "\u00df"])
    w.add_array("k.integers", [1, 2, -3])
    w.add_array("k.numbers", [1.0, 2.5])
    w.add_array("k.bools", [True, False])
    w.add_tensor("f32", np.arange(6, dtype=np.float32).reshape(2, 3))
    w.add_tensor("f16", np.arange(3, dtype=np.float16))
    w.add_tensor("q8_0", gguf.quants.quantize(np.arange(64, dtype=np.float32).reshape(2, 32), Q.Q8_0), raw_dtype=Q.Q8_0)
    w.add_tensor("q2_k", np.arange(84, dtype=np.uint8).reshape(1, 84), raw_dtype=Q.Q2_K)
    w.add_tensor("i32", np.arange(4, dtype=np.int32).reshape(1, 2, 2))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    line("gguf", "all", open(path, "rb").read().hex())


def bytes_of(t):
    t = t.detach().contiguous()
    return t.reshape(-1).view(torch.uint8).numpy().tobytes().hex() if t.numel() else "-"


def torch_file(name, tensors, protocol):
    buffer = io.BytesIO()
    torch.save(tensors, buffer, pickle_protocol=protocol)
    line("torch", name, buffer.getvalue().hex())
    for key, t in tensors.items():
        if isinstance(t, torch.Tensor):
            dtype = str(t.dtype).removeprefix("torch.")
            line("tensor", name, key, dtype, ",".join(map(str, t.shape)) or "-", bytes_of(t))


def torch_files():
    torch.manual_seed(3)
    base = torch.randn(4, 3)
    tensors = collections.OrderedDict(all=base, transposed=base.t(), rows=base[1:3], columns=base[:, 1:])
    tensors["tied"] = base
    tensors["scalar"] = torch.tensor(2.5, dtype=torch.bfloat16)
    tensors["empty"] = torch.empty(0, 5)
    tensors["parameter"] = torch.nn.Parameter(base[0])
    tensors["fp8"] = torch.tensor([1.0, -2.0]).to(torch.float8_e4m3fn)
    tensors["flag"] = torch.tensor([True, False, True])
    torch_file("protocol2", tensors, 2)
    torch_file("protocol4", {"half": torch.ones(2, dtype=torch.float16), "step": 3, "none": None}, 4)


def more_blocks():
    drawn = np.random.default_rng(8)
    scales = {Q.Q4_1: [0, 2], Q.Q5_0: [0], Q.Q5_1: [0, 2], Q.Q2_K: [80, 82], Q.Q3_K: [108], Q.IQ4_NL: [0], Q.IQ4_XS: [0], Q.MXFP4: []}
    for q, places in scales.items():
        raw = drawn.integers(0, 256, (1, gguf.GGML_QUANT_SIZES[q][1]), dtype=np.uint8)
        for at in places:
            raw[0, at:at + 2] = np.frombuffer(np.float16(drawn.standard_normal()).tobytes(), np.uint8)
        for exponent in (0, 1, 2, 127, 254) if q == Q.MXFP4 else (None,):
            if exponent is not None:
                raw[0, 0] = exponent
            line("decode", q.name, raw.tobytes().hex(), gguf.quants.dequantize(raw, q).astype("<f4").tobytes().hex())


print("# Written by make_weight_cases.py; do not edit.")
blocks()
gguf_file()
torch_files()
more_blocks()
