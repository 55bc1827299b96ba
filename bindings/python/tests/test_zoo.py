"""The programs of bench/zoo at their smallest, with strata as `torch`; and beside PyTorch where that is installed."""

import importlib.util
import json
import math
import os
import pathlib
import subprocess
import sys
import threading

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


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor: nothing to share")
def test_programs_at_once_have_their_own_processors(tmp_path):
    given = ["--size", "tiny", "--engines", "strata", "--turns", "2", "--seconds", "0.01", "--threads", "1"]
    given += ["--workers", "2", "--out", str(tmp_path / "zoo"), "--programs", "gcn", "vae"]
    assert "2 programs at once, each bound to processors of its own" in _run("run.py", *given)
    lines = [json.loads(line) for line in (tmp_path / "zoo.jsonl").read_text().splitlines()]
    assert sorted((r["program"], r["turn"]) for r in lines) == [(p, t) for p in ("gcn", "vae") for t in (0, 1)]
    assert all(len(r["times_s"]) >= 3 for r in lines)

    turns, found = _turns().Apart(), []
    show = "import os; print(sorted(os.sched_getaffinity(0)))"

    def run(cpu):
        os.sched_setaffinity(0, {cpu})  # of this thread
        found.append((cpu, turns.run([sys.executable, "-c", show], 60, dict(os.environ))))

    for cpu in sorted(os.sched_getaffinity(0))[:2]:
        thread = threading.Thread(target=run, args=(cpu,))
        thread.start()
        thread.join()
    assert [result for _, result in found] == [(0, f"[{cpu}]\n", "") for cpu, _ in found]
    with pytest.raises(subprocess.TimeoutExpired):
        turns.run([sys.executable, "-c", "import time; time.sleep(30)"], 0.3, dict(os.environ))


def test_what_fusion_would_save_is_counted():
    lines = _run("count.py", "--size", "tiny", "llama", "dqn").splitlines()
    assert lines[0].startswith("| program | size | calls |") and len(lines) == 4
    for name, line in zip(("llama", "dqn"), lines[2:], strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[:2] == [name, "tiny"] and int(cells[2]) > 30
        assert float(cells[7].rstrip("%")) < 100
    assert float(lines[2].split("|")[8].strip(" %")) > 10  # a norm and rotations written as chains


def test_the_count_of_a_chain():
    """exp and mul read what was written just before: one result never need be written, the other is saved for backward."""
    sys.path.insert(0, str(ZOO))
    try:
        import count
    finally:
        sys.path.remove(str(ZOO))
    x = st.ones(1024, requires_grad=True)
    recording = st.record(lambda: (st.exp(x * 2.0) * 3.0).sum().backward())
    total = count.count(recording, count.families())
    # forward: x * 2 written and read once; exp's result read, and kept for backward; the product written, read by sum.
    # backward: the gradient of the product written, read by exp's rule; what that writes is read by the last call, behind
    # which it may live on.
    assert total["saved"] == 4096 * (2 + 1 + 2 + 2 + 1)
    assert total["calls"] == sum(bool(recording[i]["work"] and recording[i]["bytes"]) for i in range(len(recording)))


def _turns():
    spec = importlib.util.spec_from_file_location("turns", ZOO / "turns.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_others_stand_still_while_one_is_timed(tmp_path):
    """Two processes and their children count; each says how far the others came while it was timed."""
    turns = _turns().Turns()
    child = "import sys, time\nwhile True:\n    open(sys.argv[1], 'a').write('.'); time.sleep(0.002)"
    program = f"""
import glob, os, subprocess, sys, time
own = sys.argv[1]
open(own, 'w').close()
counter = subprocess.Popen([sys.executable, '-c', {child!r}, own])
while len(glob.glob({str(tmp_path)!r} + '/count*')) < 2 or any(os.path.getsize(f) == 0 for f in glob.glob({str(tmp_path)!r} + '/count*')):
    time.sleep(0.002)
sizes = lambda: [os.path.getsize(f) for f in sorted(glob.glob({str(tmp_path)!r} + '/count*')) if f != own]
print('an ordinary line', flush=True)
print('ready', flush=True)
sys.stdin.readline()
before, mine = sizes(), os.path.getsize(own)
time.sleep(0.3)
moved = sizes() != before, os.path.getsize(own) > mine
print('timed', flush=True)
counter.kill()
print(*moved)
"""
    results = [None, None]

    def run(i):
        results[i] = turns.run([sys.executable, "-c", program, str(tmp_path / f"count{i}")], 60, dict(os.environ))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for code, output, errors in results:
        assert code == 0, errors
        assert output.splitlines() == ["an ordinary line", "False True"]
    assert turns.live == {}


def test_time_standing_still_is_no_time_of_the_limit():
    turns = _turns().Turns()
    slow = "import sys, time; print('ready', flush=True); sys.stdin.readline(); time.sleep(2); print('timed', flush=True)"
    other = "import time; time.sleep(1.2); print('done')"
    results = []
    first = threading.Thread(target=lambda: results.append(turns.run([sys.executable, "-c", slow], 60, dict(os.environ))))
    first.start()
    assert turns.run([sys.executable, "-c", other], 3, dict(os.environ))[1] == "done\n"
    first.join()
    assert results[0][0] == 0
    with pytest.raises(subprocess.TimeoutExpired):
        turns.run([sys.executable, "-c", "import time; time.sleep(30)"], 0.3, dict(os.environ))
    assert turns.live == {}
