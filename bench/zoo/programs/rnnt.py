"""RNN-T speech: an LSTM encoder, a label predictor, a joint network, the transducer loss over diagonals."""

import torch
import torch.nn as nn

SIZES = {
    "tiny": dict(frames=10, labels=4, vocab=8, features=12, hidden=16, batch=3),
    "cpu": dict(frames=48, labels=12, vocab=64, features=40, hidden=128, batch=8),
    "card": dict(frames=160, labels=32, vocab=512, features=80, hidden=512, batch=16),
}


class Transducer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.encoder = nn.LSTM(cfg.features, cfg.hidden, num_layers=2, batch_first=True)
        self.embed = nn.Embedding(cfg.vocab, cfg.hidden)
        self.predictor = nn.LSTM(cfg.hidden, cfg.hidden, batch_first=True)
        self.joint_enc = nn.Linear(cfg.hidden, cfg.hidden)
        self.joint_pred = nn.Linear(cfg.hidden, cfg.hidden, bias=False)
        self.joint = nn.Sequential(nn.Tanh(), nn.Linear(cfg.hidden, cfg.vocab))

    def forward(self, audio, labels):
        encoded, _ = self.encoder(audio)
        start = torch.zeros_like(labels[:, :1])
        predicted, _ = self.predictor(self.embed(torch.cat((start, labels), dim=1)))
        joint = self.joint_enc(encoded).unsqueeze(2) + self.joint_pred(predicted).unsqueeze(1)
        return self.joint(joint).log_softmax(dim=-1)


def rnnt_loss(log_probs, labels, frame_lengths, label_lengths, blank=0):
    """Forward variables of Graves (2012), a diagonal of the lattice at a time."""
    B, T, U1, _ = log_probs.shape
    blanks = log_probs[..., blank]
    emits = log_probs[:, :, :-1].gather(3, labels[:, None, :, None].expand(B, T, U1 - 1, 1)).squeeze(3)
    alpha = [[None] * U1 for _ in range(T)]
    alpha[0][0] = torch.zeros(B, device=log_probs.device)
    for n in range(1, T + U1 - 1):
        cells = [(t, n - t) for t in range(max(0, n - U1 + 1), min(T, n + 1))]
        low = torch.finfo(log_probs.dtype).min
        stay = [alpha[t - 1][u] + blanks[:, t - 1, u] if t > 0 else torch.full((B,), low, device=blanks.device)
                for t, u in cells]
        emit = [alpha[t][u - 1] + emits[:, t, u - 1] if u > 0 else torch.full((B,), low, device=blanks.device)
                for t, u in cells]
        row = torch.logaddexp(torch.stack(stay), torch.stack(emit))
        for (t, u), value in zip(cells, row.unbind(0)):
            alpha[t][u] = value
    table = torch.stack([torch.stack(row, dim=1) for row in alpha], dim=1)
    batch = torch.arange(B, device=table.device)
    last = frame_lengths - 1
    return -(table[batch, last, label_lengths] + blanks[batch, last, label_lengths]).mean()


def train(cfg, rng, device, prepare):
    audio = torch.from_numpy(rng.standard_normal((3, cfg.batch, cfg.frames, cfg.features))).float().to(device)
    labels = torch.from_numpy(rng.integers(1, cfg.vocab, (3, cfg.batch, cfg.labels))).to(device)
    frame_lengths = torch.from_numpy(rng.integers(cfg.frames * 2 // 3, cfg.frames + 1, (3, cfg.batch))).to(device)
    label_lengths = torch.from_numpy(rng.integers(cfg.labels // 2, cfg.labels + 1, (3, cfg.batch))).to(device)
    model = prepare(Transducer(cfg).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    while True:
        for i in range(3):
            optimizer.zero_grad()
            loss = rnnt_loss(model(audio[i], labels[i]), labels[i], frame_lengths[i], label_lengths[i])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            yield loss
