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
    "max_dim": "max", "min_dim": "min", "median_dim": "median", "nanmedian_dim": "nanmedian",
    "im2col": "unfold", "col2im": "fold", "constant_pad": "pad", "standard_gamma": "_standard_gamma", "standard_gamma_grad": "_standard_gamma_grad",
    "dirichlet": "_sample_dirichlet", "weight_norm": "_weight_norm",
}


def peer(root, name):
    """What found() gives, else the function that PyTorch has under another name; None where there is none."""
    f = found(root, name)
    if f is None and name.startswith("linalg_"):
        f = getattr(root.linalg, name.removeprefix("linalg_"), None)
    if f is None and RENAMED.get(name):
        f = getattr(root, RENAMED[name], None) or found(root, RENAMED[name])
    if f is None:
        f = getattr(root.nn.utils.rnn, name, None)
    return f


def recurrent(torch, v, states=1):
    """No initial state means zeros here, PyTorch wants them; packed sequences are another order of arguments there."""
    x, weights, sizes = v["input"], v["params"], v["batch_sizes"]
    hx = v["hx"]
    if hx is None or (isinstance(hx, list) and not hx):
        batch = sizes[0] if sizes is not None else x.shape[0 if v["batch_first"] else 1]
        layers = v["num_layers"] * (2 if v["bidirectional"] else 1)
        zeros = torch.zeros(layers, int(batch), weights[1].shape[1], dtype=x.dtype, device=x.device)
        hx = [zeros] * states if states > 1 else zeros
    rest = [hx, weights, v["has_biases"], v["num_layers"], v["dropout"], v["train"], v["bidirectional"]]
    return [x, *rest, v["batch_first"]] if sizes is None else [x, sizes, *rest]


def lstm(torch, v):
    return recurrent(torch, v, 2)


def batch_norm(torch, v):
    return [v["x"], None, None, v["weight"], v["bias"], True, 0.1, v["eps"]]


# Records whose arguments stand otherwise in PyTorch: PyTorch's by position, from the record's by name.
ADAPTED = {"lstm": lstm, "gru": recurrent, "rnn_tanh": recurrent, "rnn_relu": recurrent, "batch_norm": batch_norm}
