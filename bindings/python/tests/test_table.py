"""Every sample of the records, exported as data (strata_sample_table): the same bytes, the same refusals."""

import base64
import json
import os

import numpy as np
import pytest

import strata as st

PATH = os.environ.get("STRATA_SAMPLE_TABLE", "")


def number(v):
    return float(v) if isinstance(v, str) else v


def tensor(t, device="cpu"):
    if t is None:
        return None
    dtype = st._core.parse_dtype(t["dtype"])
    data = bytearray(base64.b64decode(t["data"]))
    if not data:
        return st.empty(t["shape"], dtype=dtype, device=device)
    return st.frombuffer(data, dtype).reshape(t["shape"]).clone().to(device)


def value(v, device="cpu"):
    ((kind, x),) = v.items()
    if kind == "none":
        return None
    if kind == "tensor":
        return tensor(x, device)
    if kind == "tensors":
        return [tensor(t, device) for t in x]
    if kind == "int":
        return int(x)
    if kind == "float":
        return float(number(x))
    if kind == "dtype":
        return st._core.parse_dtype(x)
    if kind == "device":
        return st.device(device)
    if kind == "key":
        return (int(x[0]), int(x[1]))
    return x


def octets(t):
    bits = t.reshape(-1)
    if t.dtype is st.bfloat16:
        bits = bits.view(st.int16)
    return np.asarray(bits.contiguous()).tobytes()


def check(got, wanted, where):
    ((kind, x),) = wanted.items()
    if kind == "tensors":
        assert len(got) == len(x), where
        for i, (a, b) in enumerate(zip(got, x)):
            check(a, {"tensor": b}, f"{where}[{i}]")
    elif x is None:
        assert got is None, where
    else:
        assert got.dtype.short_name == x["dtype"] and list(got.shape) == x["shape"], where
        assert octets(got) == base64.b64decode(x["data"]), where


@pytest.fixture(scope="module")
def table():
    if not os.path.exists(PATH):
        pytest.skip("STRATA_SAMPLE_TABLE names no file: strata_sample_table FILE writes it")
    with open(PATH) as f:
        return json.load(f)


def test_every_sample_gives_the_same_bytes(table):
    assert table["version"] == 1 and len(table["ops"]) > 250
    cases = 0
    for entry in table["ops"]:
        op = st._core.ops[entry["op"]]
        for i, case in enumerate(entry["cases"]):
            where = f"{entry['op']} #{i} {case['label']} {case['dtype']}"
            arguments = [value(v) for v in case["args"]]
            if "error" in case:
                expected = getattr(st.errors, case["error"]["type"])
                with pytest.raises((expected, TypeError)) as caught:
                    op(*arguments)
                # What the schema already rules out is a TypeError before the op is asked.
                if isinstance(caught.value, expected):
                    assert case["error"]["message"] in str(caught.value), where
            else:
                got = op(*arguments)
                single = len(case["results"]) == 1
                for j, wanted in enumerate(case["results"]):
                    check(got if single else got[j], wanted, f"{where} result {j}")
            cases += 1
    assert cases > 1500


# Sums in another order: so far from the CPU's, in units of the result's largest element (of 0.1 where that is less).
TOLERANCE = {"f64": 1e-10, "f32": 5e-5, "bf16": 5e-2, "f16": 1e-2}
# Products of 8-bit numbers are added up with fewer bits in the tensor cores.
COARSE = {"scaled_matmul": 5e-4}


@pytest.mark.skipif(not st.cuda.is_available(), reason=f"no CUDA device: {st.cuda.unavailable_reason()}")
def test_every_sample_on_a_card(table):
    cases, differ = 0, []
    for entry in table["ops"]:
        op = st._core.ops[entry["op"]]
        for i, case in enumerate(entry["cases"]):
            where = f"{entry['op']} #{i} {case['label']} {case['dtype']}"
            if (entry["op"], case.get("error", {}).get("type")) == ("cross_entropy_backward", "IndexError"):
                continue  # the loss has told of the target; its gradient is NaN
            try:
                if "error" in case:
                    # A number of elements that only the card knows is found as an index.
                    also = IndexError if entry["op"] == "masked_scatter" else TypeError
                    with pytest.raises((getattr(st.errors, case["error"]["type"]), TypeError, also)):
                        op(*[value(v, "cuda") for v in case["args"]])
                        st.cuda.synchronize()  # which indices are out of range is known to the card
                    continue
                got = op(*[value(v, "cuda") for v in case["args"]])
            except (st.StrataError, OSError, ValueError, LookupError, pytest.fail.Exception) as e:
                differ.append(f"{where}: {e}")
                continue
            results = [got] if len(case["results"]) == 1 else got
            for j, wanted in enumerate(case["results"]):
                far = far_apart(results[j], value(wanted), COARSE.get(entry["op"]))
                if far:
                    differ.append(f"{where} result {j}: {far}")
            cases += 1
    assert cases > 1000 and not differ, "\n".join([f"{len(differ)} of {cases}", *differ])


def far_apart(got, wanted, coarse=None):
    """In what a card's result differs from the CPU's; empty where it is near enough."""
    if isinstance(wanted, list):
        return "; ".join(filter(None, map(far_apart, got, wanted)))
    if wanted is None or got is None:
        return "" if wanted is got else f"{got} for {wanted}"
    if not got.is_cuda or got.dtype is not wanted.dtype or got.shape != wanted.shape:
        return f"{got.dtype} {tuple(got.shape)} on {got.device} for {wanted.dtype} {tuple(wanted.shape)}"
    a, b = got.cpu().double().numpy(), wanted.double().numpy()
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return "other infinities or NaNs"
    largest = np.abs(b[finite]).max(initial=0)
    most = np.abs(a[finite] - b[finite]).max(initial=0)
    allowed = max(coarse or 0, TOLERANCE.get(wanted.dtype.short_name, 0))
    return "" if most <= allowed * max(largest, 0.1) else f"{most} from {largest}"


def test_keywords_give_the_same(table):
    for entry in table["ops"]:
        op = st._core.ops[entry["op"]]
        names = [a.split("=")[0].split()[-1] for a in split(op.schema)]
        case = next((c for c in entry["cases"] if "results" in c), None)
        if case is None:
            continue
        arguments = [value(v) for v in case["args"]]
        got = op(**dict(zip(names, arguments)))
        single = len(case["results"]) == 1
        for j, wanted in enumerate(case["results"]):
            check(got if single else got[j], wanted, f"{entry['op']} by name")


def split(schema):
    text, depth, parts = schema[schema.index("(") + 1 :], 0, [""]
    for c in text:
        if c == ")" and depth == 0:
            break
        depth += (c in "[(") - (c in "])")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p for p in parts if p.strip()]
