"""Tensors to and from NumPy and PyTorch without copies."""

import numpy as np

import strata as st

# NumPy: both see the same memory.
array = np.arange(6, dtype=np.float32).reshape(2, 3)
tensor = st.from_numpy(array)
array[0, 0] = 100
print(tensor)
assert tensor[0, 0].item() == 100
back = tensor.numpy()
tensor.mul_(2)
assert back[0, 0] == 200 and array[0, 0] == 200

# NumPy reads tensors as arrays, and DLPack goes both ways.
assert np.linalg.norm(tensor) == np.linalg.norm(array)
view = np.from_dlpack(tensor)
assert np.shares_memory(view, array)

try:
    import torch  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    print("PyTorch is not installed: its part is left out")
else:
    device = "cuda" if torch.cuda.is_available() and st.cuda.is_available() else "cpu"
    ours = st.randn(2, 3, device=device)
    theirs = torch.from_dlpack(ours)
    theirs += 1
    st.cuda.synchronize() if device == "cuda" else None
    assert torch.from_dlpack(ours).sum().item() == theirs.sum().item()
    again = st.from_dlpack(theirs)
    assert again.data_ptr() == ours.data_ptr()
    print(f"PyTorch {torch.__version__} on {device}: shared")

# A module's weights as NumPy sees them, and weights from another library.
linear = st.nn.Linear(3, 2)
weights = {name: value.numpy() for name, value in linear.state_dict().items()}
linear.load_state_dict({name: st.from_numpy(value * 0) for name, value in weights.items()})
assert linear(st.ones(1, 3)).abs().sum().item() == 0
