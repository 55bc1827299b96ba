"""nn.TransformerEncoder as a language model; nn.Transformer, its decoder and attention by themselves."""

import math

import strata as st
from strata import Tensor, nn
from strata.nn import TransformerEncoder, TransformerEncoderLayer


class PositionalEncoding(nn.Module):
    def __init__(self, d_model: int, dropout: float = 0.1, max_len: int = 100):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        position = st.arange(max_len).unsqueeze(1)
        div_term = st.exp(st.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = st.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = st.sin(position * div_term)
        pe[:, 0, 1::2] = st.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.pe[: x.size(0)]
        return self.dropout(x)


class TransformerModel(nn.Module):
    def __init__(self, ntoken, d_model, nhead, d_hid, nlayers, dropout=0.5):
        super().__init__()
        self.model_type = "Transformer"
        self.pos_encoder = PositionalEncoding(d_model, dropout)
        encoder_layers = TransformerEncoderLayer(d_model, nhead, d_hid, dropout)
        self.transformer_encoder = TransformerEncoder(encoder_layers, nlayers)
        self.embedding = nn.Embedding(ntoken, d_model)
        self.d_model = d_model
        self.linear = nn.Linear(d_model, ntoken)
        self.init_weights()

    def init_weights(self):
        r = 0.1
        self.embedding.weight.data.uniform_(-r, r)
        self.linear.bias.data.zero_()
        self.linear.weight.data.uniform_(-r, r)

    def forward(self, src, src_mask=None, pad=None):
        src = self.pos_encoder(self.embedding(src) * math.sqrt(self.d_model))
        if src_mask is None:
            src_mask = nn.Transformer.generate_square_subsequent_mask(len(src)).to(src.device)
        return self.linear(self.transformer_encoder(src, src_mask, src_key_padding_mask=pad))


m = fill(TransformerModel(20, 16, 2, 32, 2, 0.0), 0, 0.2)
opt = st.optim.SGD(m.parameters(), lr=5.0)
sched = st.optim.lr_scheduler.StepLR(opt, 1.0, gamma=0.95)
data = (st.arange(24).view(8, 3) * 5) % 20
for i in range(3):
    m.train()
    o = m(data[:-1])
    loss = nn.CrossEntropyLoss()(o.view(-1, 20), data[1:].reshape(-1))
    opt.zero_grad()
    loss.backward()
    st.nn.utils.clip_grad_norm_(m.parameters(), 0.5)
    opt.step()
    sched.step()
    out(f"l{i}", loss)
m.eval()
pad = st.zeros(3, 8, dtype=st.bool)
pad[1, 5:] = True
out("o", m(data, pad=pad)[:5])
tr = fill(
    nn.Transformer(
        d_model=16,
        nhead=4,
        num_encoder_layers=1,
        num_decoder_layers=2,
        dim_feedforward=20,
        dropout=0.0,
        batch_first=True,
    ),
    4,
    0.2,
)
src, tgt = st.from_numpy(F32(2, 5, 16)), st.from_numpy(F32(2, 4, 16))
tm = st.triu(st.ones(4, 4) * float("-inf"), diagonal=1)
sp = st.tensor([[False] * 5, [False] * 3 + [True] * 2])
o = tr(src, tgt, tgt_mask=tm, src_key_padding_mask=sp, memory_key_padding_mask=sp)
out("tr", o)
dl = nn.TransformerDecoderLayer(
    d_model=16, nhead=4, batch_first=True, norm_first=True, dropout=0.0, activation=nn.functional.gelu
)
dec = fill(nn.TransformerDecoder(dl, num_layers=2, norm=nn.LayerNorm(16)), 5, 0.2)
out("dec", dec(tgt, src, tgt_is_causal=True, tgt_mask=tm))
mha = fill(nn.MultiheadAttention(16, 4, batch_first=True, dropout=0.0), 6, 0.2)
causal = st.tril(st.ones(5, 5, dtype=st.bool)).logical_not()
ao, aw = mha(src, src, src, attn_mask=causal, average_attn_weights=False)
out("ao", ao)
out("aw", aw)
