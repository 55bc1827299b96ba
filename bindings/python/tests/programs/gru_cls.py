"""A GRU classifier: data sets, collate functions, workers, samplers."""

from strata.nn.utils.rnn import pad_sequence
from strata.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

import strata as st
import strata.nn as nn


class TextDataset(Dataset):
    def __init__(self, n=40, transform=None):
        self.samples = [(np.arange(3 + i % 5) % 7 + i % 3, i % 3) for i in range(n)]
        self.transform = transform

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, idx):
        if st.is_tensor(idx):
            idx = idx.tolist()
        x, y = self.samples[idx]
        x = st.from_numpy(x).long()
        if self.transform:
            x = self.transform(x)
        return {"text": x, "label": y, "len": len(x)}


def collate_batch(batch):
    texts = pad_sequence([b["text"] for b in batch], batch_first=True, padding_value=9)
    labels = st.tensor([b["label"] for b in batch], dtype=st.int64)
    lens = st.tensor([b["len"] for b in batch])
    return labels, texts, lens


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8, padding_idx=9)
        self.gru = nn.GRU(8, 12, num_layers=2, batch_first=True, bidirectional=True, dropout=0.0)
        self.fc = nn.Linear(24, 3)

    def forward(self, x, lens):
        p = nn.utils.rnn.pack_padded_sequence(self.embedding(x), lens, batch_first=True, enforce_sorted=False)
        _, h = self.gru(p)
        h = h.view(2, 2, x.size(0), 12)[-1]
        return self.fc(st.cat([h[0], h[1]], 1))


ds = TextDataset()
train, val = random_split(ds, [30, 10], generator=st.Generator().manual_seed(42))
assert len(train) == 30 and len(val) == 10
tr2, va2 = random_split(ds, [0.75, 0.25])
assert len(tr2) == 30
loader = DataLoader(
    Subset(ds, list(range(30))),
    batch_size=8,
    shuffle=False,
    collate_fn=collate_batch,
    num_workers=2,
    pin_memory=False,
    drop_last=True,
    persistent_workers=False,
)
m = fill(Model(), 0, 0.3)
opt = st.optim.AdamW(m.parameters(), lr=1e-2)
for epoch in range(2):
    tot, correct, n = 0, 0, 0
    for i, (label, text, lens) in enumerate(loader):
        opt.zero_grad()
        o = m(text, lens)
        loss = nn.functional.cross_entropy(o, label)
        loss.backward()
        opt.step()
        tot += loss.item()
        correct += (o.argmax(1) == label).sum().item()
        n += label.size(0)
    out(f"e{epoch}", [tot, n])
g = st.Generator()
g.manual_seed(0)
sh = DataLoader(TensorDataset(st.arange(10), st.arange(10) ** 2), batch_size=4, shuffle=True, generator=g)
seen = st.cat([a for a, b in sh])
out("seen", seen.sort().values)
w = WeightedRandomSampler(st.tensor([0.1, 0.9, 0.5]), num_samples=6, replacement=True)
assert len(list(w)) == 6
both = ConcatDataset([TensorDataset(st.zeros(3)), TensorDataset(st.ones(2))])
assert len(both) == 5
d = next(
    iter(
        DataLoader(
            [{"a": np.float32(i), "b": [i, i + 1], "c": "s", "d": (st.ones(2) * i, 1.5)} for i in range(4)],
            batch_size=2,
        )
    )
)
out("a", d["a"])
out("b0", d["b"][0])
assert d["c"] == ["s", "s"]
out("d0", d["d"][0])
out("d1", d["d"][1].float())


class It(st.utils.data.IterableDataset):
    def __iter__(self):
        info = st.utils.data.get_worker_info()
        for i in range(6):
            if info is None or i % info.num_workers == info.id:
                yield st.tensor(i)


out("it", st.cat([b for b in DataLoader(It(), batch_size=2)]))
out("cm", st.bincount(st.tensor([0, 1, 1, 2]) * 3 + st.tensor([0, 1, 2, 2]), minlength=9).reshape(3, 3))
