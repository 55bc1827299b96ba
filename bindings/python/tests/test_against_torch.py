"""Every record beside PyTorch's function of the same name: the records' samples, and each sample again with one option at a
time moved away from what it is. Nothing here lists ops or options: they are read from the schemas, so a new one is
compared, or must be named below with the reason why it cannot be. Needs PyTorch."""

import base64
import json
import math
import os
import pathlib
import sys

import pytest

import strata as st

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench"))
from torch_peer import DTYPES, SPELLED, arguments, call_torch, flat, found, numbers  # noqa: E402

torch = pytest.importorskip("torch", reason="PyTorch is not installed: nothing to compare with")

PATH = os.environ.get("STRATA_SAMPLE_TABLE", "")
FLOATS = {"f32": (2e-5, 2e-5), "f64": (1e-9, 1e-9)}


def tensors_of(spec):
    """The sample's tensor twice: Strata's and PyTorch's."""
    if spec is None:
        return None, None
    dtype, data = spec["dtype"], bytearray(base64.b64decode(spec["data"]))
    kind = getattr(st, DTYPES[dtype])
    if not data:
        return st.empty(spec["shape"], dtype=kind), torch.empty(spec["shape"], dtype=getattr(torch, DTYPES[dtype]))
    ours = st.frombuffer(bytearray(data), kind).reshape(spec["shape"]).clone()
    return ours, torch.frombuffer(data, dtype=getattr(torch, DTYPES[dtype])).reshape(spec["shape"]).clone()


def both(spec):
    """An argument of a sample for Strata and for PyTorch; raises KeyError for what PyTorch has no form of."""
    ((kind, x),) = spec.items()
    if kind == "none":
        return None, None
    if kind == "tensor":
        return tensors_of(x)
    if kind == "tensors":
        pairs = [tensors_of(t) for t in x]
        return [p[0] for p in pairs], [p[1] for p in pairs]
    if kind == "dtype":
        return getattr(st, DTYPES[x]), getattr(torch, DTYPES[x])
    if kind == "int":
        return int(x), int(x)
    if kind == "float":
        return float(numbers(x)), float(numbers(x))
    if kind in ("bool", "string", "ints"):
        return x, x
    raise KeyError(kind)


def varied(arguments_, specs, seen):
    """The sample as it is, then with one option changed at a time: (what was changed, changes)."""
    yield "", {}
    for i, (name, kind, default) in enumerate(arguments_):
        if default is None or i >= len(specs):
            continue
        ((held, value),) = specs[i].items()
        if kind == "bool":
            yield f"{name}={not value}", {i: {"bool": not value}}
        elif kind == "str":
            for other in sorted(seen[name] - {value}):
                yield f"{name}={other}", {i: {"string": other}}
        elif kind == "int" and held == "int":
            for other in {0, 1, -1, 2} - {int(value)}:
                yield f"{name}={other}", {i: {"int": str(other)}}
        elif kind == "float" and held == "float":
            for other in {0.0, 0.5, 2.0} - {numbers(value)}:
                yield f"{name}={other}", {i: {"float": other}}


# What differs on purpose: op -> (a part of what is said, why).
KNOWN = {
    "batch_norm": ("values differ", "PyTorch's running statistics stand where the record has the weight"),
    "unique": ("int64 (0,) for", "the record gives an empty place for what was not asked for"),
    "unique_consecutive": ("int64 (0,) for", "the record gives an empty place for what was not asked for"),
    "ctc_loss": ("other than the blank", "a label that is the blank is refused, in PyTorch it gives some loss"),
    "elu": ("values differ", "scale and input_scale are the record's, PyTorch has inplace in that place"),
    "embedding_bag": ("offsets must end", "the last offset is checked, PyTorch takes what it finds"),
    "grid_sample": ("four dimensions", "bicubic sampling of volumes, which newer PyTorch has, is refused"),
    "multi_head_attention_forward": ("further keys, each head's weights", "is_causal hides beside a mask that is not causal; "
                                     "PyTorch takes it as a word about the mask, and what it then does varies"),
    "soft_margin_loss": ("values differ by 1.79769e+308", "log(1 + exp(x)) does not overflow here"),
}


def differs(ours, theirs):
    """In what two results differ; empty where they agree."""
    # A record may keep results for its gradient, or return what PyTorch's function has only on request.
    for a, b in zip(flat(ours), flat(theirs)):
        if not isinstance(b, torch.Tensor):
            continue
        if a is None:
            return "no result"
        if tuple(a.shape) != tuple(b.shape) or a.dtype.name != str(b.dtype).removeprefix("torch."):
            return f"{a.dtype.name} {tuple(a.shape)} for {b.dtype} {tuple(b.shape)}"
        x = torch.tensor(a.detach().double().tolist(), dtype=torch.float64).reshape(b.shape)
        y = b.detach().double()
        relative, absolute = FLOATS.get(a.dtype.short_name, (0, 0))
        if not torch.allclose(x, y, relative, absolute * max(1.0, float(y[y.isfinite()].abs().max()) if y.isfinite().any() else 1.0),
                              equal_nan=True):
            return f"values differ by {(x - y).abs().nan_to_num(math.inf).max():g}"
    return ""


