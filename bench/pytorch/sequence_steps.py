#!/usr/bin/env python3
"""Steps of sequence models on a card: strata, PyTorch eager and, unless --no-compile, compiled, in turns in one process;
milliseconds, tokens/s and the ratio to strata's time.

    sequence_steps.py [--seconds S] [--filter TEXT] [--no-compile]

nn.TransformerEncoderLayer (512 wide, 8 heads, 32 x 512, bf16), forward and backward, with dropout 0.1 and 0; training of an
nn.TransformerEncoder of six such layers over a vocabulary of 10,000, and of a language model of two LSTM layers (64 x 256,
1024 wide, the same vocabulary): bf16 autocast over f32 weights, AdamW, an update a step."""
import argparse
import time

import torch  # before strata: see docs/design/no-slow-paths.md, at the end

import strata as st

VOCAB, DEVICE = 10000, "cuda"


def layer(lib, dropout):
    """Forward and backward of one layer."""
    net = lib.nn.TransformerEncoderLayer(512, 8, 2048, dropout=dropout, batch_first=True).to(DEVICE).to(lib.bfloat16)
    x, g = (lib.randn(32, 512, 512, device=DEVICE).to(lib.bfloat16) for _ in range(2))
    x.requires_grad_()

    def step(forward):
        net.zero_grad()
        x.grad = None
        y = forward(x)
        y.backward(g)

    return net, step


def encoder(lib):
    """Six encoder layers between an embedding and a head."""
    nn = lib.nn
    one = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.1, batch_first=True)
    return nn.Sequential(nn.Embedding(VOCAB, 512), nn.TransformerEncoder(one, 6, enable_nested_tensor=False), nn.Linear(512, VOCAB))


def recurrent(lib):
    """Two LSTM layers between an embedding and a head."""
    nn = lib.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(VOCAB, 1024), nn.Linear(1024, VOCAB)
            self.layers = nn.LSTM(1024, 1024, 2, batch_first=True)

        def forward(self, ids):
            return self.head(self.layers(self.words(ids))[0])

    return Model()


def training(lib, model, batch, length):
    net = model(lib).to(DEVICE)
    optimizer = lib.optim.AdamW(net.parameters(), lr=1e-4, **({"fused": True} if lib is torch else {}))
    ids = lib.randint(0, VOCAB, (batch, length + 1), device=DEVICE)
    x, y = ids[:, :-1].contiguous(), ids[:, 1:].flatten()

    def step(forward):
        optimizer.zero_grad()
        with lib.autocast(DEVICE, dtype=lib.bfloat16):
            loss = lib.nn.functional.cross_entropy(forward(x).flatten(0, 1), y)
        loss.backward()
        optimizer.step()

    return net, step


CASES = {
    "encoder layer 512, 32 x 512, dropout 0.1": (lambda lib: layer(lib, 0.1), 32 * 512),
    "encoder layer 512, 32 x 512, dropout 0": (lambda lib: layer(lib, 0.0), 32 * 512),
    "encoder of 6 layers, 32 x 512, training": (lambda lib: training(lib, encoder, 32, 512), 32 * 512),
    "LSTM language model 64 x 256 x 1024, training": (lambda lib: training(lib, recurrent, 64, 256), 64 * 256),
}


def timed(run, synchronize, seconds):
    """Seconds of a step: as many in a row as fit, with one wait at the end."""
    run()
    synchronize()
    begin = time.perf_counter()
    run()
    synchronize()
    count = max(5, int(seconds / max(time.perf_counter() - begin, 1e-5)))
    begin = time.perf_counter()
    for _ in range(count):
        run()
    synchronize()
    return (time.perf_counter() - begin) / count


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--seconds", type=float, default=0.4, help="of each measurement; three are made in turns, the best counts")
    p.add_argument("--filter", default="")
    p.add_argument("--no-compile", action="store_true")
    a = p.parse_args()
    engines = {"strata": st, "PyTorch eager": torch} | ({} if a.no_compile else {"PyTorch compiled": torch})
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, strata {st.__version__}\n")
    print("| work | engine | ms | tokens/s | its time over strata's |\n|---|---|---|---|---|")
    for name, (make, tokens) in CASES.items():
        if a.filter not in name:
            continue
        runs, best = {}, {}
        for engine, lib in engines.items():
            lib.manual_seed(0)
            net, step = make(lib)
            forward = torch.compile(net) if engine == "PyTorch compiled" else net
            try:
                step(forward)
            except Exception as e:  # a compiler that is not there, above all
                print(f"| {name} | {engine} | {type(e).__name__}: {str(e).splitlines()[0][:90] if str(e) else ''} | | |", flush=True)
                continue
            runs[engine] = (lambda step=step, forward=forward: step(forward)), lib.cuda.synchronize
        for _ in range(3):
            for engine, (run, synchronize) in runs.items():
                best[engine] = min(best.get(engine, float("inf")), timed(run, synchronize, a.seconds))
        for engine, seconds in best.items():
            print(f"| {name} | {engine} | {seconds * 1e3:.2f} | {tokens / seconds:,.0f} | {seconds / best.get('strata', seconds):.2f} |", flush=True)


if __name__ == "__main__":
    main()
