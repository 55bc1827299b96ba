"""PyTorch's fused AdamW on the processor, beside bench/optim_home_bench.cpp: parameters of f32 in matrices of 2048 columns.

    python bench/pytorch/optim_home.py [million parameters, 1000]
"""

import sys
import time

import torch

n = int(sys.argv[1]) * 10**6 if len(sys.argv) > 1 else 10**9
params = []
while n > 0:
    for rows in (6144, 2048, 8192, 8192):
        p = torch.full((rows, 2048), 0.5, requires_grad=True)
        p.grad = torch.full_like(p, 0.25)
        params.append(p)
        n -= p.numel()
        if n <= 0:
            break
optimizer = torch.optim.AdamW(params, lr=1e-4, fused=True)
seconds = []
for _ in range(5):
    begin = time.perf_counter()
    optimizer.step()
    seconds.append(time.perf_counter() - begin)
elements = sum(p.numel() for p in params)
print(f"PyTorch {torch.__version__}, fused AdamW, f32, {torch.get_num_threads()} threads: "
      f"{elements / min(seconds[1:]) / 1e9:.2f} G parameters/s")
