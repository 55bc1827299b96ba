"""A part-of-speech tagger: a bidirectional two-layer LSTM over packed sequences of any length."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

SIZES = {
    "tiny": dict(vocab=50, tags=5, length=12, embed=16, hidden=12, batch=4),
    "cpu": dict(vocab=2000, tags=17, length=40, embed=128, hidden=128, batch=32),
    "card": dict(vocab=20000, tags=45, length=120, embed=512, hidden=512, batch=256),
}


class Tagger(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embedding = nn.Embedding(cfg.vocab, cfg.embed, padding_idx=0)
        self.lstm = nn.LSTM(cfg.embed, cfg.hidden, num_layers=2, bidirectional=True, batch_first=True, dropout=0.3)
        self.dropout = nn.Dropout(0.3)
        self.hidden2tag = nn.Linear(2 * cfg.hidden, cfg.tags)

    def forward(self, sentences, lengths):
        embeds = self.dropout(self.embedding(sentences))
        packed = pack_padded_sequence(embeds, lengths, batch_first=True, enforce_sorted=False)
        out, _ = self.lstm(packed)
        out, _ = pad_packed_sequence(out, batch_first=True)
        return F.log_softmax(self.hidden2tag(self.dropout(out)), dim=2)


def batches(cfg, rng, count):
    for _ in range(count):
        lengths = rng.integers(cfg.length // 3, cfg.length + 1, cfg.batch)
        words = [torch.tensor(rng.integers(1, cfg.vocab, n)) for n in lengths]
        tags = [w % cfg.tags for w in words]
        yield (pad_sequence(words, batch_first=True), pad_sequence(tags, batch_first=True, padding_value=-1),
               torch.tensor(lengths))


def train(cfg, rng, device, prepare):
    model = prepare(Tagger(cfg).to(device))
    loss_function = nn.NLLLoss(ignore_index=-1)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    data = list(batches(cfg, rng, 4))
    while True:
        for sentence, tags, lengths in data:
            model.zero_grad()
            tag_scores = model(sentence.to(device), lengths)
            tags = tags.to(device)
            loss = loss_function(tag_scores.flatten(0, 1), tags.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            yield loss
