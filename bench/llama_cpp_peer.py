"""llama.cpp (PyPI's llama-cpp-python) as the peer of pretrained_cuda.py, in a process of its own: what it does not take may end it."""
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def llama_cpp(gguf, repack):
    """Tokens a second that llama.cpp reads, of 512, and writes after them; it may put the weights into an order of its own (`repack`)."""
    code = """
import ctypes, os, sys, time
import llama_cpp.llama_cpp as L
L.llama_backend_init()
m = L.llama_model_default_params(); m.n_gpu_layers, m.use_extra_bufts = 0, bool(int(sys.argv[2]))
model = L.llama_model_load_from_file(sys.argv[1].encode(), m)
c = L.llama_context_default_params(); c.n_ctx = 2048; c.n_batch = c.n_ubatch = 512
c.n_threads = c.n_threads_batch = len(os.sched_getaffinity(0))
context = L.llama_init_from_model(model, c)
def read(n):
    tokens = (L.llama_token * n)(*range(5, 5 + n))
    begin = time.perf_counter()
    assert L.llama_decode(context, L.llama_batch_get_one(tokens, n)) == 0
    L.llama_synchronize(context)
    return time.perf_counter() - begin
read(16)
prefill = min(read(512) for _ in range(2))
steps = sorted(read(1) for _ in range(64))
print(512 / prefill, 1 / steps[32])
"""
    # A library that was built elsewhere and brought here.
    brought = HERE.parent / "build/llama_cpp"
    env = os.environ | ({"PYTHONPATH": f"{brought}:{os.environ.get('PYTHONPATH', '')}"} if brought.exists() else {})
    done = subprocess.run([sys.executable, "-c", code, str(gguf), str(int(repack))], capture_output=True, text=True, env=env)
    if done.returncode:  # its log is long and tells in its middle what is wrong; a signal has a negative status
        wrong = [line for line in done.stderr.splitlines() if "error" in line.lower() or "assert" in line.lower() or "fail" in line.lower()]
        raise RuntimeError(f"exit status {done.returncode}: {' / '.join(wrong)[-600:] or done.stderr.strip()[-300:]}")
    read, written = map(float, done.stdout.split()[-2:])
    return read, written, "of 512"
