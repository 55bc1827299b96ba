"""bench/why_slow.py without a card: what it reads of ncu's output and makes of it."""

import argparse
import ast
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[3] / "bench"
sys.path.insert(0, str(BENCH))
import why_slow  # noqa: E402
import why_slow_work  # noqa: E402

COLUMNS = ["ID", "Process Name", "Kernel Name", "dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum",
           "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
           "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
           "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio"]
BACKWARD = ("void strata::attention_cuda::hopper::<unnamed>::backward_hopper_kernel<strata::BFloat16, (int)128>(strata::Call, float *)")
SEPARATOR = ("void at::native::vectorized_elementwise_kernel<(int)4, at::native::nextafter_kernel_cuda(at::TensorIteratorBase &)::"
             "[lambda() (instance 1)], std::array<char *, (unsigned long)3>>(int, T2, T3)")
PRODUCT = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT"


def _output(*kernels):
    rows = [["", "", "", "byte", "byte", "ns", "%", "inst", "inst"], *([str(i), "python", *row] for i, row in enumerate(kernels))]
    lines = ["==PROF== Connected to process 7", *(",".join(f'"{cell}"' for cell in row) for row in [COLUMNS, *rows])]
    return "\n".join([*lines, "==PROF== Disconnected", ""])


@pytest.fixture
def kernels():
    between = [SEPARATOR, "8", "4", "1,000", "n/a", "0", "0"]
    return why_slow.read_kernels(_output([BACKWARD, "12,000,000", "4,000,000", "2,000,000", "61.5", "0.25", "3.5"], between,
                                         [PRODUCT, "1,000", "1,000", "4,000", "90", "0", "1"], between))


def test_counters_are_numbers_and_units_are_no_kernel(kernels):
    assert len(kernels) == 4
    assert kernels[0]["dram__bytes_read.sum"] == 12e6 and kernels[0]["gpu__time_duration.sum"] == 2e6
    assert kernels[1][why_slow.SHARES["tensor"]] is None
    assert why_slow.read_kernels("==ERROR== no kernels were profiled\n") == []


def test_separating_kernels_end_parts(kernels):
    parts = why_slow.divided(kernels, 2)
    assert [[why_slow.short(k["Kernel Name"]) for k in part] for part in parts] == [["hopper::backward_hopper_kernel"], [PRODUCT]]
    assert why_slow.divided(kernels[:1], 1) == [kernels[:1]]
    with pytest.raises(ValueError, match="2 parts were recorded, 3 were expected"):
        why_slow.divided(kernels, 3)


