"""A convolutional network reads handwritten digits. It trains on 9,000 of the 10,000 digits of MNIST's test set and is
judged on the 1,000 others.

    python examples/python/mnist.py [--data FOLDER] [--download] [--device cuda] [--epochs 8]

FOLDER (or $STRATA_DATA_DIR, else build/mnist) has t10k-images-idx3-ubyte(.gz) and t10k-labels-idx1-ubyte(.gz); --download
fetches what of it is missing, 1.7 MB."""

import argparse
import os
import pathlib
import sys
import urllib.request
from typing import Any, Optional

import strata as st
from strata import nn
from strata.utils.data import DataLoader, IdxDataset, Subset


FILES = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.dropout = nn.Dropout(0.3)
        self.hidden = nn.Linear(32 * 7 * 7, 64)
        self.out = nn.Linear(64, 10)

    def forward(self, images: st.Tensor) -> st.Tensor:
        x = nn.functional.max_pool2d(st.relu(self.conv1(images)), 2)
        x = nn.functional.max_pool2d(st.relu(self.conv2(x)), 2)
        y: st.Tensor = self.out(self.dropout(st.relu(self.hidden(x.flatten(1)))))
        return y


def find(folder: str, name: str) -> Optional[str]:
    for prefix in ("", "mnist-"):
        for suffix in ("", ".gz"):
            path = pathlib.Path(folder) / f"{prefix}{name}{suffix}"
            if path.exists():
                return str(path)
    return None


def download(folder: str, mirror: str) -> None:
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if find(folder, name) is None:
            print(f"fetching {mirror}/{name}.gz", flush=True)
            try:
                part, _ = urllib.request.urlretrieve(f"{mirror}/{name}.gz", pathlib.Path(folder) / f"{name}.part")
            except OSError as error:
                sys.exit(f"cannot fetch {mirror}/{name}.gz: {error}")
            os.replace(part, pathlib.Path(folder) / f"{name}.gz")


def default_folder() -> str:
    root = pathlib.Path(__file__).resolve().parents[2]
    beside = root.parent / "shared" / "data"
    return os.environ.get("STRATA_DATA_DIR") or str(beside if find(str(beside), FILES[0]) else root / "build" / "mnist")


def accuracy(net: nn.Module, loader: DataLoader[Any], device: str) -> float:
    net.eval()
    right = total = 0
    with st.no_grad():
        for images, labels in loader:
            right += int((net(images.to(device)).argmax(1) == labels.to(device)).sum().item())
            total += len(labels)
    net.train()
    return right / total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=default_folder(), metavar="FOLDER")
    parser.add_argument("--download", action="store_true")
    parser.add_argument("--mirror", default=MIRROR, help="where --download fetches from")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    if args.download:
        download(args.data, args.mirror)
    images, labels = (find(args.data, name) for name in FILES)
    if images is None or labels is None:
        print(f"skipped: no digits in {args.data} ({', '.join(FILES)}); --download fetches them")
        return 0
    data = IdxDataset(images, labels)
    st.manual_seed(1)
    net = Net().to(args.device)
    train: DataLoader[Any] = DataLoader(Subset(data, range(9000)), batch_size=64, shuffle=True, seed=1, num_workers=2)
    test: DataLoader[Any] = DataLoader(Subset(data, range(9000, 10000)), batch_size=250)
    optimizer = st.optim.AdamW(net.parameters(), lr=2e-3)
    schedule = st.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, epochs=args.epochs, steps_per_epoch=len(train))
    loss_of = nn.CrossEntropyLoss()
    reached = 0.0
    for epoch in range(1, args.epochs + 1):
        total = 0.0
        for x, target in train:
            optimizer.zero_grad()
            loss = loss_of(net(x.to(args.device)), target.to(args.device))
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        reached = accuracy(net, test, args.device)
        print(f"epoch {epoch}  loss {total / len(train):.4f}  held-out accuracy {100 * reached:.2f} %", flush=True)
    st.save(net.state_dict(), "mnist.safetensors")
    print("weights: mnist.safetensors")
    return 0 if reached >= 0.97 or args.epochs < 4 else 1


if __name__ == "__main__":
    sys.exit(main())
