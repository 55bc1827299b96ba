#!/usr/bin/env python3
"""Training steps of small networks, recurrent layers and elementwise ops on the CPU, one engine a process; the same lines of
both are compared. Usage: cpu_layers.py torch|strata networks|recurrent|elementwise [threads [part of a name [profile]]]. One thread is
timed by what the process computed, several by the clock. With `profile` the ops of five more steps of a network by their own time."""
import importlib
import sys
import time

import numpy as np

torch = importlib.import_module(sys.argv[1])
threads = int(sys.argv[3]) if len(sys.argv) > 3 else 1
wanted = sys.argv[4] if len(sys.argv) > 4 else ""
profiled = sys.argv[5:6] == ["profile"]
torch.set_num_threads(threads)
torch.manual_seed(0)
nn, F = torch.nn, torch.nn.functional
clock = time.process_time if threads == 1 else time.perf_counter


def numbers(*shape):
    return torch.tensor(np.random.default_rng(0).standard_normal(shape, "float32"))


def timed(name, f, calls):
    """The least and the median of `calls` calls, in ms, after two that are not counted."""
    times = []
    for i in range(calls + 2):
        start = clock()
        f()
        times.append((clock() - start) * 1e3)
    times = sorted(times[2:])
    print(f"{name:44} least {times[0]:9.3f} ms, median {times[len(times) // 2]:9.3f}", flush=True)


class Block(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.a, self.norm_a = nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.b, self.norm_b = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.short = nn.Sequential()
        if stride != 1 or width != out:
            self.short = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return F.relu(self.norm_b(self.b(F.relu(self.norm_a(self.a(x))))) + self.short(x))


class SqueezedBlock(Block):
    """With squeeze and excitation: each channel times what the means of all say of it."""

    def __init__(self, width, out, stride):
        super().__init__(width, out, stride)
        self.squeeze, self.excite = nn.Conv2d(out, out // 16, 1), nn.Conv2d(out // 16, out, 1)

    def forward(self, x):
        y = self.norm_b(self.b(F.relu(self.norm_a(self.a(x)))))
        means = F.avg_pool2d(y, y.shape[2])
        return F.relu(y * torch.sigmoid(self.excite(F.relu(self.squeeze(means)))) + self.short(x))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.layer, self.head = nn.Embedding(1000, 256), nn.LSTM(256, 256, batch_first=True), nn.Linear(256, 1000)

    def forward(self, x):
        return self.head(self.layer(self.embedding(x))[0]).flatten(0, 1)


def resnet(block, sizes, pool):
    layers, width = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for out, stride in sizes:
        layers.append(block(width, out, stride))
        width = out
    return nn.Sequential(*layers, nn.AvgPool2d(pool), nn.Flatten(), nn.Linear(512, 10))


EIGHT = ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1))
FOUR = ((64, 1), (128, 2), (256, 2), (512, 2))


def vgg11():
    layers, width = [], 3
    for out in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        layers += [nn.Conv2d(width, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(True)] if out else [nn.MaxPool2d(2, 2)]
        width = out or width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))


def networks():
    classes, eight = (torch.tensor(np.random.default_rng(1).integers(0, 10, n)) for n in (32, 8))
    words = torch.tensor(np.random.default_rng(1).integers(0, 1000, (32, 64)))
    images, large = numbers(32, 3, 32, 32), numbers(8, 3, 96, 96)
    for name, net, x, y, low in (("ResNet18", lambda: resnet(Block, EIGHT, 4), images, classes, False),
                                 ("SENet18", lambda: resnet(SqueezedBlock, EIGHT, 4), images, classes, False),
                                 ("VGG11", vgg11, images, classes, False),
                                 ("LSTM language model", Lstm, words, words.flatten(), False),
                                 ("ResNet of four blocks, 8 x 96 x 96", lambda: resnet(Block, FOUR, 12), large, eight, False),
                                 ("the same in bf16", lambda: resnet(Block, FOUR, 12), large, eight, True)):
        if wanted not in name:
            continue
        net = net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

        def step():
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
                loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()

        timed(name, step, 8)
        if profiled:
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
                for _ in range(5):
                    step()
            print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=14), flush=True)


def recurrent():
    for batch, steps, width in ((32, 64, 256), (64, 128, 512)):
        x = numbers(batch, steps, width)
        for kind in ("LSTM", "GRU", "RNN"):
            layer = getattr(nn, kind)(width, width, batch_first=True)
            with torch.no_grad():
                timed(f"{kind} {batch} x {steps} x {width}, forward", lambda: layer(x), 6)
            timed(f"{kind} {batch} x {steps} x {width}, both ways", lambda: layer(x)[0].sum().backward(), 6)


def elementwise():
    for a, b in (((98304, 1), (98304, 8)), ((100000, 3), (3,)), ((8, 64, 1, 8), (8, 64, 192, 8)), ((32, 64, 4, 4), (64, 1, 1)),
                 ((4096, 40), (40,))):
        x, y = numbers(*a), numbers(*b)
        timed(f"{list(a)} * {list(b)}", lambda: x * y, 30)
    x, y, columns, images = numbers(8, 128, 256), numbers(8, 128, 256).flip(0), numbers(200000, 5)[:, :3], numbers(16, 24, 64, 64)
    mask, slopes, turned = x > 0, numbers(24), numbers(512, 512).t()
    linear, inputs = nn.Linear(512, 512), numbers(64, 512).requires_grad_()
    for name, f in {
        "exp of three of five columns": lambda: torch.exp(columns), "where": lambda: torch.where(mask, x, y),
        "x ** 3": lambda: x**3, "hardshrink": lambda: F.hardshrink(x), "prelu": lambda: F.prelu(images, slopes),
        "celu": lambda: F.celu(x), "threshold": lambda: F.threshold(x, 0.1, 0.0), "x % 0.7": lambda: x % 0.7,
        "x // 0.7": lambda: x // 0.7, "fmod": lambda: torch.fmod(x, y), "atan2": lambda: torch.atan2(x, y),
        "tan": lambda: torch.tan(x), "huber": lambda: F.huber_loss(x, y), "smooth L1": lambda: F.smooth_l1_loss(x, y),
        "max_pool1d": lambda: F.max_pool1d(x, 2), "half": lambda: x.half(), "int": lambda: x.int(), "flip": lambda: x.flip(-1),
        "relu of a transposed matrix": lambda: torch.relu(turned), "relu of transposed images": lambda: torch.relu(images.transpose(1, 3)),
        "reflecting pad": lambda: F.pad(images, (1, 1, 1, 1), mode="reflect"), "randn": lambda: torch.randn(8, 128, 256),
        "gradient of a linear layer's input": lambda: torch.autograd.grad(torch.tanh(linear(inputs)).sum(), inputs),
    }.items():
        timed(name, f, 20)


{"networks": networks, "recurrent": recurrent, "elementwise": elementwise}[sys.argv[2]]()
