"""Writes packed_files.json: matrices as other programs store them, and what those programs decode them to."""
import base64, json, sys
sys.path.insert(0, "/tmp/lowbit_py")
import numpy as np, torch

rng = np.random.default_rng(14)
cases = []

def entry(t):
    if isinstance(t, torch.Tensor):
        dtype = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int32: "i32", torch.int64: "i64",
                 torch.int8: "i8", torch.uint8: "u8", torch.float8_e4m3fn: "u8"}[t.dtype]
        raw = t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""
        shape = list(t.shape)
    else:
        dtype = {"float32": "f32", "float16": "f16", "int32": "i32", "uint32": "i32"}[str(t.dtype)]
        raw, shape = np.ascontiguousarray(t).tobytes(), list(t.shape)
    return {"dtype": dtype, "shape": shape, "base64": base64.b64encode(raw).decode()}

def case(name, config, pieces, decoded):
    decoded = decoded.float().numpy() if isinstance(decoded, torch.Tensor) else decoded
    # Of the numbers a hash (FNV-1a of the bits, with -0 as 0) and the first few.
    numbers = np.ascontiguousarray(decoded.astype(np.float32)) + np.float32(0)
    fnv = 0xcbf29ce484222325
    for byte in numbers.tobytes(): fnv = (fnv ^ byte) * 0x100000001b3 % 2**64
    cases.append({"name": name, "config": config, "pieces": {k: entry(v) for k, v in pieces.items()},
                  "shape": list(decoded.shape), "fnv1a": f"{fnv:016x}", "first": numbers.reshape(-1)[:4].tolist()})

def words(codes, bits):
    """[.., n] codes to [.., n * bits / 32] words, the first in the lowest bits."""
    per = 32 // bits
    c = codes.astype(np.uint64).reshape(*codes.shape[:-1], -1, per)
    return (c << (np.arange(per, dtype=np.uint64) * bits)).sum(-1).astype(np.uint32)

# GPTQ, from its description: codes of a column one below the other in a word, zeros side by side; zeros less 1 in v1.
def gptq(name, n, k, bits, group, form, sym, act):
    q = rng.integers(0, 2**bits, (k, n)); groups = k // group
    z = np.full((groups, n), 2 ** (bits - 1)) if sym else rng.integers(0, 2**bits, (groups, n))
    s = (rng.random((groups, n)) * 0.02 + 0.01).astype(np.float16)
    g = np.arange(k) // group
    if act: g = rng.permutation(g)
    w = (q.astype(np.float32) - z[g]) * s[g].astype(np.float32)
    stored = (z - (1 if form == "gptq" else 0)) % 2**bits
    case(name, {"quant_method": "gptq", "bits": bits, "group_size": group if groups > 1 else -1, "desc_act": act, "sym": sym,
                "checkpoint_format": form},
         {"qweight": words(q.T, bits).T.copy(), "qzeros": words(stored, bits), "scales": s, "g_idx": g.astype(np.int32)}, w.T)

gptq("gptq int4", 8, 64, 4, 32, "gptq", True, False)
gptq("gptq int4, zeros, act order", 8, 64, 4, 32, "gptq", False, True)
gptq("gptq v2 int4, zeros", 8, 64, 4, 32, "gptq_v2", False, False)
gptq("gptq int8, one group", 4, 32, 8, 32, "gptq", False, False)

