#!/usr/bin/env python3
"""Times single cases of compare_ops.py on Strata and PyTorch: a case a line on the standard input (the lines of `strata lab
compare`); on the standard output "ready", then for each what it is about to do, a text a line, and a list of rows. Both engines get the
same memory, in turns."""
import argparse
import base64
import gc
import json
import math
import os
import pathlib
import sys
import time
import warnings
import zlib

import torch

import strata as st

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from torch_peer import ADAPTED, DTYPES, SPELLED, arguments, flat, numbers, peer  # noqa: E402

# How far results may be apart, relative to the largest: rounding in another order, not another function.
TOLERANCE = {"torch.float64": 1e-6, "torch.float32": 2e-3, "torch.bfloat16": 5e-2, "torch.float16": 2e-2}
ROUNDS = 5


def dtype_of(name):
    return getattr(torch, DTYPES[name])


def filled(spec, generator):
    """A row-major tensor on the generator's device whose elements are as the plan says (strata/lab/plan_values.h)."""
    shape, dtype, v, device = spec["shape"], dtype_of(spec["dtype"]), spec.get("values"), generator.device

    def rand(shape, dtype):
        return torch.rand(shape, generator=generator, dtype=dtype, device=device)

    if "data" in spec:  # a number: one element
        return torch.frombuffer(bytearray(base64.b64decode(spec["data"])), dtype=dtype).reshape(shape).clone().to(device)
    if v["kind"] == "tiled":
        one = torch.frombuffer(bytearray(base64.b64decode(v["of"]["data"])), dtype=dtype) if v["of"]["data"] else torch.zeros(1, dtype=dtype)
        n = math.prod(shape)
        return one.to(device).repeat(-(-n // one.numel()))[:n].reshape(shape).clone()
    low, high = v["low"], v["high"]
    if v["kind"] == "spread":  # in order over the last dimensions, none twice
        n = max(1, math.prod(shape[-v["dims"]:]))
        step = max(1, int(high - low + 1) // n)
        places = torch.arange(n, device=device).reshape(shape[-v["dims"]:]) * step + int(low)
        return (places + torch.randint(0, step, shape, generator=generator, device=device)).to(dtype)
    if v["kind"] == "positive":
        n = shape[-1]
        r = rand(shape, torch.float64) - 0.5
        r = (r + r.mT) / n + torch.diag_embed(1 + 0.5 * rand(shape[:-1], torch.float64))
        return r.to(dtype)
    if dtype.is_floating_point:
        wide = torch.float64 if dtype is torch.float64 else torch.float32
        t = low + (high - low) * rand(shape, wide)
    else:
        t = torch.randint(int(low), int(high) + 1, shape, generator=generator, device=device)
    if v["kind"] in ("ascending", "descending") and t.numel():
        t[..., 0], t[..., -1] = low, high
        t = t.sort(-1, descending=v["kind"] == "descending").values
    return t.to(dtype)


def laid_out(t, layout):
    """The same elements at other places."""
    if layout == "transposed":
        back = list(range(t.dim()))[::-1]
        return t.permute(back).contiguous().permute(back)
    if layout == "every_second":
        wide = torch.zeros([*t.shape[:-1], 2 * t.shape[-1] + 1], dtype=t.dtype, device=t.device)
        view = wide[..., 1::2]
        view.copy_(t)
        return view
    if layout == "channels_last":
        return t.contiguous(memory_format=torch.channels_last if t.dim() == 4 else torch.channels_last_3d) if t.dim() in (4, 5) else t
    return t


def waited(device):
    """Until a card has done what was asked of it: the engines have streams of their own."""
    if device != "cpu":
        torch.cuda.synchronize()


class Case:
    """Arguments of both engines over the same memory."""

    def __init__(self, case, device):
        # The device draws: a large case's numbers from the processor took longer than the case.
        self.generator = torch.Generator(device).manual_seed(zlib.crc32(case["op"].encode()))
        self.device, self.schema = device, arguments(case["schema"])
        pairs = [self.both(spec) for spec in case["args"]]
        self.ours, self.theirs = [p[0] for p in pairs], [p[1] for p in pairs]
        self.keys = {i for i, (_, kind, _) in enumerate(self.schema) if kind.startswith("RngKey")}
        waited(device)
        self.required = sum(default is None and i not in self.keys for i, (_, _, default) in enumerate(self.schema))

    def tensors(self, spec):
        if spec is None:
            return None, None
        t = laid_out(filled(spec, self.generator), spec.get("layout", "contiguous"))
        return st.from_dlpack(t), t

    def both(self, spec):
        ((kind, x),) = spec.items()
        if kind in ("none", "key"):
            return None, None
        if kind == "tensor":
            return self.tensors(x)
        if kind == "tensors":
            pairs = [self.tensors(t) for t in x]
            return [p[0] for p in pairs], [p[1] for p in pairs]
        if kind == "dtype":
            return getattr(st, DTYPES[x]), dtype_of(x)
        if kind == "int":
            return int(x), int(x)
        if kind == "float":
            return float(numbers(x)), float(numbers(x))
        if kind == "device":
            return self.device, self.device
        return x, x

    def floating(self):
        """Both engines' floating tensors: what wants a gradient."""
        def of(values, engine):
            for v in values:
                for t in v if isinstance(v, (list, tuple)) else [v]:
                    if isinstance(t, engine.Tensor) and t.dtype.is_floating_point:
                        yield t
        return list(of(self.ours, st)), list(of(self.theirs, torch))


def our_call(op, case):
    """The record's call; a key that is left out is drawn."""
    if not case.keys:
        return lambda: op(*case.ours)
    first = min(case.keys)
    named = {name: v for i, ((name, _, _), v) in enumerate(zip(case.schema, case.ours)) if i > first and i not in case.keys}
    return lambda: op(*case.ours[:first], **named)


def is_default(value, text):
    text = (text or "").strip("\"'")
    if value is None:
        return text == "None"
    if isinstance(value, bool):
        return text == str(value).lower()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(text) == value
        except ValueError:
            return False
    if isinstance(value, list) and not any(isinstance(v, torch.Tensor) for v in value):
        return text.replace(" ", "") == str(value).replace(" ", "")
    return str(value) == text


def their_calls(f, name, case):
    """Ways to call PyTorch's function, the likeliest first: its argument names and orders differ here and there."""
    places = [i for i in range(len(case.schema)) if i not in case.keys]
    names = [SPELLED.get(case.schema[i][0], case.schema[i][0]) for i in places]
    values = [case.theirs[i] for i in places]
    if name in ADAPTED:
        values = ADAPTED[name](torch, dict(zip([case.schema[i][0] for i in places], values)))
        values, named = values if isinstance(values, tuple) else (values, {})
        yield lambda: f(*values, **named)
        return
    n = case.required
    changed = {m: v for i, m, v in zip(places[n:], names[n:], values[n:]) if not is_default(v, case.schema[i][2])}
    yield lambda: f(*values[:n], **changed)
    yield lambda: f(*values[:n], **dict(zip(names[n:], values[n:])))
    last = max([k + 1 for k in range(len(values)) if k < n or not is_default(values[k], case.schema[places[k]][2])], default=0)
    yield lambda: f(*values)
    for count in range(len(values) - 1, last - 1, -1):
        yield lambda count=count: f(*values[:count])
    yield lambda: f(**dict(zip(names, values)))


def first_that_works(calls):
    """(call, its result); the first error where none does."""
    problem = None
    for call in calls:
        try:
            return call, call()
        except TypeError as e:
            problem = problem or e
        except Exception as e:
            problem = e if problem is None or isinstance(problem, TypeError) else problem
    raise problem


def tensors_in(result, engine):
    found = []
    for r in flat(result):
        if isinstance(r, engine.Tensor):
            found.append(r)
        elif isinstance(r, (tuple, list)):
            found += tensors_in(r, engine)
    return found


def compared(ours, theirs, shown):
    """(do they differ in kind, in values)."""
    a, b = tensors_in(ours, st)[:shown] if len(flat(ours)) > shown else tensors_in(ours, st), tensors_in(theirs, torch)
    if not a or not b:
        return "no tensors", ""
    values = ""
    for x, y in zip(a, b):
        x = torch.from_dlpack(x.detach().contiguous())
        y = y.detach()
        if tuple(x.shape) != tuple(y.shape) or x.dtype != y.dtype:
            return f"{x.dtype} {tuple(x.shape)} for {y.dtype} {tuple(y.shape)}", ""
        if x.numel() == 0 or values:
            continue
        if not y.dtype.is_floating_point:
            wrong = (x != y).double().mean().item()
            values = f"{100 * wrong:.2g}% of the elements" if wrong > 0.01 else ""
            continue
        x, y = x.double(), y.double()
        finite = x.isfinite() & y.isfinite()
        scale = y[finite].abs().max().item() if finite.any() else 1.0
        off = (x - y)[finite].abs().max().item() if finite.any() else 0.0
        if off > TOLERANCE[str(b[0].dtype) if str(b[0].dtype) in TOLERANCE else "torch.float32"] * max(scale, 1e-30):
            values = f"by {off:.3g} of {scale:.3g}"
    return "", values


class Clock:
    def __init__(self, device, seconds, now=time.perf_counter):
        self.device, self.seconds, self.now = device, seconds, now

    def once(self, call, count):
        waited(self.device)
        begin = self.now()
        for _ in range(count):
            call()
        waited(self.device)
        return (self.now() - begin) / count

    def both(self, *calls):
        """Least and median seconds of each call, in turns."""
        gc.collect(1)  # what this case left; a whole collection took as long as the case
        gc.disable()
        try:
            # Both were called before; a longer call needs no estimate, which would take as long as its rounds.
            single = [self.once(call, 1) for call in calls]
            counts = [1] * len(calls)
            for _ in range(2):  # the first estimate of a short call is mostly the clock's
                for i, call in enumerate(calls):
                    if single[i] < self.seconds:
                        single[i] = min(single[i], self.once(call, max(1, counts[i] // 10)))
                        counts[i] = max(1, min(100000, int(self.seconds / ROUNDS / max(single[i], 1e-9))))
            rounds = ROUNDS if max(single) < self.seconds else 3 if max(single) < 1 else 1
            times = [[] for _ in calls]
            for _ in range(rounds):
                for t, call, count in zip(times, calls, counts):
                    t.append(self.once(call, count))
        finally:
            gc.enable()
        return [(min(t), sorted(t)[len(t) // 2]) for t in times]


def training(call, inputs, engine, weights):
    """A call with its backward pass."""
    def step():
        outputs = [r for r in tensors_in(call(), engine) if r.dtype.is_floating_point and r.requires_grad]
        return engine.autograd.grad(outputs, inputs, weights[: len(outputs)], allow_unused=True)
    return step


def gradient_steps(case, ours, theirs, chosen, say):
    """Calls with their backward passes, of both engines, to the first `chosen` floating arguments; None where no result has a gradient."""
    our_inputs, their_inputs = case.floating()
    mine, yours = our_inputs[:chosen], their_inputs[:chosen]
    for t in their_inputs + our_inputs:
        t.requires_grad_(False)
    for t in mine + yours:
        t.requires_grad_()
    say("PyTorch with gradients")
    outputs = [r for r in tensors_in(theirs(), torch) if r.dtype.is_floating_point and r.requires_grad]
    own = [r for r in tensors_in(ours(), st) if r.dtype.is_floating_point and r.requires_grad]
    if not outputs or not own:
        return None
    weights = [torch.randn(o.shape, generator=case.generator, device=o.device).to(o.dtype) for o in outputs]
    # A record may have more results than PyTorch's function: no gradient flows into those.
    count = min(len(own), len(outputs))
    our_weights = [st.from_dlpack(w) for w in weights[:count]]
    steps = [training(limited(f, n, count), i, n, w) for f, n, i, w in
             ((ours, st, mine, our_weights), (theirs, torch, yours, weights[:count]))]
    waited(case.device)
    steps[1]()
    return steps


def timed_training(case, ours, theirs, clock, say):
    """The row of the pass with gradients, or why there is none."""
    for chosen in (len(case.floating()[1]), 1):  # all, or where PyTorch has no gradient for some, the first
        try:
            steps = gradient_steps(case, ours, theirs, chosen, say)
        except Exception as e:
            problem = f"PyTorch's gradient: {type(e).__name__}: {e}"
            continue
        if not steps:
            return None
        say("Strata with gradients")
        try:
            steps[0]()
        except Exception as e:
            return {"problem": f"Strata's gradient: {type(e).__name__}: {e}"[:300]}
        say("timing with gradients")
        (a, a_median), (b, b_median) = clock.both(*steps)
        return {"ours": a, "theirs": b, "ours_median": a_median, "theirs_median": b_median, "inputs": chosen}
    return {"problem": problem[:300]}


def limited(call, engine, count):
    return lambda: tensors_in(call(), engine)[:count] if count else call()


def single_call(case, name, chosen, device, engine):
    """One engine's call of a case's pass, "forward" or "training", as it is timed; for a look at its kernels."""
    both = Case(case, device)
    ours = our_call(st._core.ops[case["op"]], both)
    f = peer(torch, case["op"])
    with torch.no_grad(), st.no_grad():
        theirs, _ = first_that_works(their_calls(f, case["op"], both))
    if name == "training":
        ours, theirs = gradient_steps(both, ours, theirs, chosen, lambda _: None)

    def call():
        if name == "training":
            return (ours if engine == "strata" else theirs)()
        with torch.no_grad(), st.no_grad():
            return (ours if engine == "strata" else theirs)()

    return call


def rows_of(case, clock, device, say):
    """The case's rows; say() is told what is about to be called, should it never come back."""
    f = peer(torch, case["op"])
    if f is None:
        return [{"missing": True}]
    say("making the arguments")
    both = Case(case, device)
    ours = our_call(st._core.ops[case["op"]], both)
    with torch.no_grad(), st.no_grad():
        say("PyTorch")
        try:
            theirs, wanted = first_that_works(their_calls(f, case["op"], both))
        except Exception as e:
            return [{"problem": f"PyTorch refuses: {type(e).__name__}: {e}"[:300]}]
        say("Strata")
        try:
            got = ours()
        except Exception as e:
            return [{"problem": f"Strata refuses: {type(e).__name__}: {e}"[:300]}]
        say("comparing")
        waited(device)
        different, differs = compared(got, wanted, case["shown"])
        about = {k: v for k, v in (("different", different), ("differs", "" if case["random"] else differs)) if v}
        del got, wanted
        say("timing")
        (a, a_median), (b, b_median) = clock.both(ours, theirs)
    rows = [{"pass": "forward", **about, "ours": a, "theirs": b, "ours_median": a_median, "theirs_median": b_median}]
    if case["gradient"] and not different:
        row = timed_training(both, ours, theirs, clock, say)
        if row:
            rows.append({"pass": "training", **about, **row})
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--device", default="cpu")
    p.add_argument("--seconds", type=float, default=0.1)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    a = p.parse_args()
    if a.threads:
        torch.set_num_threads(a.threads)
        st.set_num_threads(a.threads)
    clock = Clock(a.device, a.seconds, time.perf_counter if a.clock == "wall" else time.process_time)
    warnings.filterwarnings("ignore")
    # What libraries print goes elsewhere.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(phase):
        print(json.dumps(phase), file=answers, flush=True)

    # What the libraries made when they were loaded is no garbage to look for before each case.
    gc.collect()
    gc.freeze()
    say("ready")
    for count, line in enumerate(sys.stdin):
        if count % 100 == 99:
            gc.collect()
            if a.device != "cpu":  # what both engines keep for later calls would fill a card
                torch.cuda.empty_cache()
                st.cuda.empty_cache()
        try:
            rows = rows_of(json.loads(line), clock, a.device, say)
        except Exception as e:
            rows = [{"problem": f"the comparison: {type(e).__name__}: {e}"[:300]}]
        print(json.dumps(rows), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
