"""word2vec: skip-grams with negative samples drawn by torch.multinomial, log sigmoid of dot products, SparseAdam."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "tiny": dict(vocab=50, dim=8, window=2, negatives=4, batch=32),
    "cpu": dict(vocab=20000, dim=100, window=5, negatives=10, batch=512),
    "card": dict(vocab=50000, dim=256, window=5, negatives=15, batch=8192),
}


class SkipGramNeg(nn.Module):
    def __init__(self, vocab, dim, noise_dist):
        super().__init__()
        self.in_embed = nn.Embedding(vocab, dim, sparse=True)
        self.out_embed = nn.Embedding(vocab, dim, sparse=True)
        self.register_buffer("noise_dist", noise_dist)
        self.in_embed.weight.data.uniform_(-0.5, 0.5)
        self.out_embed.weight.data.uniform_(-0.5, 0.5)

    def forward(self, words, contexts, n_samples):
        batch = words.size(0)
        noise_words = torch.multinomial(self.noise_dist, batch * n_samples, replacement=True)
        v = self.in_embed(words)
        u = self.out_embed(contexts)
        noise = self.out_embed(noise_words).view(batch, n_samples, -1)
        out_loss = F.logsigmoid(torch.bmm(u.unsqueeze(1), v.unsqueeze(2))).squeeze()
        noise_loss = F.logsigmoid(torch.bmm(noise.neg(), v.unsqueeze(2))).squeeze().sum(1)
        return -(out_loss + noise_loss).mean()


def train(cfg, rng, device, prepare):
    corpus = np.minimum(rng.zipf(1.2, 20 * cfg.batch), cfg.vocab) - 1
    counts = np.bincount(corpus, minlength=cfg.vocab) + 1
    noise_dist = torch.from_numpy((counts / counts.sum()) ** 0.75).float()
    model = prepare(SkipGramNeg(cfg.vocab, cfg.dim, noise_dist / noise_dist.sum()).to(device))
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.01)
    while True:
        centre = rng.integers(cfg.window, len(corpus) - cfg.window, cfg.batch)
        shift = rng.integers(1, cfg.window + 1, cfg.batch) * rng.choice([-1, 1], cfg.batch)
        inputs = torch.LongTensor(corpus[centre]).to(device)
        targets = torch.LongTensor(corpus[centre + shift]).to(device)
        loss = model(inputs, targets, cfg.negatives)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss
