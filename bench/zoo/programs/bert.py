"""BERT: nn.TransformerEncoder over padded sentences, masked words and next sentence, linear warm-up and decay."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZES = {
    "tiny": dict(vocab=80, length=20, layers=2, heads=2, dim=32, batch=4, amp=False),
    "cpu": dict(vocab=3000, length=128, layers=4, heads=4, dim=256, batch=8, amp=False),
    "card": dict(vocab=30522, length=512, layers=12, heads=12, dim=768, batch=64, amp=True),
}
PAD, CLS, SEP, MASK = 0, 1, 2, 3


class Sentences(Dataset):
    """Pairs of made-up sentences of any length."""

    def __init__(self, cfg, rng, count):
        self.items = []
        for _ in range(count):
            n = int(rng.integers(cfg.length // 3, cfg.length + 1))
            words = rng.integers(4, cfg.vocab // 4, n)
            words[0], cut = CLS, n // 2
            words[cut] = words[-1] = SEP
            labels = words.copy()
            hidden = rng.random(n) < 0.15
            hidden[1] = True
            labels[~hidden] = -100
            words[hidden] = MASK
            kinds = [0] * (cut + 1) + [1] * (n - cut - 1)
            self.items.append((torch.tensor(words), torch.tensor(labels), torch.tensor(kinds), int(rng.integers(0, 2))))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate(items):
    words, labels, kinds, following = zip(*items)
    pad = nn.utils.rnn.pad_sequence
    return (pad(words, batch_first=True, padding_value=PAD), pad(labels, batch_first=True, padding_value=-100),
            pad(kinds, batch_first=True, padding_value=0), torch.tensor(following))


class Bert(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.word = nn.Embedding(cfg.vocab, cfg.dim, padding_idx=PAD)
        self.position = nn.Embedding(cfg.length, cfg.dim)
        self.kind = nn.Embedding(2, cfg.dim)
        self.norm = nn.LayerNorm(cfg.dim, eps=1e-12)
        self.dropout = nn.Dropout(0.1)
        layer = nn.TransformerEncoderLayer(cfg.dim, cfg.heads, 4 * cfg.dim, dropout=0.1, activation="gelu",
                                           batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.transform = nn.Sequential(nn.Linear(cfg.dim, cfg.dim), nn.GELU(), nn.LayerNorm(cfg.dim))
        self.decoder = nn.Linear(cfg.dim, cfg.vocab)
        self.decoder.weight = self.word.weight
        self.pooler = nn.Linear(cfg.dim, cfg.dim)
        self.following = nn.Linear(cfg.dim, 2)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.trunc_normal_(p, std=0.02)

    def forward(self, words, kinds):
        x = self.word(words) + self.position.weight[: words.size(1)] + self.kind(kinds)
        x = self.encoder(self.dropout(self.norm(x)), src_key_padding_mask=words.eq(PAD))
        return self.decoder(self.transform(x)), self.following(torch.tanh(self.pooler(x[:, 0])))


def train(cfg, rng, device, prepare):
    data = Sentences(cfg, rng, 4 * cfg.batch)
    loader = DataLoader(data, batch_size=cfg.batch, shuffle=False, collate_fn=collate, drop_last=True)
    model = prepare(Bert(cfg).to(device))
    model.train()
    criterion = nn.CrossEntropyLoss(ignore_index=-100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3 if cfg.dim < 64 else 2e-4, eps=1e-6, weight_decay=0.01)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=2)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=0.1, total_iters=500)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, decay], milestones=[2])
    while True:
        for words, labels, kinds, following in loader:
            words, labels, kinds, following = (t.to(device) for t in (words, labels, kinds, following))
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=cfg.amp):
                scores, pair = model(words, kinds)
                loss = criterion(scores.transpose(1, 2), labels) + criterion(pair, following)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            yield loss
