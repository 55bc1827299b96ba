"""Programs as PyTorch users write them, in programs/: torch's name replaced by strata's, nothing else. Each hands numbers to
out(); expected.json holds what PyTorch 2.15 gives for the same program, weights and inputs (programs_run.py writes it). Where
an output is large, its shape, its sum of sizes and some of its elements are compared."""

import json

import numpy as np
import pytest

import programs_run
import strata as st

EXPECTED = json.loads((programs_run.FOLDER / "expected.json").read_text())


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_program(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = programs_run.run(st, name, tmp_path)
    assert set(given) == set(EXPECTED[name])
    for key, (shape, total, values) in EXPECTED[name].items():
        assert given[key][0] == shape, key
        np.testing.assert_allclose(given[key][2], values, rtol=3e-4, atol=3e-5, err_msg=f"{name}: {key}")
        np.testing.assert_allclose(given[key][1], total, rtol=3e-4, atol=3e-5, err_msg=f"{name}: {key}")


def test_every_program_has_numbers():
    assert {p.stem for p in programs_run.FOLDER.glob("*.py")} == set(EXPECTED) and len(EXPECTED) == 31
