"""Layers and losses one by one."""

import strata.nn.functional as F

import strata as st
import strata.nn as nn

x2, x1, x3 = st.from_numpy(F32(2, 4, 8, 8)), st.from_numpy(F32(2, 4, 9)), st.from_numpy(F32(2, 4, 4, 6, 6))
L2 = dict(
    rp=nn.ReflectionPad2d((1, 2, 0, 1)),
    rep=nn.ReplicationPad2d(1),
    cp=nn.ConstantPad2d(1, 3.5),
    zp=nn.ZeroPad2d(1),
    circ=nn.CircularPad2d(1),
    lrn=nn.LocalResponseNorm(3),
    cs=nn.ChannelShuffle(2),
    sm2=nn.Softmax2d(),
    un=nn.UpsamplingNearest2d(scale_factor=2),
    ub=nn.UpsamplingBilinear2d(scale_factor=2),
    lp=nn.LPPool2d(2, 2),
    up=nn.Upsample(scale_factor=(2, 3), mode="nearest"),
    upb=nn.Upsample(size=(5, 7), mode="bicubic"),
    mp=nn.MaxPool2d((2, 3), stride=(2, 1), padding=(0, 1)),
    ap=nn.AvgPool2d(3, 2, padding=1, count_include_pad=False),
    amp=nn.AdaptiveMaxPool2d((3, None)),
    inorm=nn.InstanceNorm2d(4, affine=True),
    gn=nn.GroupNorm(2, 4),
    unf=nn.Unfold(3, padding=1, stride=2),
    th=nn.Threshold(0.1, 20),
    hs=nn.Hardswish(),
    glu=nn.GLU(1),
    ps=nn.PixelShuffle(2),
    rr=nn.RReLU().eval(),
    ls=nn.LogSoftmax(dim=1),
    sm=nn.Softmin(dim=1),
    sp=nn.Softplus(beta=2),
    conv=nn.Conv2d(4, 6, (3, 5), padding="same", padding_mode="reflect"),
    dw=nn.Conv2d(4, 8, 3, groups=4, dilation=2),
    ct=nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1),
    ad=nn.AlphaDropout(0.3).eval(),
    d3=nn.Dropout3d(0.2).eval(),
)
for k, l in L2.items():
    out(k, fill(l, 1, 0.3)(x2))
    repr(l)
L1 = dict(
    mp=nn.MaxPool1d(3),
    ap=nn.AvgPool1d(2, 2),
    aap=nn.AdaptiveAvgPool1d(4),
    bn=nn.BatchNorm1d(4),
    rp=nn.ReflectionPad1d(2),
    rep=nn.ReplicationPad1d((1, 2)),
    cp=nn.ConstantPad1d(1, 2.0),
    zp=nn.ZeroPad1d(2),
    up=nn.Upsample(scale_factor=2, mode="linear", align_corners=False),
    ct=nn.ConvTranspose1d(4, 2, 4, 2),
    inn=nn.InstanceNorm1d(4),
)
for k, l in L1.items():
    out("1" + k, fill(l, 1, 0.3)(x1))
L3 = dict(
    mp=nn.MaxPool3d(2),
    mps=nn.MaxPool3d(3, 2, 1),
    ap=nn.AvgPool3d((2, 2, 2)),
    apn=nn.AvgPool3d(3, 2, 1),
    aap=nn.AdaptiveAvgPool3d(1),
    aap2=nn.AdaptiveAvgPool3d((2, 3, 2)),
    conv=nn.Conv3d(4, 2, 3, padding=1),
    bn=nn.BatchNorm3d(4),
    inn=nn.InstanceNorm3d(4),
    ct=nn.ConvTranspose3d(4, 2, 3, stride=2, padding=1, output_padding=1),
    up=nn.Upsample(scale_factor=2, mode="trilinear"),
    upn=nn.Upsample(scale_factor=2),
    rp=nn.ReplicationPad3d(1),
    cp=nn.ConstantPad3d(1, 0.0),
    d3=nn.Dropout3d().eval(),
)
for k, l in L3.items():
    out("3" + k, fill(l, 1, 0.3)(x3))
