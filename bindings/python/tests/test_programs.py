"""Programs as PyTorch users write them, in programs/: torch's name replaced by strata's, nothing else. Each hands numbers to
out(); expected.json holds what PyTorch 2.15 gives for the same program, weights and inputs. Where an output is large, its
shape, its sum of sizes and some of its elements are compared."""

import json
import pathlib

import numpy as np
import pytest

import strata as st

FOLDER = pathlib.Path(__file__).parent / "programs"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


def fill(module, seed=0, scale=0.1):
    """The module with parameters that NumPy draws, in the order of their names."""
    random = np.random.default_rng(seed)
    with st.no_grad():
        for _, p in sorted(module.named_parameters()):
            p.copy_(st.from_numpy((random.standard_normal(tuple(p.shape)) * scale).astype(np.float32)).to(p.dtype))
    return module


def digest(value):
    """Shape, sum of sizes, and up to 12 elements."""
    a = np.asarray(value)
    flat = a.reshape(-1).astype(np.float64)
    places = range(flat.size) if flat.size <= 12 else np.linspace(0, flat.size - 1, 12).astype(int)
    return list(a.shape), float(np.abs(flat).sum()), [float(flat[i]) for i in places]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_program(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(5)
    given = {}

    def out(key, value):
        if isinstance(value, st.Tensor):
            value = value.detach()
            value = (value.float() if value.is_floating_point() else value).numpy()
        given[key] = digest(value)

    def normal(*shape):
        return random.standard_normal(shape).astype(np.float32)

    source = (FOLDER / f"{name}.py").read_text()
    st.manual_seed(0)
    threads = st.get_num_threads()
    try:
        exec(compile(source, str(FOLDER / f"{name}.py"), "exec"),
             {"__name__": name, "np": np, "out": out, "fill": fill, "F32": normal, "FOLDER": str(tmp_path)})
    finally:
        st.set_printoptions(profile="default")
        st.set_num_threads(threads)
    assert set(given) == set(EXPECTED[name])
    for key, (shape, total, values) in EXPECTED[name].items():
        assert given[key][0] == shape, key
        np.testing.assert_allclose(given[key][2], values, rtol=3e-4, atol=3e-5, err_msg=f"{name}: {key}")
        np.testing.assert_allclose(given[key][1], total, rtol=3e-4, atol=3e-5, err_msg=f"{name}: {key}")


def test_every_program_has_numbers():
    assert {p.stem for p in FOLDER.glob("*.py")} == set(EXPECTED) and len(EXPECTED) == 25
