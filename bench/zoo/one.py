"""Runs zoo programs with one engine, in this process: `torch` is PyTorch, or strata where --engine says so.

    python bench/zoo/one.py gpt2 vae --engine strata --size tiny --losses 6
    python bench/zoo/one.py gpt2 --engine torch --size cpu --seconds 10 --losses 6 --weights /tmp/w

Prints one line of JSON a program: times of its steps, memory, and its losses (see docs/design/zoo.md)."""

import argparse
import ast
import contextlib
import gc
import importlib.util
import json
import pathlib
import sys
import time
import traceback
import types
import warnings

import numpy as np

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"


def names():
    return sorted(path.stem for path in PROGRAMS.glob("*.py"))


def load(name):
    spec = importlib.util.spec_from_file_location(f"zoo_{name}", PROGRAMS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # compilers look a function's module up
    spec.loader.exec_module(module)
    return module


class Weights:
    """What the programs call as `prepare`. The first process writes the weights that its engine drew, later ones copy
    them."""

    def __init__(self, folder, name, compiled=False, nudged=False):
        self.folder = folder and pathlib.Path(folder) / name
        self.compiled = compiled
        self.nudged = nudged  # by the last bit, to see what rounding alone does to the losses
        self.count = 0
        self.models = []

    def __call__(self, model):
        import torch

        if self.folder:
            path = self.folder / f"{self.count}.npz"
            state = model.state_dict()
            if path.exists():
                with np.load(path) as saved:
                    model.load_state_dict({key: torch.from_numpy(saved[key].copy()) for key in saved.files})
            else:
                self.folder.mkdir(parents=True, exist_ok=True)
                np.savez(path, **{key: value.detach().cpu().numpy() for key, value in state.items()})
        if self.nudged:
            rng = np.random.default_rng(self.count)
            with torch.no_grad():
                for p in model.parameters():
                    sign = torch.from_numpy(rng.choice([-1.0, 1.0], tuple(p.shape)).astype(np.float32))
                    p.mul_(1 + 2**-23 * sign.to(p.device))
        self.count += 1
        self.models.append(model)
        return torch.compile(model) if self.compiled else model

    def without_dropout(self):
        for model in self.models:
            for part in model.modules():
                for key in ("p", "dropout", "drop_prob"):
                    if isinstance(getattr(part, key, None), float) and (key != "p" or "Drop" in type(part).__name__):
                        setattr(part, key, 0.0)


@contextlib.contextmanager
def same_draws(seed):
    """Random functions by which programs draw give NumPy's numbers, which are the same for both engines."""
    import torch
    from torch.distributions import Categorical

    rng = np.random.default_rng(seed)

    def put(value, like=None, device=None, dtype=None, **_):
        given = torch.from_numpy(np.asarray(value))
        if like is not None:
            device, dtype = like.device, dtype or like.dtype
        return given.to(device=device, dtype=dtype or given.dtype)

    def shape(size):
        return tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size

    def floats(draw):
        return lambda *size, **more: put(draw(size=shape(size)).astype(np.float32), **more)

    def like(draw):
        return lambda x, **more: put(draw(size=tuple(x.shape)).astype(np.float32), like=x, **more)

    def randint(low, high, size=None, **more):
        low, high, size = (0, low, high) if size is None else (low, high, size)
        return put(rng.integers(low, high, size=tuple(size)), **more)

    def pick(p, count, replacement=False):
        p = p.detach().cpu().double().numpy()
        if replacement:  # where uniform numbers fall among the running sums
            sums = np.cumsum(p.reshape(-1, p.shape[-1]), -1)
            found = [np.searchsorted(row[:-1], rng.random(count) * row[-1], side="right") for row in sums]
            return np.stack(found).reshape(*p.shape[:-1], count)
        return np.argsort(-(np.log(p + 1e-300) + rng.gumbel(size=p.shape)), -1)[..., :count]

    def sample(self, sample_shape=()):
        assert not tuple(sample_shape)
        return put(pick(self.probs, 1)[..., 0], device=self.probs.device)

    made = {
        "randn": floats(rng.standard_normal), "rand": floats(rng.random), "randn_like": like(rng.standard_normal),
        "rand_like": like(rng.random), "randint": randint,
        "randperm": lambda n, **more: put(rng.permutation(n), **more),
        "bernoulli": lambda p: put(rng.random(tuple(p.shape)) < p.detach().cpu().numpy(), like=p),
        "multinomial": lambda p, count, replacement=False: put(pick(p, count, replacement), device=p.device),
    }
    kept = {key: getattr(torch, key) for key in made}
    kept_sample = Categorical.sample
    try:
        for key, function in made.items():
            setattr(torch, key, function)
        Categorical.sample = sample
        yield
    finally:
        for key, function in kept.items():
            setattr(torch, key, function)
        Categorical.sample = kept_sample


def rss(field):
    """Resident bytes now (VmRSS) or at most since `reset` (VmHWM)."""
    for line in open("/proc/self/status"):
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


class Memory:
    """Peak bytes since it was made: the allocator's on a card, the process's growth on the CPU."""

    def __init__(self, device):
        import torch

        self.cuda = device.type == "cuda" and torch.cuda
        gc.collect()
        if self.cuda:
            self.cuda.reset_peak_memory_stats()
        else:
            with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
                file.write("5")
            self.before = rss("VmRSS")

    def peak(self):
        return self.cuda.max_memory_allocated() if self.cuda else rss("VmHWM") - self.before


def steps_of(module, size, device, seed, prepare):
    """The program's training, which hands out a loss a step."""
    import torch

    torch.manual_seed(seed)
    config = types.SimpleNamespace(**module.SIZES[size])
    return iter(module.train(config, np.random.default_rng(seed), device, prepare))


def change(module, name, settings):
    """Sets numbers of a program's sizes: convnext.batch=256."""
    for setting in settings:
        key, value = setting.split("=", 1)
        program, key = key.split(".", 1)
        if program != name:
            continue
        for size in module.SIZES.values():
            if key not in size:
                raise ValueError(f"{name} has no size {key}, but {', '.join(size)}")
            size[key] = ast.literal_eval(value)


def turn(args, what):
    """Says what turns.py wants to hear, and waits until this process alone is at work."""
    if args.wait_for_turn:
        print(what, flush=True)
        if what == "ready":
            sys.stdin.readline()


def timed(module, args, device, result):
    """Times of steps for about --seconds; on a card of groups of steps, at whose end alone the device is waited for."""
    import torch

    def wait(loss):
        return float(loss.detach())  # waits for the device, as printing the loss does

    # Strata's turn begins with its first step, whose search of algorithms is a measurement; PyTorch compiles before its turn.
    if args.engine == "strata":
        turn(args, "ready")
    memory = Memory(device)
    start = time.perf_counter()
    training = steps_of(module, args.size, device, args.seed, Weights(None, "", args.compile))
    wait(next(training))
    result["first_s"] = time.perf_counter() - start
    for _ in range(2):
        wait(next(training))
    if args.engine != "strata":
        turn(args, "ready")
        wait(next(training))
    group = 5 if device.type == "cuda" else 1
    clock = time.process_time if args.clock == "cpu" else time.perf_counter
    times = []
    end = time.perf_counter() + args.seconds
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 200):
        start = clock()
        for _ in range(group):
            loss = next(training)
        last = wait(loss)
        times.append((clock() - start) / group)
    turn(args, "timed")
    result["times_s"] = [round(t, 7) for t in times]
    result["peak_bytes"] = memory.peak()
    result["last_loss"] = last
    training.close()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def run(name, args):
    import torch

    result = {"program": name, "engine": args.engine, "size": args.size, "device": args.device,
              "compiled": args.compile}
    device = torch.device(args.device)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            module = load(name)
            change(module, name, args.set)
            if args.seconds:
                timed(module, args, device, result)
            if args.losses:
                result["losses"] = losses_of(module, args, device, Weights(args.weights, name))
            if args.losses and args.noise:
                result["nudged"] = losses_of(module, args, device, Weights(args.weights, name, nudged=True))
        result["warnings"] = sorted({f"{w.category.__name__}: {str(w.message).splitlines()[0][:160]}" for w in warned})
        result["tolerance"] = getattr(module, "TOLERANCE", 2e-4)
        result["falls"] = getattr(module, "FALLS", True)
    except Exception as error:
        result["error"] = f"{type(error).__name__}: {error}"[:500]
        result["trace"] = traceback.format_exc()[-3000:]
    return result


def losses_of(module, args, device, weights):
    """Losses of the first steps with draws that are NumPy's, without dropout, of which each engine has its own."""

    def prepare(model):
        model = weights(model)
        weights.without_dropout()
        return model

    with same_draws(args.seed):
        training = steps_of(module, args.size, device, args.seed, prepare)
        losses = [float(next(training).detach()) for _ in range(args.losses)]
        training.close()
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", default=[])
    parser.add_argument("--engine", choices=("strata", "torch"), default="strata")
    parser.add_argument("--size", choices=("tiny", "cpu", "card"), default="tiny")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", nargs="*", default=[], metavar="PROGRAM.KEY=VALUE",
                        help="another number in a program's size: convnext.batch=256")
    parser.add_argument("--compile", action="store_true", help="torch.compile the models while timing")
    parser.add_argument("--seconds", type=float, default=0, help="how long to time steps; 0: not at all")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall",
                        help="cpu: time that this process computed, for a shared machine, with --threads 1")
    parser.add_argument("--losses", type=int, default=0, help="steps whose losses are to be compared; 0: none")
    parser.add_argument("--noise", action="store_true", help="the losses again, from weights changed by their last bit")
    parser.add_argument("--weights", help="folder with the first weights; written where they are not there yet")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--wait-for-turn", action="store_true", help="before timing, as turns.py says; for run.py")
    parser.add_argument("--profile", action="store_true", help="the engine's profiler over five steps, as a table")
    args = parser.parse_args()
    if args.engine == "strata":
        import strata.torch

        strata.torch.install()
    import torch

    if args.threads:
        torch.set_num_threads(args.threads)
    for name in args.programs or names():
        if args.profile:
            profile(name, args)
        else:
            print(json.dumps(run(name, args)), flush=True)


def profile(name, args):
    import torch
    from torch.profiler import ProfilerActivity

    device = torch.device(args.device)
    module = load(name)
    change(module, name, args.set)
    training = steps_of(module, args.size, device, args.seed, Weights(None, "", args.compile))
    for _ in range(3):
        next(training)
    kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    with torch.profiler.profile(activities=kinds) as profiler:
        for _ in range(5):
            float(next(training).detach())
    by = "self_cuda_time_total" if device.type == "cuda" else "self_cpu_time_total"
    print(name, args.engine, profiler.key_averages().table(sort_by=by, row_limit=18), sep="\n")


if __name__ == "__main__":
    main()