m, i = F.max_pool2d(x2, 2, return_indices=True)
out("unpool", nn.MaxUnpool2d(2)(m, i))
out("fold", F.fold(F.unfold(x2, 3, padding=1), (8, 8), 3, padding=1))
out("fold2", nn.Fold((8, 8), 2, stride=2)(F.unfold(x2, 2, stride=2)))
eb = fill(nn.EmbeddingBag(10, 3, mode="mean"), 2)
out("eb", eb(st.tensor([1, 2, 4, 5, 4]), st.tensor([0, 3])))
eb2 = fill(nn.EmbeddingBag(10, 3, mode="sum"), 2)
out("eb2", eb2(st.tensor([[1, 2], [3, 4]]), per_sample_weights=st.tensor([[0.5, 1.0], [2.0, 1.0]])))
theta = st.tensor([[[0.8, 0.2, 0.1], [-0.2, 0.9, 0.0]]]).repeat(2, 1, 1).requires_grad_()
grid = F.affine_grid(theta, x2.size(), align_corners=False)
s = F.grid_sample(x2, grid, align_corners=False)
out("gs", s)
s.sum().backward()
out("gt", theta.grad)
out("gsn", F.grid_sample(x2, grid, mode="nearest", padding_mode="border", align_corners=True))
out("gsr", F.grid_sample(x2, grid * 1.5, padding_mode="reflection", align_corners=True))
lp = F.log_softmax(st.from_numpy(F32(12, 3, 5)), -1).detach().requires_grad_()
tg = st.tensor([[1, 2, 3, 4], [1, 1, 2, 0], [4, 3, 0, 0]])
ctc = nn.CTCLoss()(lp, tg, st.tensor([12, 10, 8]), st.tensor([4, 3, 2]))
out("ctc", ctc)
ctc.backward()
lg = st.from_numpy(F32(4, 5)).requires_grad_()
t = st.tensor([0, 1, 2, 4])
mt = (st.arange(20).view(4, 5) % 3 == 0).float()
out("mm", nn.MultiMarginLoss()(lg, t))
out("mls", nn.MultiLabelSoftMarginLoss()(lg, mt))
out("mlm", nn.MultiLabelMarginLoss()(lg, st.tensor([[0, 2, -1, 1, 1]] * 4)))
out("twd", nn.TripletMarginWithDistanceLoss(distance_function=nn.PairwiseDistance())(lg, lg * 2, lg + 1))
out("bce", F.binary_cross_entropy(st.sigmoid(lg), mt, weight=st.ones(5)))
out("hub", nn.HuberLoss()(lg, mt))
out("nll2", F.nll_loss(F.log_softmax(x2, 1), st.zeros(2, 8, 8).long()))
out("gnll", F.gaussian_nll_loss(lg, mt, st.ones(4, 5)))
out("kl", F.kl_div(F.log_softmax(lg, 1), F.softmax(mt, 1), reduction="batchmean"))
out(
    "foc",
    (((1 - st.exp(-F.cross_entropy(lg, t, reduction="none"))) ** 2) * F.cross_entropy(lg, t, reduction="none")).mean(),
)
out("pd", F.pdist(lg))
out("sml", F.soft_margin_loss(lg, mt * 2 - 1))
z = st.zeros(3, requires_grad=True)
F.binary_cross_entropy(st.sigmoid(z * 1e4 + 200), st.zeros(3)).backward()
out("bceg", z.grad)
bl = st.tensor([0.0, 1.0], requires_grad=True)
F.binary_cross_entropy(bl, st.tensor([0.0, 1.0])).backward()
assert st.isfinite(bl.grad).all()
out("ln", F.layer_norm(x2, x2.shape[1:]))
out("ln2", F.layer_norm(x2, (8,), weight=st.ones(8)))
out("nrm", F.normalize(x2, dim=1))
out("bnf", F.batch_norm(x2, None, None, training=True))
out("drop", F.dropout(x2, 0.5, training=False))
out("ip", F.interpolate(x2, scale_factor=0.5, mode="area"))
out("ip2", F.interpolate(x2, scale_factor=2.0, mode="nearest-exact"))
out("sdpa", F.scaled_dot_product_attention(x2, x2, x2, is_causal=True))
out("sdm", F.scaled_dot_product_attention(x2, x2, x2, attn_mask=st.ones(8, 8, dtype=st.bool).tril()))
c = nn.LSTMCell(4, 3)
fill(c, 1)
h, cc = c(x1[:, :, 0])
h, cc = c(x1[:, :, 1], (h, cc))
out("lc", h)
g = fill(nn.GRUCell(4, 3), 1)
out("gc", g(x1[:, :, 0], st.zeros(2, 3)))
out("pl", fill(nn.LSTM(4, 6, batch_first=True), 2, 0.3)(x1.transpose(1, 2))[0])
mha = fill(nn.MultiheadAttention(4, 2, add_bias_kv=False, kdim=3, vdim=5), 1)
out("mh", mha(st.ones(2, 1, 4), st.ones(3, 1, 3), st.ones(3, 1, 5))[0])
l = nn.LazyLinear(5)
assert l(st.ones(2, 7)).shape == (2, 5) and l.weight.shape == (5, 7)