def gradients(result, inputs, engine):
    floating = [r for r in flat(result) if isinstance(r, engine.Tensor) and r.dtype.is_floating_point and r.requires_grad]
    if not floating:
        return None
    # Weights that no symmetry cancels.
    total = sum((r * (engine.arange(r.numel(), dtype=r.dtype).reshape(r.shape) % 7 + 1)).sum() for r in floating)
    return engine.autograd.grad(total, inputs, allow_unused=True)


def compare(op, f, case, schema, seen):
    """Yields (what was changed, in what Strata differs) for every call of this sample that differs, None for others."""
    required = sum(default is None for _, _, default in schema)
    names = [SPELLED.get(name, name) for name, _, _ in schema]
    for change, replaced in varied(schema, case["args"], seen):
        specs = [replaced.get(i, spec) for i, spec in enumerate(case["args"])]
        pairs = [both(spec) for spec in specs]
        ours, theirs = [p[0] for p in pairs], [p[1] for p in pairs]
        wanting = [i for i, (a, _) in enumerate(pairs)
                   if isinstance(a, st.Tensor) and a.dtype is st.float64 and case["dtype"] == "f64"]
        for i in wanting:
            ours[i].requires_grad_()
            theirs[i].requires_grad_()
        refused = [None, None]
        got = wanted = None
        try:
            wanted = call_torch(f, names, theirs, required)
        except Exception as e:
            refused[1] = e
        try:
            got = op(*ours)
        except (st.StrataError, TypeError, ValueError, LookupError) as e:
            refused[0] = e
        if refused[0] or refused[1]:
            # What PyTorch refuses (a dtype, a rank, one of its own argument orders) Strata may take.
            yield change, f"refused: {refused[0]}" if not refused[1] else ""
            continue
        problem = differs(got, wanted)
        if not problem and wanting:
            try:
                theirs_g = gradients(wanted, [theirs[i] for i in wanting], torch)
            except RuntimeError:
                theirs_g = None
            if theirs_g is not None:
                ours_g = gradients(got, [ours[i] for i in wanting], st)
                for a, b in zip(ours_g or [], theirs_g):
                    if b is None or a is None:
                        if (a is None) != (b is None) and ((a is None and bool(b.any())) or (b is None and bool(a.any()))):
                            problem = "a gradient is missing"
                    elif differs(a, b):
                        problem = "gradient: " + differs(a, b)
        yield change, problem


def run(table):
    """op -> (calls compared, [what differs])."""
    found_ops, results = 0, {}
    for entry in table["ops"]:
        op = st._core.ops[entry["op"]]
        f = found(torch, entry["op"])
        schema = arguments(op.schema)
        if f is None or any(kind.startswith("RngKey") for _, kind, _ in schema):
            continue
        seen = {}
        for case in entry["cases"]:
            for (name, kind, _), spec in zip(schema, case["args"]):
                if kind == "str" and "string" in spec and "error" not in case:
                    seen.setdefault(name, set()).add(spec["string"])
        for name, kind, default in schema:
            seen.setdefault(name, set())
            if kind == "str" and default and default.strip("\"'") in ("mean", "sum", "none"):
                seen[name] |= {"mean", "sum", "none"}
        calls, wrong = 0, []
        for i, case in enumerate(entry["cases"]):
            if "error" in case or case["dtype"] in ("f16", "bf16"):
                continue
            size = max([math.prod(s["tensor"]["shape"]) for s in case["args"] if s.get("tensor")], default=0)
            if size > 4096:
                continue
            try:
                for change, problem in compare(op, f, case, schema, seen):
                    calls += 1
                    if problem:
                        wrong.append(f"{entry['op']} #{i} {case['label']} {case['dtype']} {change}: {problem}")
            except KeyError:
                continue
        results[entry["op"]] = (calls, wrong)
    return results


@pytest.fixture(scope="module")
def table():
    if not os.path.exists(PATH):
        pytest.skip("STRATA_SAMPLE_TABLE names no file: strata_sample_table FILE writes it")
    with open(PATH) as f:
        return json.load(f)


@pytest.mark.filterwarnings("ignore")
def test_every_record_gives_what_pytorchs_function_gives(table):
    results = run(table)
    compared = sum(calls for calls, _ in results.values())
    assert len(results) > 350 and compared > 2000, (len(results), compared)
    wrong = [line for op, (_, lines) in results.items() for line in lines if KNOWN.get(op, ("\n", ""))[0] not in line]
    assert not wrong, "\n".join([f"{len(wrong)} of {compared} calls differ", *wrong[:50]])


def test_a_wrong_function_is_noticed(table):
    """The comparison itself, with functions that are not what they are called."""
    names = {"sin": "cos", "cumsum": "cumprod", "amax": "amin", "l1_loss": "mse_loss"}
    for entry in table["ops"]:
        if entry["op"] not in names:
            continue
        op, f = st._core.ops[entry["op"]], found(torch, names[entry["op"]])
        schema = arguments(op.schema)
        seen = {name: set() for name, _, _ in schema}
        case = next(c for c in entry["cases"] if "error" not in c and c["dtype"] == "f32")
        assert any(problem for _, problem in compare(op, f, case, schema, seen)), entry["op"]
