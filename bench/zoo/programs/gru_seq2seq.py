"""Translation with attention: a GRU encoder, a GRUCell decoder in a loop, additive attention, teacher forcing."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "tiny": dict(vocab=40, source=9, target=7, hidden=16, batch=4),
    "cpu": dict(vocab=1500, source=24, target=20, hidden=128, batch=16),
    "card": dict(vocab=16000, source=60, target=50, hidden=512, batch=128),
}
PAD, SOS = 0, 1


class EncoderRNN(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden, padding_idx=PAD)
        self.gru = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * hidden, hidden)

    def forward(self, source):
        output, hidden = self.gru(self.embedding(source))
        return output, torch.tanh(self.bridge(torch.cat((hidden[-2], hidden[-1]), dim=-1)))


class BahdanauAttention(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.Wa = nn.Linear(hidden, hidden)
        self.Ua = nn.Linear(2 * hidden, hidden)
        self.Va = nn.Linear(hidden, 1)

    def forward(self, query, keys, mask):
        scores = self.Va(torch.tanh(self.Wa(query).unsqueeze(1) + self.Ua(keys))).squeeze(2)
        scores = scores.masked_fill(mask, float("-inf"))
        weights = F.softmax(scores, dim=-1)
        return torch.bmm(weights.unsqueeze(1), keys).squeeze(1), weights


class AttnDecoderRNN(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.attention = BahdanauAttention(hidden)
        self.cell = nn.GRUCell(3 * hidden, hidden)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, keys, hidden, mask, target):
        outputs, token = [], torch.full_like(target[:, 0], SOS)
        for t in range(target.size(1)):
            context, _ = self.attention(hidden, keys, mask)
            hidden = self.cell(torch.cat((self.embedding(token), context), dim=1), hidden)
            outputs.append(F.log_softmax(self.out(hidden), dim=-1))
            token = target[:, t]  # teacher forcing
        return torch.stack(outputs, dim=1)


class Seq2Seq(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.encoder = EncoderRNN(cfg.vocab, cfg.hidden)
        self.decoder = AttnDecoderRNN(cfg.vocab, cfg.hidden)

    def forward(self, source, target):
        keys, hidden = self.encoder(source)
        return self.decoder(keys, hidden, source == PAD, target)


def train(cfg, rng, device, prepare):
    source = rng.integers(2, cfg.vocab, (4, cfg.batch, cfg.source))
    for batch in source:
        for row in batch:
            row[int(rng.integers(cfg.source // 2, cfg.source + 1)):] = PAD
    target = source[:, :, : cfg.target][:, :, ::-1].copy()
    source, target = torch.from_numpy(source).to(device), torch.from_numpy(target).to(device)
    model = prepare(Seq2Seq(cfg).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.NLLLoss(ignore_index=PAD)
    while True:
        for src, tgt in zip(source, target):
            optimizer.zero_grad()
            out = model(src, tgt)
            loss = criterion(out.reshape(-1, out.shape[-1]), tgt.reshape(-1))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            yield loss