@pytest.mark.parametrize("kernel, kind", [
    (BACKWARD, "attention"), (PRODUCT, "products"), (SEPARATOR, "elementwise"), ("triton_poi_fused_add_gelu_7", "elementwise"),
    ("triton_red_fused_native_layer_norm_3", "norms, sums, softmax"), ("strata::conv_cuda::boxes_kernel<1>(int)", "convolutions"),
    ("sm90_xmma_wgrad_implicit_gemm_bf16", "convolutions"), ("strata::optim::update_kernel<4>(float)", "optimizer"),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop", "attention"), ("some_kernel", "rest")])
def test_kinds_of_kernels(kernel, kind):
    assert why_slow.kind_of(kernel) == kind


def test_tables_say_time_bytes_and_what_warps_wait_for(kernels):
    first, second = why_slow.divided(kernels, 2)
    table = why_slow.table_of_calls("case", {"Strata": {"backward": first, "product": second}})
    assert "| backward | Strata | 1 | 2000.0 | 16.0 |" in table
    row = next(line for line in table.splitlines() if "backward_hopper_kernel" in line)
    assert "| 2000.0 | 100% | 16.0 | 8 |" in row and "62%" in row and "gmma 3.5, barrier 0.2 |" in row
    step = why_slow.table_of_step("program", {"Strata": (2.5, kernels)})
    assert "| Strata | 2.50 | 2.01 | 4 | 0.02 | 2.00 (0.02) |" in step
    without = why_slow.table_of_step("program", {"Strata": (2.5, []), "PyTorch": (None, kernels)})
    assert "| Strata | 2.50 | - | - | - | -" in without and "| PyTorch | - | 2.01 | 4 | 0.02 | 2.00 (0.02) |" in without


def _steps(monkeypatch, kernels, recorded, left=lambda: 100.0):
    """What `steps` writes of one program, and the parts it asked for, in their order; `recorded` stands for ncu."""
    written, asked = [], []
    monkeypatch.setattr(why_slow, "alone", lambda program, engine, args, limit: asked.append((engine, "step")) or 2.5)
    monkeypatch.setattr(why_slow, "host_of", lambda work, limit: asked.append((work[2], "host")) or {
        "step_s": 0.003, "rows": [(0.001, 2, "dqn.py:7 train")]})
    monkeypatch.setattr(why_slow, "recorded", lambda work, *_: (recorded(work, kernels), {}))
    args = argparse.Namespace(engines=["strata", "torch"], compile=True, host=True, names=["dqn"], size="card", set=[])
    try:
        why_slow.look_at_steps(args, written.append, left)
    except SystemExit:
        written.append("ended")
    return written, asked


def test_a_part_of_a_step_that_is_not_done_in_time_takes_no_other_away(monkeypatch, kernels):
    def recorded(work, kernels):
        if "--compile" in work:
            raise subprocess.TimeoutExpired("ncu", 30)
        return kernels

    written, asked = _steps(monkeypatch, kernels, recorded)
    assert written[0] == "dqn, PyTorch compiled, kernels: not done within 30 s"
    table = written[1].splitlines()
    assert [line.split(" | ")[:3] for line in table if line.startswith(("| Strata | 2", "| PyTorch"))][:3] == [
        ["| Strata", "2.50", "2.01"], ["| PyTorch", "2.50", "2.01"], ["| PyTorch compiled", "2.50", "-"]]
    assert "| PyTorch compiled | 3.00 | 2.0 | 1.000 | `dqn.py:7 train` |" in written[2]
    assert asked[:2] == [("strata", "step"), ("strata", "host")]


def test_steps_that_are_ended_from_outside_write_what_they_have(monkeypatch, kernels):
    def recorded(work, kernels):
        if work[3] == "torch":
            sys.exit("ended from outside")
        return kernels

    written, _ = _steps(monkeypatch, kernels, recorded)
    assert "| Strata | 2.50 | 2.01 |" in written[0] and "| PyTorch | 2.50 | - |" in written[0]
    assert written[-1] == "ended" and len(written) == 3


def test_parts_for_which_no_time_is_left_are_named(monkeypatch, kernels):
    time_left = iter([9.0, 0.0, 0.0])
    written, asked = _steps(monkeypatch, kernels, lambda work, kernels: kernels, lambda: next(time_left, 0.0))
    assert asked == [("strata", "step")]
    assert written[:2] == ["dqn, Strata, Python's time: not begun, the time was used up", "dqn, Strata, kernels: not begun, the time was used up"]
    assert "| Strata | 2.50 | - |" in written[-1]


def test_what_is_not_done_in_time_ends_with_what_it_started(tmp_path):
    said = tmp_path / "pid"
    with pytest.raises(subprocess.TimeoutExpired):
        why_slow.done_by(["sh", "-c", f"sleep 600 & echo $! > {said}; wait"], 1)
    child = pathlib.Path("/proc") / said.read_text().strip() / "stat"
    for _ in range(200):  # killed; whoever inherits it fetches it soon
        if not child.exists() or child.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the process that the command started is still there")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Four cards, of which one is at work, and a `strata` that has trained. Returns a function from arguments to the page."""
    def program(name, text):
        path = tmp_path / name
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(0o755)
        return path

    program("nvidia-smi", """import pathlib, sys, time
if "-lms" not in sys.argv:
    print("\\n".join(["NVIDIA H200"] * 4))
else:
    print("100, 1980, 0, Not Active\\n690, 1400, 100, Active", flush=True)
    pathlib.Path(__file__).with_name("sampled").touch()
    time.sleep(600)
""")
    strata = program("strata", """import json, pathlib, sys, time
while not pathlib.Path(__file__).with_name("sampled").exists():
    time.sleep(0.01)
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
out.mkdir()
out.joinpath("metrics.jsonl").write_text("".join(json.dumps({"tokens_per_s": 500.0 + i}) + "\\n" for i in range(4)))
print("op  ms")
""")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    before = signal.getsignal(signal.SIGTERM)

    def page(*arguments):
        out = tmp_path / "page.md"
        monkeypatch.setattr(sys, "argv", ["why_slow.py", *arguments, "--strata", str(strata), "--out", str(out)])
        try:
            why_slow.main()
        except SystemExit as e:
            assert e.code == "why_slow.py: ended from outside"
        return out.read_text()

    yield page
    signal.signal(signal.SIGTERM, before)


def test_training_is_looked_at_by_its_own_arguments(machine):
    """compare_training.py, of which it has the configurations, read them as its own and ended the program."""
    page = machine("train", "gpt2-124m-padded")
    assert "Command: `bench/why_slow.py train gpt2-124m-padded --strata strata --out page.md`, NVIDIA H200, one of 4\n" in page
    captured, profiled = page.split("### gpt2-124m-padded, ")[1:]
    assert captured.startswith("captured\n\n502 tokens/s, ")
    assert "690 W, 1400 MHz; power holds the clock in 100% of them" in captured
    assert profiled.startswith("op by op, profiled") and "```\nop  ms\n```" in profiled


def test_who_ends_the_program_finds_what_it_had(machine, monkeypatch):
    monkeypatch.setattr(why_slow, "alone", lambda *_: 2.5)
    monkeypatch.setattr(why_slow, "recorded", lambda *_: os.kill(os.getpid(), signal.SIGTERM) or time.sleep(600))
    assert "| Strata | 2.50 | - |" in machine("steps", "dqn")


@pytest.mark.parametrize("name", ["3x3 512-512 7", "3x3/2 128-128 56"])
def test_convolutions_have_each_gradient_alone(monkeypatch, name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: nothing to look at")
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
    monkeypatch.setattr(why_slow_work, "DEVICE", "cpu")
    images, in_, out, plane, kernel, stride = 2, 8, 4, 7, 3, 2 if "/2" in name else 1
    case = why_slow_work.convolution(images, in_, out, plane, kernel, stride)
    assert why_slow_work.CASES[name].__code__ is case.__code__
    moved = []
    parts = case(torch, lambda x: moved.append(x) or x)
    assert list(parts) == ["forward", "input", "weight"]
    x, w, g = (m.detach().double() for m in moved)
    x.requires_grad_(), w.requires_grad_()
    y = torch.nn.functional.conv2d(x, w, stride=stride, padding=1)
    for_x, for_w = torch.autograd.grad(y, (x, w), g)
    for _ in range(2):  # a part runs more than once
        assert not parts["forward"]().requires_grad
        for part, expected in (("input", for_x), ("weight", for_w)):
            (found,) = parts[part]()
            torch.testing.assert_close(found.double(), expected, rtol=0.02, atol=0.2)


def _imports(path):
    """The modules that a script imports when it begins, in that order."""
    tree = ast.parse(path.read_text())
    nodes = [inner for node in tree.body for inner in ([node, *node.body] if isinstance(node, (ast.If, ast.Try)) else [node])]
    names = [[alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
             for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
    return [name.split(".")[0] for group in names for name in group]


def test_scripts_with_both_engines_load_pytorch_first():
    """docs/design/no-slow-paths.md, at the end."""
    both = {path.name: _imports(path) for path in sorted([*BENCH.glob("*.py"), *BENCH.glob("pytorch/*.py")])}
    both = {name: found for name, found in both.items() if {"torch", "strata"} <= set(found)}
    assert {"attention_options.py", "sequence_steps.py", "graphed_step.py", "compare_worker.py"} <= set(both)
    assert [name for name, found in both.items() if found.index("torch") > found.index("strata")] == []


def test_the_slowest_case_of_each_op_is_looked_at(kernels):
    cases = [{"op": op, "size": size, "dtype": "f32", "varied": "", "label": "", "args": [{"tensor": {"dtype": "f32", "shape": shape}}]}
             for op, size, shape in (("log", "large", [4]), ("log", "small", [2]), ("sin", "large", [4]), ("cos", "large", [4]))]
    row = lambda case, ours, theirs, **more: {"key": why_slow.key_of(case, "cuda"), "op": case["op"], "arguments": "f32[4]", "pass": "forward",
                                              "ours": ours, "theirs": theirs, **more}
    rows = [row(cases[0], 30e-6, 20e-6), row(cases[1], 9e-6, 1e-6), row(cases[2], 90e-6, 40e-6, inputs=2), row(cases[3], 10e-6, 9.5e-6),
            row(cases[3], 30e-6, 9e-6, different="dtype")]
    rows[2]["pass"] = "training"
    lines = why_slow.slowest_cases(rows, [{"about": "no case"}, *cases], 0.9)
    assert [(line["case"]["op"], line["case"]["size"], line["pass"], line["inputs"]) for line in lines] == [
        ("sin", "large", "training", 2), ("log", "large", "forward", 1)]
    table = why_slow.table_of_rows(lines, {"Strata": [kernels[:3], kernels[2:3]], "PyTorch": [[], "ValueError: no"]}).splitlines()
    assert len({line.count("|") for line in table}) == 1
    assert "| sin | training | f32[4] | 0.44 | Strata | 90.0 | 3 | 2005.0 |" in table[2] and "backward_hopper_kernel | 2000.0 |" in table[2]
    assert "| sin | training | f32[4] | 0.44 | PyTorch | 40.0 | none |" in table[3]
    assert "| log | forward | f32[4] | 0.67 | PyTorch | 20.0 | ValueError: no |" in table[5]


def test_calls_in_a_row_stand_beside_calls_after_a_rest(monkeypatch):
    said = {"strata": '{"parts": ["forward"], "apart": 3.385, "in_a_row": 3.957}', "torch": "no JSON"}
    monkeypatch.setattr(why_slow, "done_by", lambda command, limit: (0, "warning\n" + said[command[command.index("--engine") + 1]] + "\n", ""))

    class Card:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def summary(self):
            return "30 samples at work: 690 W, 1600 MHz"

    monkeypatch.setattr(why_slow, "CardState", Card)
    written = []
    why_slow.look_at_row(argparse.Namespace(names=["forward", "attention D 128"], engines=["strata", "torch"]), written.append, lambda: 9.0)
    assert written[0].startswith("attention D 128, PyTorch: ")
    assert written[1].splitlines()[2:] == ["| attention D 128 | Strata | 3.3850 | 3.9570 | 30 samples at work: 690 W, 1600 MHz |"]
