"""PyTorch's function of a record's name, and how the record's arguments are called there: what comparing values
(bindings/python/tests/test_against_torch.py) and comparing times (compare_ops.py) both need."""

# Schema names that PyTorch spells otherwise.
SPELLED = {"x": "input", "a": "input", "b": "other", "q": "query", "k": "key", "v": "value", "kernel": "kernel_size",
           "shape": "size", "sorted": "sorted_sequence", "pads": "pad"}
NAMESPACES = ("nn.functional", "", "special", "linalg", "Tensor")


def found(root, name):
    """PyTorch's public functions of that name, or Strata's."""
    for space in NAMESPACES:
        holder = root
        for part in filter(None, space.split(".")):
            holder = getattr(holder, part, None)
        f = getattr(holder, name, None)
        if callable(f) and not isinstance(f, type):
            return f
    return None


def arguments(schema):
    """(name, type, default text or None) of each argument."""
    text, depth, parts = schema[schema.index("(") + 1 :], 0, [""]
    for c in text:
        if c == ")" and depth == 0:
            break
        depth += (c in "[(") - (c in "])")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    result = []
    for part in filter(str.strip, parts):
        declared, _, default = part.strip().partition("=")
        kind, name = declared.rsplit(" ", 1)
        result.append((name, kind, default or None))
    return result


DTYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "u8": "uint8", "i8": "int8",
          "i16": "int16", "i32": "int32", "i64": "int64", "bool": "bool"}


def numbers(v):
    return float(v) if isinstance(v, str) else v


def flat(result):
    return [result] if not isinstance(result, (tuple, list)) else list(result)


def call_torch(f, names, values, required):
    """By keywords for what has a default, else all by position: PyTorch's own argument names differ between functions."""
    try:
        return f(*values[:required], **dict(zip(names[required:], values[required:])))
    except TypeError as first:
        try:
            return f(*values)
        except TypeError:
            raise first from None


# Records whose function has another name in PyTorch.
RENAMED = {
    "add_scalar": "add", "div_scalar": "div", "mul_scalar": "mul", "pow_scalar": "pow", "rsub_scalar": "rsub", "scalar_pow": "pow",
    "max_dim": "max", "min_dim": "min", "median_dim": "median", "nanmedian_dim": "nanmedian", "unique_dim": "unique",
    "im2col": "unfold", "col2im": "fold", "constant_pad": "pad", "weight_norm": "_weight_norm", "batch_norm_running": "batch_norm",
    "standard_gamma": "_standard_gamma", "standard_gamma_grad": "_standard_gamma_grad", "dirichlet": "_sample_dirichlet",
}


def sequences(name):
    """A recurrent layer as its module calls it: one sequence alone is a batch of one, along dimension `alone`."""
    def of(torch):
        f = getattr(torch, name)

        def call(*values, alone=None):
            if alone is None:
                return f(*values)
            y, *states = f(*values)
            return (y.squeeze(alone), *(s.squeeze(1) for s in states))
        return call
    return of