# AWQ, from its description: eight output columns in a word, in the order 0 2 4 6 1 3 5 7.
n, k, group = 16, 64, 32
order = [0, 2, 4, 6, 1, 3, 5, 7]
q = rng.integers(0, 16, (k, n)); z = rng.integers(0, 16, (k // group, n))
s = (rng.random((k // group, n)) * 0.02 + 0.01).astype(np.float16)
g = np.arange(k) // group
mixed = lambda c: c.reshape(c.shape[0], -1, 8)[:, :, order].reshape(c.shape)
case("awq", {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm",
             "modules_to_not_convert": None},
     {"qweight": words(mixed(q), 4), "qzeros": words(mixed(z), 4), "scales": s},
     ((q.astype(np.float32) - z[g]) * s[g].astype(np.float32)).T)

# compressed-tensors, by the package.
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor as Packed
from compressed_tensors.quantization import QuantizationScheme, QuantizationArgs
torch.manual_seed(14)
def compressed(name, n, k, strategy, dtype, **args):
    weights = QuantizationArgs(strategy=strategy, **args)
    scheme = QuantizationScheme(targets=["Linear"], weights=weights)
    groups = k // weights.group_size if strategy == "group" else 1
    bits = weights.num_bits
    w = torch.randn(n, k)
    top = w.reshape(n, groups, -1).abs().amax(-1) / (2 ** (bits - 1) - 1)
    state = {"weight": w, "weight_scale": top.to(dtype)}
    if not weights.symmetric: state["weight_zero_point"] = torch.randint(-3, 4, (n, groups), dtype=torch.int8)
    packed = Packed.compress(dict(state), scheme)
    wide = dict(packed); wide["weight_scale"] = wide["weight_scale"].float()
    decoded = Packed.decompress(wide, scheme)["weight"]
    config = {"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
              "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": None,
              "output_activations": None, "weights": {"num_bits": bits, "type": "int", "symmetric": weights.symmetric,
              "strategy": strategy, "group_size": weights.group_size, "dynamic": False, "actorder": None}}}}
    case(name, config, packed, decoded)
compressed("compressed-tensors int4 groups", 5, 64, "group", torch.bfloat16, num_bits=4, group_size=32)
compressed("compressed-tensors int4 channels", 6, 44, "channel", torch.float16, num_bits=4)
compressed("compressed-tensors int4 groups, zeros", 9, 64, "group", torch.float32, num_bits=4, group_size=32, symmetric=False)
compressed("compressed-tensors int8 groups, zeros", 5, 64, "group", torch.float32, num_bits=8, group_size=32, symmetric=False)
compressed("compressed-tensors int8 channels", 3, 36, "channel", torch.float32, num_bits=8)

def group0(weights, form):
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": {"targets": ["Linear"],
            "weights": weights, "input_activations": {"num_bits": 8, "dynamic": True}}}}
q = torch.randint(-127, 128, (5, 20), dtype=torch.int8); s = torch.rand(5, 1)
case("compressed-tensors int-quantized", group0({"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True},
     "int-quantized"), {"weight": q, "weight_scale": s}, q.float() * s)
f = torch.randn(5, 20).to(torch.float8_e4m3fn)
case("compressed-tensors float-quantized", group0({"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
     "float-quantized"), {"weight": f, "weight_scale": s}, f.float() * s)
one = torch.tensor([0.25])
case("compressed-tensors float-quantized, one scale", group0({"num_bits": 8, "type": "float", "strategy": "tensor",
     "symmetric": True}, "float-quantized"), {"weight": f, "weight_scale": one}, f.float() * one)

# fp8 by blocks, of 32 here to be small.
f = torch.randn(40, 70).to(torch.float8_e4m3fn); s = torch.rand(2, 3) + 0.1
wide = s.repeat_interleave(32, 0)[:40].repeat_interleave(32, 1)[:, :70]
case("fp8 blocks", {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32]},
     {"weight": f, "weight_scale_inv": s}, f.float() * wide)

# bitsandbytes, by the package.
import bitsandbytes.functional as F
for nested in (False, True):
    w = torch.randn(6, 128)
    q, state = F.quantize_4bit(w, blocksize=64, quant_type="nf4", compress_statistics=nested)
    pieces = {"weight": q}
    pieces.update({"weight." + k: v for k, v in state.as_dict(packed=True).items()})
    case("bitsandbytes nf4" + (", double" if nested else ""),
         {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": "nf4",
          "bnb_4bit_use_double_quant": nested, "bnb_4bit_quant_storage": "uint8", "bnb_4bit_compute_dtype": "bfloat16"},
         pieces, F.dequantize_4bit(q, state))

with open(sys.argv[1], "w") as out:
    out.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
