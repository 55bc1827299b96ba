"""A language model of LSTM, GRU or RNN with tied embeddings and truncated backpropagation."""

import math

import strata.nn.functional as F

import strata as st
import strata.nn as nn


class RNNModel(nn.Module):
    def __init__(self, rnn_type, ntoken, ninp, nhid, nlayers, dropout=0.0, tie_weights=True):
        super().__init__()
        self.ntoken = ntoken
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        if rnn_type in ["LSTM", "GRU"]:
            self.rnn = getattr(nn, rnn_type)(ninp, nhid, nlayers, dropout=dropout)
        else:
            self.rnn = nn.RNN(ninp, nhid, nlayers, nonlinearity="tanh", dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        if tie_weights:
            self.decoder.weight = self.encoder.weight
        self.init_weights()
        self.rnn_type, self.nhid, self.nlayers = rnn_type, nhid, nlayers

    def init_weights(self):
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        self.decoder.weight.data.uniform_(-0.1, 0.1)

    def forward(self, input, hidden):
        emb = self.drop(self.encoder(input))
        self.rnn.flatten_parameters()
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output)).view(-1, self.ntoken)
        return F.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        if self.rnn_type == "LSTM":
            return (weight.new_zeros(self.nlayers, bsz, self.nhid), weight.new_zeros(self.nlayers, bsz, self.nhid))
        return weight.new_zeros(self.nlayers, bsz, self.nhid)


def repackage_hidden(h):
    if isinstance(h, st.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    data = data.narrow(0, 0, nbatch * bsz)
    return data.view(bsz, -1).t().contiguous()


def get_batch(source, i, bptt=5):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].view(-1)


ids = st.LongTensor(200)
for k in range(200):
    ids[k] = (k * k + 3 * k) % 11
data = batchify(ids, 4)
for kind in ("LSTM", "GRU", "RNN_TANH"):
    model = fill(RNNModel(kind, 11, 8, 8, 2))
    crit = nn.NLLLoss()
    hidden = model.init_hidden(4)
    lr = 1.0
    total = 0.0
    for batch, i in enumerate(range(0, data.size(0) - 1, 5)):
        x, y = get_batch(data, i)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        o, hidden = model(x, hidden)
        loss = crit(o, y)
        loss.backward()
        st.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        total += loss.item()
    out(kind, total)
    out(kind + "ppl", math.exp(total / (batch + 1)))
    model.eval()
    input = st.zeros((1, 1), dtype=st.long)
    h = model.init_hidden(1)
    toks = []
    with st.no_grad():
        for _ in range(5):
            o, h = model(input, h)
            w = o.squeeze().div(1.0).exp().cpu()
            _ = st.multinomial(w, 1)[0]
            idx = st.argmax(w)
            input.fill_(idx)
            toks.append(idx.item())
    out(kind + "t", toks)
