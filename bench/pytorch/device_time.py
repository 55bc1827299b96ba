"""Device time of PyTorch's calls, as bench/device_time.h takes Strata's."""
import torch

ROTATE = 200 << 20  # bytes that inputs rotate through: more than any L2 cache


def device_ms(sets, f, rounds=11):
    """Milliseconds of one call f(set): the median of rounds between events."""
    calls = max(sets, 4)
    for i in range(calls):
        f(i % sets)
    at = [torch.cuda.Event(enable_timing=True) for _ in range(rounds + 1)]
    at[0].record()
    for r in range(rounds):
        for i in range(calls):
            f(i % sets)
        at[r + 1].record()
    torch.cuda.synchronize()
    ms = sorted(at[r].elapsed_time(at[r + 1]) / calls for r in range(rounds))
    return ms[rounds // 2]
