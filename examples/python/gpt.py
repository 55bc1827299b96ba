"""Trains a small GPT on text, as `strata train` does, and lets it write.

    python examples/python/gpt.py [TEXT] [--out runs/python-gpt] [--steps 400] [--device cuda]

Without TEXT it reads the repository's own documentation."""

import argparse
import pathlib
import sys

import strata as st


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    documentation = pathlib.Path(__file__).resolve().parents[2] / "docs"
    parser.add_argument("text", nargs="?", default=str(documentation))
    parser.add_argument("--out", default="runs/python-gpt")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    trainer = st.Trainer(
        {
            "data.path": args.text,
            "model.layers": 4, "model.dim": 128, "model.heads": 4, "model.context": 128,
            "train.steps": args.steps, "train.batch": 8, "train.lr": 2e-3, "train.warmup": min(50, args.steps // 4),
            "train.eval_every": 100, "train.device": args.device,
        },
        out=args.out,
    )
    result = trainer.train(resume=args.resume)
    print(f"{result}\nreport: {result.report}\n")
    model = trainer.model(args.device)
    print(model.generate_text("The ", tokens=200, temperature=0.7, seed=1))
    first, last = result.metrics()[0], result.last
    return 0 if last["loss"] < first["loss"] else 1


if __name__ == "__main__":
    sys.exit(main())