# Records for which it is a method or an operator.
WRITTEN = {
    **{name: sequences(name) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    "unfold": lambda torch: torch.Tensor.unfold,
    "index": lambda torch: lambda x, indices: x[tuple(slice(None) if i is None else i for i in indices)],
    "index_put": lambda torch: lambda x, indices, values, accumulate=False: (
        torch.ops.aten.index_put if any(i is None for i in indices) else torch.index_put)(x, indices, values, accumulate),
    "slice": lambda torch: lambda x, dim, start, end, step: x[(slice(None),) * (dim % x.dim()) + (slice(start, end, step),)],
    # The records copy where nothing is dropped; st.nn.functional.dropout passes its argument through before it comes to one, as
    # PyTorch's function does.
    "dropout": lambda torch: lambda x, p: x.clone() if p == 0 else torch.dropout(x, p, True),
    "uniform": lambda torch: lambda shape, low, high, dtype, device: torch.empty(shape, dtype=dtype, device=device).uniform_(low, high),
    "conv_same": lambda torch: lambda x, weight, bias, dilation, groups: getattr(torch.nn.functional, f"conv{weight.dim() - 2}d")(
        x, weight, bias, 1, "same", dilation, groups),
}


def peer(torch, name):
    """What found() gives, else what PyTorch has under another name; None where there is nothing."""
    if name in WRITTEN:
        return WRITTEN[name](torch)
    f = found(torch, name)
    if f is None and name.startswith("linalg_"):
        f = getattr(torch.linalg, name.removeprefix("linalg_"), None)
    if f is None and name in RENAMED:
        f = found(torch, RENAMED[name])
    return f or getattr(torch.nn.utils.rnn, name, None)


def recurrent(torch, v, states=1):
    """No initial state means zeros here, PyTorch wants them; packed sequences are another order of arguments there."""
    x, weights, sizes, hx = v["input"], v["params"], v["batch_sizes"], v["hx"]
    alone = None
    if sizes is None and x.dim() == 2:  # read as [T, B, in] beyond its end on a card
        alone = 0 if v["batch_first"] else 1
        x = x.unsqueeze(alone)
        hx = [h.unsqueeze(1) for h in hx] if isinstance(hx, list) else None if hx is None else hx.unsqueeze(1)
    if hx is None or (isinstance(hx, list) and not hx):
        batch = sizes[0] if sizes is not None else x.shape[0 if v["batch_first"] else 1]
        layers = v["num_layers"] * (2 if v["bidirectional"] else 1)
        zeros = torch.zeros(layers, int(batch), weights[1].shape[1], dtype=x.dtype, device=x.device)
        hx = [zeros] * states if states > 1 else zeros
    rest = [hx, weights, v["has_biases"], v["num_layers"], v["dropout"], v["train"], v["bidirectional"]]
    return ([x, *rest, v["batch_first"]] if sizes is None else [x, sizes, *rest]), {} if alone is None else {"alone": alone}


def lstm(torch, v):
    return recurrent(torch, v, 2)


def training(torch, v):
    """What draws numbers: PyTorch's function passes its argument through unless it is told that it trains."""
    return [*v.values(), True]


def windows(torch, v):
    """A list of one number stands for every axis: PyTorch takes the number, and None for an empty list."""
    return [(x[0] if len(x) == 1 and name != "output_size" else x or None) if isinstance(x, list) else x for name, x in v.items()]


# Records whose arguments stand otherwise in PyTorch: PyTorch's by position, or these and others by name, from the record's.
ADAPTED = {
    "lstm": lstm, "gru": recurrent, "rnn_tanh": recurrent, "rnn_relu": recurrent,
    "batch_norm": lambda torch, v: [v["x"], None, None, v["weight"], v["bias"], True, 0.1, v["eps"]],
    "convolution": lambda torch, v: [*list(v.values())[:6], False, [0] * len(v["stride"]), v["groups"]],
    "im2col": windows, "lp_pool1d": windows, "lp_pool2d": windows, "lp_pool3d": windows,
    "max_unpool1d": windows, "max_unpool2d": windows, "max_unpool3d": windows,
    "feature_dropout": training, "alpha_dropout": training, "feature_alpha_dropout": training, "rrelu": training,
    "cartesian_prod": lambda torch, v: v["tensors"], "block_diag": lambda torch, v: v["tensors"],
    "gradient": lambda torch, v: ([v["x"]], {"dim": v["dims"] or list(range(v["x"].dim())), "edge_order": v["edge_order"],
                                             **({"spacing": v["spacing"]} if v["spacing"] else {})}),
    "linalg_solve_triangular": lambda torch, v: ([v["A"], v["B"]], {k: v[k] for k in ("upper", "left", "unitriangular")}),
    "one_hot": lambda torch, v: [v["x"].long(), v["num_classes"]],
    # The records always copy; Tensor.to passes a tensor of that dtype through before it comes to one, as PyTorch's does.
    "to": lambda torch, v: ([v["x"], v["dtype"]], {"copy": True}),
    "clone": lambda torch, v: ([v["x"]], {"memory_format": torch.contiguous_format if v["row_major"] else torch.preserve_format}),
    "tensordot": lambda torch, v: [v["a"], v["b"], (v["dims_a"], v["dims_b"])],
    "pack_padded_sequence": lambda torch, v: [v["input"], v["lengths"], v["batch_first"], False],
    "unique_dim": lambda torch, v: [v["x"], True, v["return_inverse"], v["return_counts"], v["dim"]],
}
