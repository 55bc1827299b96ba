"""Runs the programs of programs/ and says what they give. As a program of its own it writes programs/expected.json, in an
environment with PyTorch (2.15 wrote what is there): python bindings/python/tests/programs_run.py"""

import contextlib
import json
import math
import pathlib
import re
import tempfile

import numpy as np

FOLDER = pathlib.Path(__file__).parent / "programs"


def digest(value):
    """Shape, sum of sizes, and up to 12 elements."""
    a = np.asarray(value)
    flat = a.reshape(-1).astype(np.float64)
    places = range(flat.size) if flat.size <= 12 else np.linspace(0, flat.size - 1, 12).astype(int)
    return list(a.shape), float(np.abs(flat).sum()), [float(flat[i]) for i in places]


def run(lib, name, folder):
    """Runs a program with ``lib``, strata or torch, in an empty folder: the digest of each number that it hands out."""
    random = np.random.default_rng(5)
    given = {}

    def fill(module, seed=0, scale=0.1):
        """The module with parameters that NumPy draws, in the order of their names."""
        drawn = np.random.default_rng(seed)
        with lib.no_grad():
            for _, p in sorted(module.named_parameters()):
                p.copy_(lib.from_numpy((drawn.standard_normal(tuple(p.shape)) * scale).astype(np.float32)).to(p.dtype))
        return module

    def out(key, value):
        if isinstance(value, lib.Tensor):
            value = value.detach()
            value = (value.float() if value.is_floating_point() else value).numpy()
        given[key] = digest(value)

    def normal(*shape):
        return random.standard_normal(shape).astype(np.float32)

    path = FOLDER / f"{name}.py"
    source = path.read_text()
    if lib.__name__ == "torch":  # which takes a file of that name for one that it has not written
        source = re.sub(r"\bstrata\b", "torch", source).replace(".safetensors", ".pt")
    lib.manual_seed(0)
    threads = lib.get_num_threads()
    try:
        exec(compile(source, str(path), "exec"),
             {"__name__": name, "np": np, "out": out, "fill": fill, "F32": normal, "FOLDER": str(folder)})
    finally:
        lib.set_printoptions(profile="default")
        lib.set_num_threads(threads)
    return given


def main():
    import torch

    def short(x):
        return float(f"{x:.7g}") if math.isfinite(x) else x

    lines = []
    for path in sorted(FOLDER.glob("*.py")):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            given = run(torch, path.stem, folder)
        entries = {key: [shape, short(total), [short(v) for v in values]] for key, (shape, total, values) in given.items()}
        lines.append(json.dumps(path.stem) + ":" + json.dumps(entries, separators=(",", ":")))
    (FOLDER / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
