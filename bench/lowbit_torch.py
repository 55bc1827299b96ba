"""PyTorch's products with low-bit weights on the processor, beside its f32 and bf16 ones: what bench/lowbit_bench has of ours.

    python bench/lowbit_torch.py [rows] [columns] [rows of x ..]
"""

import sys
import time

import torch


def ways(rows: int, columns: int):
    """A name, the dtype of x, copies of a weight, and the product with one."""
    torch.manual_seed(1)
    w = torch.randn(rows, columns)
    six = range(6)  # by turns, so that none stays in the caches
    yield "f32", torch.float32, [w.clone() for _ in six], torch.nn.functional.linear
    half = w.to(torch.bfloat16)
    yield "bf16", torch.bfloat16, [half.clone() for _ in six], torch.nn.functional.linear
    scale = (w.abs().amax(1) / 127).to(torch.bfloat16)
    codes = (w / scale.float()[:, None]).round().clamp(-128, 127).to(torch.int8)
    yield "int8, a scale a row (_weight_int8pack_mm)", torch.bfloat16, [codes.clone() for _ in six], (
        lambda x, c: torch._weight_int8pack_mm(x, c, scale))
    group = 128
    nibbles = torch.randint(0, 16, (rows, columns), dtype=torch.int32)
    packed = torch._convert_weight_to_int4pack_for_cpu(nibbles, 1)
    scales_and_zeros = torch.rand(columns // group, rows, 2).to(torch.bfloat16)
    yield "int4, groups of 128 (_weight_int4pack_mm_for_cpu)", torch.bfloat16, [packed.clone() for _ in six], (
        lambda x, c: torch._weight_int4pack_mm_for_cpu(x, c, group, scales_and_zeros))
    layers = []
    for _ in six:
        net = torch.nn.Sequential(torch.nn.Linear(columns, rows))
        net[0].weight.data.copy_(w)
        layers.append(torch.ao.quantization.quantize_dynamic(net, {torch.nn.Linear}, dtype=torch.qint8)[0])
    yield "int8, x rounded too (quantize_dynamic)", torch.float32, layers, lambda x, layer: layer(x)


def main() -> None:
    numbers = [int(a) for a in sys.argv[1:]]
    rows, columns = (numbers + [4096, 4096][len(numbers):])[:2]
    all_ways = list(ways(rows, columns))
    print(f"[{rows}, {columns}], {torch.get_num_threads()} threads, PyTorch {torch.__version__}")
    with torch.inference_mode():
        for m in numbers[2:] or [1, 2, 4, 8, 16, 32, 64, 128]:
            least = [float("inf")] * len(all_ways)
            for turn in range(27):
                for i, (_, dtype, weights, product) in enumerate(all_ways):
                    x = torch.full((m, columns), 0.5, dtype=dtype)
                    begin = time.perf_counter()
                    product(x, weights[turn % 6])
                    least[i] = min(least[i], time.perf_counter() - begin)
            print(f"\n| {m} rows of x | us | times f32 |\n|---|---|---|")
            for (name, *_), s in zip(all_ways, least):
                print(f"| {name} | {s * 1e6:.0f} | {least[0] / s:.2f} |")


if __name__ == "__main__":
    main()
