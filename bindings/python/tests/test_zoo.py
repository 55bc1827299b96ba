"""The programs of bench/zoo at their smallest, with strata as `torch`; and beside PyTorch where that is installed."""

import importlib.util
import json
import math
import os
import pathlib
import subprocess
import sys

import pytest

import strata as st

ZOO = pathlib.Path(__file__).resolve().parents[3] / "bench" / "zoo"
PROGRAMS = sorted(path.stem for path in (ZOO / "programs").glob("*.py"))


def _run(script, *arguments):
    path = os.pathsep.join([str(pathlib.Path(st.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, str(ZOO / script), *arguments], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _losses(engine, weights):
    given = ["--engine", engine, "--size", "tiny", "--threads", "1", "--losses", "12", "--weights", str(weights)]
    return {line["program"]: line for line in map(json.loads, _run("one.py", *given).splitlines())}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="module")
def trained(weights):
    return _losses("strata", weights)


@pytest.fixture(scope="module")
def pytorch(trained, weights):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed here; where it is, its losses are compared")
    return _losses("torch", weights)


def test_there_are_forty_programs():
    assert len(PROGRAMS) == 40


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_trains(trained, name):
    line = trained[name]
    assert "error" not in line, line.get("trace")
    losses = line["losses"]
    assert len(losses) == 12 and all(map(math.isfinite, losses))
    assert not line["falls"] or sum(losses[-4:]) < sum(losses[:4]), losses
    assert line["warnings"] == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_losses_are_pytorchs(trained, pytorch, name):
    assert "error" not in pytorch[name], pytorch[name].get("trace")
    wanted = pytorch[name]["losses"]
    floor = 0.05 * abs(wanted[0])
    for got, want in zip(trained[name]["losses"], wanted, strict=True):
        assert abs(got - want) <= trained[name]["tolerance"] * max(abs(want), floor), (trained[name]["losses"], wanted)


def test_the_runner_goes_on_where_it_stopped(tmp_path):
    given = ["--size", "tiny", "--engines", "strata", "--turns", "2", "--seconds", "0.01"]
    given += ["--out", str(tmp_path / "zoo"), "--programs"]
    _run("run.py", *given, "gcn")
    lines = (tmp_path / "zoo.jsonl").read_text().splitlines()
    assert len(lines) == 2 and len(json.loads(lines[0])["times_s"]) >= 3 and json.loads(lines[0])["peak_bytes"] > 0
    assert "| gcn | - |" in _run("run.py", *given, "gcn", "vae")
    now = (tmp_path / "zoo.jsonl").read_text().splitlines()
    assert now[:2] == lines and [json.loads(line)["program"] for line in now[2:]] == ["vae", "vae"]
