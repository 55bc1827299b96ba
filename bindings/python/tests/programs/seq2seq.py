"""Sequence to sequence with attention, over packed sequences."""

import strata.nn.functional as F
from strata.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

import strata as st
import strata.nn as nn
from strata import optim


class EncoderRNN(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden, padding_idx=0)
        self.gru = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * hidden, hidden)

    def forward(self, src, lengths):
        e = self.embedding(src)
        packed = pack_padded_sequence(e, lengths.cpu(), batch_first=True, enforce_sorted=False)
        o, h = self.gru(packed)
        o, _ = pad_packed_sequence(o, batch_first=True)
        h = st.tanh(self.fc(st.cat((h[-2, :, :], h[-1, :, :]), dim=1)))
        return o, h.unsqueeze(0)


class BahdanauAttention(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.Wa = nn.Linear(hidden, hidden)
        self.Ua = nn.Linear(2 * hidden, hidden)
        self.Va = nn.Linear(hidden, 1)

    def forward(self, query, keys, mask):
        scores = self.Va(st.tanh(self.Wa(query) + self.Ua(keys)))
        scores = scores.squeeze(2).unsqueeze(1)
        scores = scores.masked_fill(mask.unsqueeze(1) == 0, -1e10)
        weights = F.softmax(scores, dim=-1)
        return st.bmm(weights, keys), weights


class AttnDecoder(nn.Module):
    def __init__(self, hidden, vocab):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.attention = BahdanauAttention(hidden)
        self.gru = nn.GRU(3 * hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, enc, h, mask, target=None, T=4):
        inp = st.empty(enc.size(0), 1, dtype=st.long).fill_(1)
        outs, attns = [], []
        for i in range(T):
            emb = self.embedding(inp)
            ctx, w = self.attention(h.permute(1, 0, 2), enc, mask)
            o, h = self.gru(st.cat((emb, ctx), dim=2), h)
            o = self.out(o)
            outs.append(o)
            attns.append(w)
            if target is not None:
                inp = target[:, i].unsqueeze(1)
            else:
                _, topi = o.topk(1)
                inp = topi.squeeze(-1).detach()
        return F.log_softmax(st.cat(outs, dim=1), dim=-1), h, st.cat(attns, dim=1)


seqs = [st.tensor(s) for s in ([3, 4, 5, 2], [6, 2], [7, 8, 2])]
lengths = st.as_tensor([len(s) for s in seqs])
src = pad_sequence(seqs, batch_first=True, padding_value=0)
mask = src != 0
tgt = st.tensor([[3, 4, 2, 0], [5, 2, 0, 0], [6, 7, 8, 2]])
enc, dec = fill(EncoderRNN(9, 6), 1, 0.4), fill(AttnDecoder(6, 9), 2, 0.4)
eo, do = optim.Adam(enc.parameters(), lr=1e-2), optim.Adam(dec.parameters(), lr=1e-2)
crit = nn.NLLLoss(ignore_index=0)
for i in range(3):
    eo.zero_grad()
    do.zero_grad()
    e, h = enc(src, lengths)
    d, _, a = dec(e, h, mask, tgt)
    loss = crit(d.view(-1, d.size(-1)), tgt.view(-1))
    loss.backward()
    eo.step()
    do.step()
    out(f"l{i}", loss)
out("e", e)
out("a", a)
with st.no_grad():
    d, _, _ = dec(e, h, mask)
    _, topi = d.topk(1)
    out("dec", topi.squeeze())
lstm = fill(nn.LSTM(6, 5, num_layers=2, bidirectional=True), 3, 0.3)
p = nn.utils.rnn.pack_sequence([st.from_numpy(F32(4, 6)), st.from_numpy(F32(3, 6)), st.from_numpy(F32(1, 6))])
o, (hn, cn) = lstm(p)
out("od", o.data)
out("bs", p.batch_sizes)
out("hn", hn)
out("cn", cn)
