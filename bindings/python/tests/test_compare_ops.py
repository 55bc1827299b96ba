"""bench/compare_ops.py: what it keeps, leaves out, and says; and a small run beside PyTorch where that is installed."""

import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))
import compare_ops  # noqa: E402
import cores  # noqa: E402
import torch_peer  # noqa: E402

STRATA = os.environ.get("STRATA_COMMAND", "")


def case(op, varied="", size="small"):
    return {"op": op, "size": size, "dtype": "f32", "varied": varied, "label": "", "args": [
        {"tensor": {"dtype": "f32", "shape": [4, 8], "layout": "contiguous", "values": {"kind": "uniform", "low": 0, "high": 1}}}]}


class Answers:
    """A worker that needs no engine."""

    def __init__(self):
        self.asked = []

    def ask(self, one, limit):
        self.asked.append(one["op"] + one["varied"])
        return [{"pass": "forward", "ours": 2e-6, "theirs": 1e-6}]


def test_a_run_goes_on_where_it_stopped(tmp_path):
    out = tmp_path / "results.jsonl"
    cases = [case("relu"), case("relu", "transposed"), case("sum")]
    first = Answers()
    todo = compare_ops.pending(cases, compare_ops.read_lines(out), "cpu")
    assert compare_ops.run(todo[:2], [first], out, time.monotonic() + 60, 5, show=None) == 2
    with open(out, "a") as f:
        f.write('{"key": "cut o')  # the process was killed while it wrote
    second = Answers()
    todo = compare_ops.pending(cases, compare_ops.read_lines(out), "cpu")
    assert compare_ops.run(todo, [second], out, time.monotonic() + 60, 5, show=None) == 1
    assert first.asked == ["relu", "relutransposed"] and second.asked == ["sum"]
    # Another device is another comparison.
    assert len(compare_ops.pending(cases, compare_ops.read_lines(out), "cuda")) == 3


def test_the_time_limit_begins_nothing_more(tmp_path):
    out, worker = tmp_path / "results.jsonl", Answers()
    todo = compare_ops.pending([case("relu"), case("sum")], [], "cpu")
    assert compare_ops.run(todo, [worker], out, time.monotonic() - 1, 5, show=None) == 0
    assert worker.asked == [] and compare_ops.read_lines(out) == []


class Bound(Answers):
    """Says on which processors it was asked, after having waited for the others to be asked too."""

    def __init__(self, together):
        super().__init__()
        self.together = together

    def ask(self, one, limit):
        super().ask(one, limit)
        self.together.wait(20)
        return [{"pass": "forward", "ours": 2e-6, "theirs": 1e-6, "cpus": sorted(os.sched_getaffinity(0))}]


def test_workers_share_the_cases_and_no_processor(tmp_path):
    out, before = tmp_path / "results.jsonl", os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("one processor: nothing to share")
    workers = [Bound(threading.Barrier(2))]
    workers.append(Bound(workers[0].together))
    todo = compare_ops.pending([case("relu"), case("sum"), case("relu", "transposed"), case("sum", "transposed")], [], "cpu")
    cpus = cores.groups(2, 1)
    assert compare_ops.run(todo, workers, out, time.monotonic() + 60, 5, show=None, cpus=cpus) == 4
    assert [len(w.asked) for w in workers] == [2, 2] and sorted(sum((w.asked for w in workers), [])) == sorted(c["op"] + c["varied"] for _, c in todo)
    rows = compare_ops.read_lines(out)
    assert {r["key"] for r in rows} == {key for key, _ in todo} and not compare_ops.pending([c for _, c in todo], rows, "cpu")
    assert {tuple(r["cpus"]) for r in rows} == {tuple(sorted(c)) for c in cpus} and os.sched_getaffinity(0) == before


def test_an_error_of_one_worker_ends_the_run(tmp_path):
    class Broken(Answers):
        def ask(self, one, limit):
            raise RuntimeError("broken")

    class Slow(Answers):
        def ask(self, one, limit):
            time.sleep(0.05)
            return super().ask(one, limit)

    todo = compare_ops.pending([case("relu", str(i)) for i in range(2000)], [], "cpu")
    slow = Slow()
    with pytest.raises(RuntimeError, match="broken"):
        compare_ops.run(todo, [Broken(), slow], tmp_path / "results.jsonl", time.monotonic() + 60, 5, show=None)
    assert len(slow.asked) < 200


def test_processors_of_a_core_stay_together():
    pairs = lambda cpu: {cpu - cpu % 2, cpu - cpu % 2 + 1}  # noqa: E731
    far = lambda cpu: {cpu % 4, cpu % 4 + 4}  # noqa: E731
    assert cores.groups(3, 1, range(8), pairs) == [{0}, {2}, {4}] and cores.groups(2, 2, range(8), far) == [{0, 1}, {2, 3}]
    assert cores.groups(5, 1, range(8), pairs) == [{0}, {2}, {4}, {6}, {1}]
    assert cores.groups(2, 1, {1, 5, 6}, far) == [{1}, {6}]
    with pytest.raises(ValueError, match="3 workers with 2 processors each, of 4"):
        cores.groups(3, 2, range(4), pairs)


def scripted(text):
    worker = compare_ops.Worker([])
    worker.command = [sys.executable, "-c", "print('\"ready\"', flush=True)\n" + text]
    return worker


def test_a_case_that_hangs_or_crashes_is_a_row():
    hangs = scripted("import json, time\nprint(json.dumps('Strata'), flush=True)\ntime.sleep(60)")
    assert hangs.ask(case("relu"), 1.0) == [{"problem": "took more than 1 s: Strata"}]
    crashes = scripted("import os, json, signal\ninput()\nprint(json.dumps('PyTorch'), flush=True)\nos.kill(os.getpid(), signal.SIGKILL)")  # which no sanitizer catches
    assert crashes.ask(case("relu"), 20) == [{"problem": "ended the process: SIGKILL: PyTorch"}]
    poisoned = scripted("import json\nfor line in iter(input, ''):\n print(json.dumps([{'problem': 'PyTorch refuses: CUDA error: assert'}]), flush=True)")
    assert "CUDA error" in poisoned.ask(case("relu"), 20)[0]["problem"] and poisoned.process is None  # the next case gets a new process
    absent = scripted("")
    absent.command = [sys.executable, "-c", "raise SystemExit(3)"]
    assert "starting" in absent.ask(case("relu"), 20)[0]["problem"]
    answers = scripted("import json\nfor line in iter(input, ''):\n"
                       " print(json.dumps('x'))\n print(json.dumps([{'op': json.loads(line)['op']}]), flush=True)")
    try:
        assert [answers.ask(case(op), 20) for op in ("relu", "sum")] == [[{"op": "relu"}], [{"op": "sum"}]]
    finally:
        answers.stop()


def row(op, ours, theirs, **more):
    return {"key": op, "op": op, "size": "middle", "dtype": "f32", "varied": "", "arguments": "f32[4]", "pass": "forward",
            "ours": ours, "theirs": theirs, **more}


def test_the_page_ranks_by_time_lost_and_counts_what_was_left_out():
    rows = [row("fast", 1e-6, 4e-6), row("much", 3e-3, 2e-3), row("often", 4e-6, 1e-6), row("other", 1e-3, 1e-6, different="shape"),
            {"key": "n", "op": "none", "missing": True}, {"key": "p", "op": "p", "problem": "PyTorch refuses: TypeError: x"}]
    table, slow = compare_ops.ranked(rows, 10)
    assert slow == 2 and table.index("| much") < table.index("| often")
    assert "fast" not in table and "other" not in table
    # (4 * 2/3 * 1/4)^(1/3)
    assert "| forward | 3 | 0.87 | 33.3% | 33.3% | 33.3% | 0.250 |" in compare_ops.summary(rows)
    page = compare_ops.page(rows, 10, "")
    assert "PyTorch has no function of that name: 1 cases of 1 ops: none" in page
    assert "PyTorch refuses: 1 cases of 1 ops: p" in page and "results differ in shape or dtype: 1 cases of 1 ops: other" in page
    rows[1]["varied"] = "reduction=sum"
    varied = compare_ops.by_variation(rows)
    assert "| an option | forward | 1 | 0.67 | 0% | 100% |" in varied and "| size: middle | forward | 2 | 1.00 | 50% | 50% |" in varied
    worst = compare_ops.worst_by_op(rows)
    assert worst.index("| much") < worst.index("| often") and "| fast" not in worst


def test_arguments_of_a_schema():
    parsed = torch_peer.arguments('f(Tensor x, int[] dims=[0, 1], str reduction="mean", RngKey? key=None) -> (Tensor a, Tensor b)')
    assert [p[0] for p in parsed] == ["x", "dims", "reduction", "key"] and parsed[1][2] == "[0, 1]"


