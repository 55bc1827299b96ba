"""A DeepSpeech-like recogniser: convolutions over a spectrogram, bidirectional GRUs, masked bands, CTC loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "tiny": dict(frames=32, bins=16, channels=4, hidden=12, layers=1, vocab=8, labels=4, batch=4),
    "cpu": dict(frames=160, bins=64, channels=16, hidden=96, layers=2, vocab=29, labels=20, batch=8),
    "card": dict(frames=1000, bins=128, channels=32, hidden=512, layers=3, vocab=29, labels=120, batch=32),
}


class CNNLayerNorm(nn.Module):
    def __init__(self, n_feats):
        super().__init__()
        self.layer_norm = nn.LayerNorm(n_feats)

    def forward(self, x):  # (batch, channel, feature, time)
        return self.layer_norm(x.transpose(2, 3).contiguous()).transpose(2, 3).contiguous()


class ResidualCNN(nn.Module):
    def __init__(self, channels, n_feats, dropout=0.1):
        super().__init__()
        self.cnn = nn.Conv2d(channels, channels, 3, 1, padding=1)
        self.dropout = nn.Dropout(dropout)
        self.layer_norm = CNNLayerNorm(n_feats)

    def forward(self, x):
        return x + self.cnn(self.dropout(F.gelu(self.layer_norm(x))))


class SpeechRecognition(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cnn = nn.Conv2d(1, cfg.channels, 3, stride=2, padding=1)
        self.rescnn = nn.Sequential(*[ResidualCNN(cfg.channels, cfg.bins // 2) for _ in range(2)])
        self.fully_connected = nn.Linear(cfg.channels * cfg.bins // 2, cfg.hidden)
        self.birnn = nn.GRU(cfg.hidden, cfg.hidden, cfg.layers, batch_first=True, bidirectional=True,
                            dropout=0.1 * (cfg.layers > 1))
        self.classifier = nn.Sequential(nn.Linear(2 * cfg.hidden, cfg.hidden), nn.GELU(), nn.Dropout(0.1),
                                        nn.Linear(cfg.hidden, cfg.vocab))

    def forward(self, x):
        x = self.rescnn(self.cnn(x))
        b, c, f, t = x.size()
        x = self.fully_connected(x.view(b, c * f, t).transpose(1, 2))
        x, _ = self.birnn(x)
        return self.classifier(x)


def spec_augment(x, rng, freq=4, time=8):
    x = x.clone()
    for item in x:
        f, t = int(rng.integers(0, x.size(2) - freq)), int(rng.integers(0, x.size(3) - time))
        item[:, f:f + freq] = 0.0
        item[:, :, t:t + time] = 0.0
    return x


def train(cfg, rng, device, prepare):
    spectrograms = torch.from_numpy(rng.standard_normal((3, cfg.batch, 1, cfg.bins, cfg.frames))).float().to(device)
    labels = torch.from_numpy(rng.integers(1, cfg.vocab, (3, cfg.batch, cfg.labels))).to(device)
    label_lengths = torch.from_numpy(rng.integers(cfg.labels // 2, cfg.labels + 1, (3, cfg.batch)))
    input_lengths = torch.full((cfg.batch,), cfg.frames // 2, dtype=torch.long)
    model = prepare(SpeechRecognition(cfg).to(device))
    criterion = nn.CTCLoss(blank=0, zero_infinity=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CyclicLR(optimizer, base_lr=5e-4, max_lr=3e-3, step_size_up=50,
                                                  cycle_momentum=False)
    while True:
        for x, y, lengths in zip(spectrograms, labels, label_lengths):
            optimizer.zero_grad()
            output = F.log_softmax(model(spec_augment(x, rng)), dim=2).transpose(0, 1)
            loss = criterion(output, y, input_lengths, lengths)
            loss.backward()
            optimizer.step()
            scheduler.step()
            yield loss
