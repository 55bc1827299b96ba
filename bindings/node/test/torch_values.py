"""Writes torch_layers.json, torch_functions.json and torch_optim.json, which the Node tests compare with: what PyTorch 2 makes
of layers, functions and optimizers. python bindings/node/test/torch_values.py; needs PyTorch."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).parent


def pack(t: Tensor) -> Dict[str, Any]:
    """Shape and elements of a tensor; floating ones are the default."""
    made: Dict[str, Any] = {"shape": list(t.shape), "data": [round(v, 6) if isinstance(v, float) else v for v in t.detach().flatten().tolist()]}
    if not t.is_floating_point():
        made["dtype"] = {torch.int64: "i64", torch.bool: "bool"}[t.dtype]
    return made


def rand(*shape: int, scale: float = 1.0) -> Tensor:
    """Normal, with few digits."""
    return torch.round(torch.randn(shape) * scale, decimals=3)


def positive(*shape: int) -> Tensor:
    return torch.round(torch.rand(shape) * 0.9 + 0.05, decimals=3)


def coefficients(t: Tensor) -> Tensor:
    """The gradient that reaches a result: numbers that the tests make in the same way."""
    i = torch.arange(t.numel(), dtype=torch.float32)
    return (((i * 37) % 11 - 5) / 5).reshape(t.shape)


def gradients(outputs: Sequence[Tensor], inputs: Sequence[Any]) -> List[Optional[Dict[str, Any]]]:
    """Of the sum of all results times coefficients()."""
    wanted = [t for t in inputs if isinstance(t, Tensor) and t.requires_grad]
    made = [o for o in outputs if o.requires_grad]
    if not wanted or not made:
        return []
    total = sum((o * coefficients(o)).sum() for o in made)
    found = torch.autograd.grad(total, wanted, allow_unused=True)
    return [None if g is None else pack(g) for g in found]


def flat(result: Any) -> List[Tensor]:
    return [t for part in result for t in flat(part)] if isinstance(result, (tuple, list)) else [result]


layers: List[Dict[str, Any]] = []


def layer(module: nn.Module, args: List[Any], *inputs: Tensor, name: Optional[str] = None, train: bool = False, plain: Sequence[Any] = (),
          fixed: Sequence[int] = ()) -> None:
    """One case. `plain`: further arguments of forward() that are no tensors; `fixed`: places of inputs without a gradient."""
    for p in module.parameters():
        with torch.no_grad():
            p.copy_(torch.round(p + 0.1 * torch.randn(p.shape), decimals=4))
    module.train(train)
    state = {k: pack(v) for k, v in module.state_dict().items()}
    given = [x.clone().requires_grad_() if x.is_floating_point() and i not in fixed else x for i, x in enumerate(inputs)]
    outputs = flat(module(*given, *plain))
    case: Dict[str, Any] = {
        "name": name or type(module).__name__, "args": args, "train": train, "state": state, "inputs": [pack(x) for x in inputs],
        "plain": list(plain), "fixed": list(fixed), "outputs": [pack(o) for o in outputs],
        "gradients": gradients(outputs, [*given, *module.parameters()]),
    }
    if train:
        case["after"] = {k: pack(v) for k, v in module.state_dict().items()}
    layers.append(case)


def all_layers() -> None:
    torch.manual_seed(0)
    # (The gradient of ctc_loss is not compared: PyTorch's is that for the argument of the log_softmax before it.)
    layer(nn.Conv3d(2, 3, 2, stride=2, padding=1), [2, 3, 2, {"stride": 2, "padding": 1}], rand(1, 2, 3, 4, 3))
    layer(nn.Conv3d(2, 2, (1, 2, 3), groups=2, bias=False), [2, 2, [1, 2, 3], {"groups": 2, "bias": False}], rand(1, 2, 2, 3, 4))
    layer(nn.Conv2d(2, 3, (2, 3), padding="same", dilation=(1, 2)), [2, 3, [2, 3], {"padding": "same", "dilation": [1, 2]}], rand(2, 2, 4, 5))
    layer(nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"), [1, 2, 3, {"padding": 1, "paddingMode": "reflect"}], rand(1, 1, 4, 4))
    layer(nn.Conv1d(1, 2, 3, padding=2, padding_mode="circular", stride=2), [1, 2, 3, {"padding": 2, "paddingMode": "circular", "stride": 2}], rand(2, 1, 5))
    layer(nn.Conv1d(1, 2, 2, padding="valid", padding_mode="replicate"), [1, 2, 2, {"padding": "valid", "paddingMode": "replicate"}], rand(1, 1, 4))
    layer(nn.ConvTranspose1d(2, 2, 3, stride=2), [2, 2, 3, {"stride": 2}], rand(1, 2, 4))
    layer(nn.ConvTranspose2d(2, 2, 3, stride=2, padding=1), [2, 2, 3, {"stride": 2, "padding": 1}], rand(1, 2, 3, 3), plain=[[6, 6]])
    layer(nn.ConvTranspose3d(2, 2, 2, stride=2, output_padding=1, groups=2), [2, 2, 2, {"stride": 2, "outputPadding": 1, "groups": 2}], rand(1, 2, 2, 2, 2))
    layer(nn.Fold((4, 5), (2, 3), dilation=(1, 2), padding=1, stride=(2, 1)), [[4, 5], [2, 3], {"dilation": [1, 2], "padding": 1, "stride": [2, 1]}],
          rand(2, 12, 9))
    layer(nn.Unfold((2, 3), dilation=(1, 2), padding=1, stride=(2, 1)), [[2, 3], {"dilation": [1, 2], "padding": 1, "stride": [2, 1]}], rand(2, 2, 4, 5))

    for n in (1, 2, 3):
        shape = [2, 3, 4, 5, 3][: n + 2]
        kernel = [3, 2, 2][:n]
        k: Any = kernel if n > 1 else 3
        layer(getattr(nn, f"MaxPool{n}d")(k, stride=2, padding=1, dilation=1, ceil_mode=True), [k, {"stride": 2, "padding": 1, "ceilMode": True}], rand(*shape))
        layer(getattr(nn, f"MaxPool{n}d")(2, return_indices=True), [2, {"returnIndices": True}], rand(*shape))
        layer(getattr(nn, f"AvgPool{n}d")(k, stride=2, padding=1, count_include_pad=False), [k, {"stride": 2, "padding": 1, "countIncludePad": False}], rand(*shape))
        layer(getattr(nn, f"LPPool{n}d")(2, k, stride=2), [2, k, {"stride": 2}], rand(*shape))
        size: Any = [2, 3, None][:n] if n > 1 else 2
        layer(getattr(nn, f"AdaptiveAvgPool{n}d")(size), [size], rand(*shape))
        layer(getattr(nn, f"AdaptiveMaxPool{n}d")(2), [2], rand(*shape))
        pooled, indices = getattr(F, f"max_pool{n}d")(rand(*[2, 1, 4, 4, 4][: n + 2]), 2, return_indices=True)
        layer(getattr(nn, f"MaxUnpool{n}d")(2), [2], pooled, indices)
        around = [1, 2, 2, 1, 0, 1][: 2 * n]
        for kind in ("ZeroPad", "ReflectionPad", "ReplicationPad", "CircularPad"):
            layer(getattr(nn, f"{kind}{n}d")(tuple(around)), [around], rand(*shape))
        layer(getattr(nn, f"ConstantPad{n}d")(1, 2.5), [1, 2.5], rand(*shape))
        layer(getattr(nn, f"InstanceNorm{n}d")(3, affine=True), [3, {"affine": True}], rand(*shape))
        layer(getattr(nn, f"InstanceNorm{n}d")(3, track_running_stats=True), [3, {"trackRunningStats": True}], rand(*shape), train=True)
        layer(getattr(nn, f"InstanceNorm{n}d")(3), [3], rand(*shape[1:]))
        layer(getattr(nn, f"BatchNorm{n}d")(3, momentum=0.3), [3, {"momentum": 0.3}], rand(*shape), train=True)
        layer(getattr(nn, f"BatchNorm{n}d")(3, momentum=None), [3, {"momentum": None}], rand(*shape), train=True)
        layer(getattr(nn, f"BatchNorm{n}d")(3, affine=False), [3, {"affine": False}], rand(*shape))
        layer(getattr(nn, f"BatchNorm{n}d")(3, track_running_stats=False), [3, {"trackRunningStats": False}], rand(*shape))
    layer(nn.AvgPool2d(2, divisor_override=3), [2, {"divisorOverride": 3}], rand(1, 2, 4, 4))
    layer(nn.LocalResponseNorm(3, alpha=0.1, beta=0.5, k=2), [3, {"alpha": 0.1, "beta": 0.5, "k": 2}], rand(2, 4, 3))
    layer(nn.GroupNorm(3, 6, affine=False), [3, 6, {"affine": False}], rand(2, 6, 2, 3))
    layer(nn.LayerNorm([3, 4], elementwise_affine=False), [[3, 4], {"elementwiseAffine": False}], rand(2, 3, 4))
    layer(nn.RMSNorm(4, eps=1e-5), [4, {"eps": 1e-5}], rand(2, 3, 4))

    image = (1, 2, 3, 4)
    for options in ({"size": [5, 3], "mode": "nearest"}, {"scaleFactor": 2, "mode": "nearest-exact"}, {"size": [5, 7], "mode": "bilinear", "alignCorners": True},
                    {"scaleFactor": [1.5, 0.75], "mode": "bilinear"}, {"size": [5, 6], "mode": "bicubic"}, {"scaleFactor": 1.7, "mode": "bicubic", "alignCorners": True},
                    {"size": [2, 3], "mode": "area"}, {"scaleFactor": [2, 3]}):
        names = {"scaleFactor": "scale_factor", "alignCorners": "align_corners"}
        given = {names.get(k, k): tuple(v) if isinstance(v, list) else v for k, v in options.items()}
        layer(nn.Upsample(**given), [options], rand(*image))
    layer(nn.Upsample(size=5, mode="linear"), [{"size": 5, "mode": "linear"}], rand(1, 2, 3))
    layer(nn.Upsample(scale_factor=2, mode="trilinear"), [{"scaleFactor": 2, "mode": "trilinear"}], rand(1, 1, 2, 2, 2))
    layer(nn.UpsamplingNearest2d(scale_factor=2), [{"scaleFactor": 2}], rand(*image))
    layer(nn.UpsamplingBilinear2d(size=(4, 4)), [{"size": [4, 4]}], rand(*image))
    layer(nn.PixelShuffle(2), [2], rand(2, 4, 2, 3))
    layer(nn.PixelUnshuffle(2), [2], rand(2, 1, 4, 2))
    layer(nn.ChannelShuffle(2), [2], rand(2, 6, 2))

    x = (2, 4, 3)
    for name, args, js in (("CELU", [0.5], [0.5]), ("Hardshrink", [], []), ("Softshrink", [0.3], [0.3]), ("Tanhshrink", [], []), ("Softmin", [1], [1]),
                           ("Threshold", [0.1, 7], [0.1, 7]), ("RReLU", [0.1, 0.5], [0.1, 0.5]), ("Hardsigmoid", [], []), ("Hardswish", [], []),
                           ("Mish", [], []), ("SiLU", [], []), ("LogSigmoid", [], []), ("LogSoftmax", [1], [1]), ("Sigmoid", [], []), ("Tanh", [], []),
                           ("ReLU", [], []), ("Softmax2d", [], []), ("PReLU", [4], [4]), ("Dropout", [0.3], [0.3]), ("AlphaDropout", [0.3], [0.3])):
        layer(getattr(nn, name)(*args), js, rand(*x))
    layer(nn.PairwiseDistance(p=1.5, keepdim=True), [{"p": 1.5, "keepdim": True}], rand(3, 4), rand(3, 4))
    layer(nn.CosineSimilarity(dim=0), [{"dim": 0}], rand(3, 4), rand(3, 4))
    layer(nn.Unflatten(1, (2, 2)), [1, [2, 2]], rand(*x))
    indices = torch.tensor([[1, 0, 3], [2, 2, 4]])
    layer(nn.Embedding(5, 3, padding_idx=2), [5, 3, {"paddingIdx": 2}], indices)
    for mode in ("sum", "mean", "max"):
        layer(nn.EmbeddingBag(5, 3, mode=mode), [5, 3, {"mode": mode}], indices)
        layer(nn.EmbeddingBag(5, 3, mode=mode, padding_idx=2), [5, 3, {"mode": mode, "paddingIdx": 2}], indices.flatten(), torch.tensor([0, 2, 3]))
    layer(nn.EmbeddingBag(5, 3, mode="sum", include_last_offset=True), [5, 3, {"mode": "sum", "includeLastOffset": True}], indices.flatten(),
          torch.tensor([0, 4, 6]), rand(6))
    layer(nn.Bilinear(2, 3, 2, bias=False), [2, 3, 2, {"bias": False}], rand(4, 2), rand(4, 3))

    signs = torch.tensor([[1.0, -1, 1, -1], [1, 1, -1, 1]])
    for reduction in ("mean", "sum", "none"):
        r = {"reduction": reduction}
        layer(nn.GaussianNLLLoss(full=True, reduction=reduction), [{"full": True, **r}], rand(2, 4), rand(2, 4), positive(2, 4))
        layer(nn.HingeEmbeddingLoss(margin=0.7, reduction=reduction), [{"margin": 0.7, **r}], rand(2, 4), signs, fixed=[1])
        layer(nn.MultiLabelMarginLoss(reduction=reduction), [r], rand(2, 4), torch.tensor([[3, 0, -1, 1], [1, -1, 2, 0]]))
        layer(nn.MultiLabelSoftMarginLoss(weight=torch.tensor([1.0, 2, 0.5, 1]), reduction=reduction), [{"weight": {"shape": [4], "data": [1, 2, 0.5, 1]}, **r}],
              rand(2, 4), (signs > 0).float(), fixed=[1])
        layer(nn.MultiMarginLoss(p=2, margin=0.8, reduction=reduction), [{"p": 2, "margin": 0.8, **r}], rand(3, 4), torch.tensor([1, 3, 0]))
        layer(nn.PoissonNLLLoss(full=True, reduction=reduction), [{"full": True, **r}], rand(2, 4), torch.tensor([[0.0, 1, 2, 5], [3, 1, 0, 7]]), fixed=[1])
        layer(nn.SoftMarginLoss(reduction=reduction), [r], rand(2, 4), signs, fixed=[1])
        layer(nn.CTCLoss(reduction=reduction), [r], torch.log_softmax(rand(5, 2, 4), 2).round(decimals=4), torch.tensor([[1, 2, 2], [3, 1, 0]]),
              plain=[[5, 4], [3, 2]], fixed=[0])
        layer(nn.TripletMarginLoss(swap=True, p=1.0, margin=0.5, reduction=reduction), [{"swap": True, "p": 1, "margin": 0.5, **r}], rand(3, 4), rand(3, 4), rand(3, 4))
        layer(nn.TripletMarginWithDistanceLoss(swap=True, reduction=reduction), [{"swap": True, **r}], rand(3, 4), rand(3, 4), rand(3, 4))
    layer(nn.PoissonNLLLoss(log_input=False), [{"logInput": False}], positive(2, 4), positive(2, 4), fixed=[1])
    layer(nn.MultiMarginLoss(weight=torch.tensor([1.0, 2, 0.5])), [{"weight": {"shape": [3], "data": [1, 2, 0.5]}}], rand(3), torch.tensor(2))
    layer(nn.MultiLabelMarginLoss(), [], rand(4), torch.tensor([3, 0, -1, 1]))
    layer(nn.CTCLoss(blank=1, zero_infinity=True), [{"blank": 1, "zeroInfinity": True}], torch.log_softmax(rand(3, 2, 3), 2).round(decimals=4),
          torch.tensor([2, 0, 2, 2, 2, 0]), plain=[[3, 2], [2, 4]], fixed=[0])
    layer(nn.BCELoss(), [], torch.tensor([[0.0, 1, 0.3]]), torch.tensor([[1.0, 0, 0.5]]), fixed=[1])
    layer(nn.SmoothL1Loss(beta=0.0), [{"beta": 0}], rand(2, 3), rand(2, 3))


functions: List[Dict[str, Any]] = []


def function(name: str, result: Any, *args: Any, fixed: Sequence[int] = ()) -> None:
    """One case: `result` of the tensors among args, and what the function in JavaScript is given."""
    given = [x.clone().requires_grad_() if isinstance(x, Tensor) and x.is_floating_point() and i not in fixed else x for i, x in enumerate(args)]
    outputs = flat(result(*[x for x in given if isinstance(x, Tensor)]))
    functions.append({"name": name, "args": [{"tensor": pack(x)} if isinstance(x, Tensor) else {"value": x} for x in args],
                      "fixed": list(fixed), "outputs": [pack(o) for o in outputs], "gradients": gradients(outputs, given)})


def all_functions() -> None:
    torch.manual_seed(1)
    x = rand(2, 3, 4)
    function("prelu", F.prelu, x, rand(3))
    function("glu", lambda a: F.glu(a, 2), x, {"dim": 2})
    function("celu", lambda a: F.celu(a, 0.7), x, 0.7)
    function("rrelu", lambda a: F.rrelu(a, 0.1, 0.4), x, {"lower": 0.1, "upper": 0.4})
    function("threshold", lambda a: F.threshold(a, 0.2, -1), x, 0.2, -1)
    function("leakyRelu", lambda a: F.leaky_relu(a, 0.2), x, {"negativeSlope": 0.2})
    function("logSoftmax", lambda a: F.log_softmax(a, 1), x, 1)
    function("normalize", lambda a: F.normalize(a, p=3.0, dim=2), x, {"p": 3, "dim": 2})
    function("oneHot", lambda a: F.one_hot(a, 4), torch.tensor([[1, 3], [0, 2]]), 4)
    function("pdist", lambda a: F.pdist(a, 2.0), rand(4, 3))
    function("layerNorm", lambda a: F.layer_norm(a, [4]), x, [4])
    function("localResponseNorm", lambda a: F.local_response_norm(a, 2), x, 2)
    function("instanceNorm", F.instance_norm, x)
    function("batchNorm", lambda a, m, v: F.batch_norm(a, m, v), x, rand(3), positive(3), fixed=[1, 2])
    function("bilinear", F.bilinear, rand(2, 5, 2), rand(2, 5, 3), rand(4, 2, 3))
    function("crossEntropy", lambda a, t: F.cross_entropy(a, t, ignore_index=1), rand(4, 3), torch.tensor([0, 1, 2, 1]), {"ignoreIndex": 1})
    q, k, v = rand(1, 2, 3, 4), rand(1, 2, 5, 4), rand(1, 2, 5, 4)
    function("scaledDotProductAttention", F.scaled_dot_product_attention, q, k, v)
    function("scaledDotProductAttention", lambda a, b, c: F.scaled_dot_product_attention(a, b, c, is_causal=True, scale=0.3), q[0], q[0] * 0.5, q[0] * 2, None,
             {"isCausal": True, "scale": 0.3})
    function("pad", lambda a: F.pad(a, (1, 2, 0, 1), value=1.5), x, [1, 2, 0, 1], {"value": 1.5})
    for align in (False, True):
        function("affineGrid", lambda a: F.affine_grid(a, [2, 1, 3, 4], align_corners=align), rand(2, 2, 3), [2, 1, 3, 4], {"alignCorners": align})
        function("affineGrid", lambda a: F.affine_grid(a, [1, 1, 2, 3, 1], align_corners=align), rand(1, 3, 4), [1, 1, 2, 3, 1], {"alignCorners": align})
        for mode in ("bilinear", "nearest"):
            for padding in ("zeros", "border", "reflection"):
                function("gridSample", lambda a, g: F.grid_sample(a, g, mode, padding, align), rand(2, 2, 3, 4), rand(2, 3, 2, 2),
                         {"mode": mode, "paddingMode": padding, "alignCorners": align})
        function("gridSample", lambda a, g: F.grid_sample(a, g, align_corners=align), rand(1, 2, 2, 3, 2), rand(1, 2, 1, 2, 3, scale=0.6), {"alignCorners": align})
    image = rand(1, 2, 4, 5)
    for mode in ("bilinear", "bicubic"):
        function("interpolate", lambda a: F.interpolate(a, size=(2, 3), mode=mode, antialias=True), image, {"size": [2, 3], "mode": mode, "antialias": True})
        function("interpolate", lambda a: F.interpolate(a, scale_factor=(0.5, 1.3), mode=mode, recompute_scale_factor=True), image,
                 {"scaleFactor": [0.5, 1.3], "mode": mode, "recomputeScaleFactor": True})


def optimizers() -> Dict[str, Any]:
    """Parameters after steps on a small problem, and learning rates by step."""
    torch.manual_seed(2)
    start, target = [rand(3, 2), rand(4)], [rand(3, 2), rand(4)]

    def loss(ps: List[Tensor]) -> Tensor:
        return sum((((p - t) ** 2) * (1 + torch.arange(p.numel()).reshape(p.shape))).sum() for p, t in zip(ps, target)) + (ps[0].sum() * ps[1].sum()).sin()

    made = []
    for name, options, js in (
        ("SGD", dict(lr=0.01, momentum=0.9, maximize=True), {"lr": 0.01, "momentum": 0.9, "maximize": True}),
        ("Adam", dict(lr=0.1, maximize=True, weight_decay=0.1), {"lr": 0.1, "maximize": True, "weightDecay": 0.1}),
        ("AdamW", dict(lr=0.1, amsgrad=True), {"lr": 0.1, "amsgrad": True, "weightDecay": 0.01}),
        ("RMSprop", dict(lr=0.05, centered=True, momentum=0.5), {"lr": 0.05, "centered": True, "momentum": 0.5}),
        ("Adagrad", dict(lr=0.3, lr_decay=0.1), {"lr": 0.3, "lrDecay": 0.1}),
        ("Adadelta", dict(lr=2.0), {"lr": 2}),
        ("Adamax", dict(lr=0.1), {"lr": 0.1}),
        ("NAdam", dict(lr=0.1), {"lr": 0.1}),
        ("RAdam", dict(lr=0.1), {"lr": 0.1}),
        ("Rprop", dict(lr=0.05), {"lr": 0.05}),
        ("Rprop", dict(lr=0.05, etas=(0.4, 1.5), step_sizes=(1e-3, 0.2)), {"lr": 0.05, "etaMinus": 0.4, "etaPlus": 1.5, "stepSizeMin": 1e-3, "stepSizeMax": 0.2}),
        ("ASGD", dict(lr=0.02, t0=4, weight_decay=0.1), {"lr": 0.02, "t0": 4, "weightDecay": 0.1}),
        ("ASGD", dict(lr=0.02, lambd=0.1, alpha=0.5, t0=2, maximize=True), {"lr": 0.02, "lambd": 0.1, "alpha": 0.5, "t0": 2, "maximize": True}),
        ("LBFGS", dict(lr=0.1, max_iter=3), {"lr": 0.1, "maxIter": 3}),
        ("LBFGS", dict(max_iter=4, line_search_fn="strong_wolfe", history_size=5), {"maxIter": 4, "lineSearchFn": "strong_wolfe", "historySize": 5}),
    ):
        ps = [p.clone().requires_grad_() for p in start]
        optimizer = getattr(torch.optim, name)(ps, **options)

        def closure() -> Tensor:
            optimizer.zero_grad()
            value = loss(ps)
            value.backward()
            return value

        losses = [float(optimizer.step(closure)) for _ in range(8)]
        made.append({"name": name, "options": js, "losses": losses, "params": [pack(p) for p in ps]})

    schedules = []
    S = torch.optim.lr_scheduler
    for name, make, js, steps in (
        ("CyclicLR", lambda o: S.CyclicLR(o, 0.01, 0.1, 3, 2), {"baseLr": 0.01, "maxLr": 0.1, "stepSizeUp": 3, "stepSizeDown": 2}, 12),
        ("CyclicLR", lambda o: S.CyclicLR(o, 0.01, 0.1, 2, mode="triangular2"), {"baseLr": 0.01, "maxLr": 0.1, "stepSizeUp": 2, "mode": "triangular2"}, 12),
        ("CyclicLR", lambda o: S.CyclicLR(o, 0.01, 0.1, 2, mode="exp_range", gamma=0.9, base_momentum=0.5, max_momentum=0.7),
         {"baseLr": 0.01, "maxLr": 0.1, "stepSizeUp": 2, "mode": "exp_range", "gamma": 0.9, "baseMomentum": 0.5, "maxMomentum": 0.7}, 12),
        ("OneCycleLR", lambda o: S.OneCycleLR(o, 0.2, total_steps=10), {"maxLr": 0.2, "totalSteps": 10, "cycleMomentum": True}, 10),
        ("OneCycleLR", lambda o: S.OneCycleLR(o, 0.2, epochs=3, steps_per_epoch=4, three_phase=True, anneal_strategy="linear"),
         {"maxLr": 0.2, "epochs": 3, "stepsPerEpoch": 4, "threePhase": True, "annealStrategy": "linear", "cycleMomentum": True}, 12),
        ("SWALR", lambda o: torch.optim.swa_utils.SWALR(o, 0.02, anneal_epochs=4), {"swaLr": 0.02, "annealEpochs": 4}, 7),
        ("SWALR", lambda o: torch.optim.swa_utils.SWALR(o, 0.02, anneal_epochs=3, anneal_strategy="linear"), {"swaLr": 0.02, "annealEpochs": 3, "annealStrategy": "linear"}, 6),
    ):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1, momentum=0.6)
        scheduler = make(optimizer)
        rates = []
        for _ in range(steps):
            group = optimizer.param_groups[0]
            rates.append([group["lr"], group["momentum"]])
            optimizer.step()
            if len(rates) < steps:
                scheduler.step()
        schedules.append({"name": name, "options": js, "rates": rates})
    return {"start": [pack(p) for p in start], "target": [pack(t) for t in target], "optimizers": made, "schedulers": schedules}


def write(name: str, value: Any) -> None:
    (HERE / name).write_text(json.dumps(value, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    all_layers()
    write("torch_layers.json", layers)
    all_functions()
    write("torch_functions.json", functions)
    write("torch_optim.json", optimizers())