@pytest.mark.skipif(not STRATA, reason="STRATA_COMMAND names no strata command")
def test_beside_pytorch(tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed: nothing to compare with")
    out, page = tmp_path / "results.jsonl", tmp_path / "page.md"
    command = [sys.executable, str(ROOT / "bench" / "compare_ops.py"), "softmax", "lstm", "dropout", "gather", "swiglu", "--strata", STRATA,
               "--out", str(out), "--seconds", "0.001", "--threads", "1", "--only", "^small|=bf16|every_second|reduction"]
    done = subprocess.run([*command, "--table", str(page)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = compare_ops.read_lines(out)
    rows = [r for r in lines if "run" not in r]
    assert len(lines) == len(rows) + 1 and "softmax lstm" in lines[0]["run"]["command"]
    assert not [r for r in rows if "problem" in r], [r for r in rows if "problem" in r]
    assert not [r for r in rows if r.get("different") or r.get("differs")], rows
    passes = {(r["op"], r.get("pass")) for r in rows}
    assert {(op, p) for op in ("softmax", "lstm", "dropout", "gather") for p in ("forward", "training")} <= passes
    assert ("swiglu", None) in passes and all(r.get("missing") for r in rows if r["op"] == "swiglu")
    assert all(r["ours"] > 0 and r["theirs"] > 0 for r in rows if not r.get("missing"))
    assert "geometric mean" in page.read_text() and "swiglu" in page.read_text()
    again = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0 and compare_ops.read_lines(out) == lines
    unknown = subprocess.run([*command[:2], "sofmax", "--strata", STRATA, "--out", str(out)], capture_output=True, text=True, timeout=60)
    assert unknown.returncode != 0 and "did you mean 'softmax'" in unknown.stderr


def test_a_wrong_result_is_marked():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: nothing to compare with")
    import compare_worker
    import strata as st

    x = torch.randn(16, 16)
    kind, values = compare_worker.compared(st.from_dlpack(x), x, 1)
    assert not kind and not values
    assert compare_worker.compared(st.from_dlpack(x), x + 1, 1)[1]
    assert compare_worker.compared(st.from_dlpack(x), x.double(), 1)[0]
    assert compare_worker.compared(st.from_dlpack(x), x[:4], 1)[0]


def test_contents_and_layouts():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: nothing to compare with")
    import compare_worker

    g = torch.Generator().manual_seed(1)
    spec = {"dtype": "i64", "shape": [3, 9], "values": {"kind": "ascending", "low": 0, "high": 20}}
    t = compare_worker.filled(spec, g)
    assert t[:, 0].eq(0).all() and t[:, -1].eq(20).all() and (t.diff(dim=1) >= 0).all()
    spec = {"dtype": "f64", "shape": [2, 32, 32], "values": {"kind": "positive", "low": 0, "high": 1}}
    torch.linalg.cholesky(compare_worker.filled(spec, g))
    spec = {"dtype": "i64", "shape": [3, 4, 5], "values": {"kind": "spread", "low": 0, "high": 41, "dims": 2}}
    t = compare_worker.filled(spec, g).flatten(1)
    assert (t.diff(dim=1) > 0).all() and torch.equal(t // 2, torch.arange(20).expand(3, 20))
    x = torch.arange(48.0).reshape(2, 3, 2, 4)
    for layout in ("contiguous", "transposed", "every_second", "channels_last"):
        y = compare_worker.laid_out(x, layout)
        assert torch.equal(x, y) and (y.is_contiguous() == (layout == "contiguous")), layout


def test_pytorch_is_asked_as_its_users_ask():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: nothing to compare with")

    def called(op, **values):
        given = torch_peer.ADAPTED[op](torch, values) if op in torch_peer.ADAPTED else list(values.values())
        given, named = given if isinstance(given, tuple) else (given, {})
        return torch_peer.peer(torch, op)(*given, **named)

    x = torch.arange(12.0).reshape(3, 4)
    at = torch.tensor([2, 0])
    assert torch.equal(called("index", x=x, indices=[None, at]), x[:, at])
    put = called("index_put", x=x, indices=[None, at], values=torch.zeros(3, 2), accumulate=False)
    assert put[:, at].eq(0).all() and torch.equal(put[:, 1], x[:, 1])
    layer = torch.nn.GRU(4, 5)
    one = torch.randn(6, 4)
    want, state = layer(one)
    got, ours = called("gru", input=one, hx=None, params=layer._flat_weights, has_biases=True, num_layers=1, dropout=0.0, train=False,
                       bidirectional=False, batch_first=False, batch_sizes=None)
    assert torch.equal(got, want) and torch.equal(ours, state)
