"""What one small op costs from Python, beside PyTorch where it is installed.

    PYTHONPATH=build/python python bench/python_overhead.py [--device cuda]

On a card it is the host's time: nothing waits for the device, which is idle when a round begins. Each line is the median of 15 rounds, in nanoseconds a call, less the cost of calling an empty function; the two libraries
take turns, so that what else the machine does meets both."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any, Callable

try:
    import torch  # before strata: see docs/design/no-slow-paths.md, at the end
except ImportError:
    torch = None

import strata as st


def cases(lib: Any, device: str) -> dict[str, Callable[[], Any]]:
    x, y = lib.tensor([1.0, 2.0, 3.0, 4.0], device=device), lib.tensor([4.0, 3.0, 2.0, 1.0], device=device)
    w = lib.tensor([1.0, 2.0, 3.0, 4.0], device=device, requires_grad=True)
    m, n = lib.ones(4, 4, device=device), lib.ones(4, 4, device=device)
    add = lib.add
    return {
        "x + y": lambda: x + y,
        "add(x, y)": lambda: add(x, y),
        "x.add(y)": lambda: x.add(y),
        "add(x, y, alpha=2)": lambda: add(x, y, alpha=2),
        "x + 1": lambda: x + 1,
        "x.add_(y)": lambda: x.add_(y),
        "x + y, recorded": lambda: w + y,
        "exp(x)": lambda: lib.exp(x),
        "x.sum()": lambda: x.sum(),
        "softmax(x, 0)": lambda: lib.softmax(x, 0),
        "matmul [4,4]": lambda: m @ n,
        "x[0]": lambda: x[0],
        "x[1:3]": lambda: x[1:3],
        "x.shape": lambda: x.shape,
        "x.reshape(2, 2)": lambda: x.reshape(2, 2),
        "zeros(4)": lambda: lib.zeros(4, device=device),
        "x.sum().item()": lambda: x.sum().item(),
        "(w * y).sum().backward()": lambda: (w * y).sum().backward(),
    }


def seconds(function: Callable[[], Any], calls: int, wait: Callable[[], None]) -> float:
    wait()
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    # Fewer than a card's queue holds.
    calls, waits = (2000, lambda: None) if device == "cpu" else (200, lambda: (st.cuda.synchronize(), torch and torch.cuda.synchronize()))
    st.set_num_threads(1)
    libraries = {"strata": cases(st, device)}
    if torch is not None:
        torch.set_num_threads(1)
        libraries["torch"] = cases(torch, device)
    print(f"{'':26}" + "".join(f"{name:>10}" for name in libraries) + ("     ratio" if torch is not None else ""))
    for name in libraries["strata"]:
        times: dict[str, list[float]] = {library: [] for library in libraries}
        for _ in range(15):
            for library, table in libraries.items():
                times[library].append(seconds(table[name], calls, waits) - seconds(lambda: None, calls, waits))
        medians = [statistics.median(t) * 1e9 for t in times.values()]
        line = f"{name:26}" + "".join(f"{m:10.0f}" for m in medians)
        print(line + (f"{medians[0] / medians[1]:10.2f}" if len(medians) == 2 else ""))


if __name__ == "__main__":
    main()
