"""The engine's errors. Each is also what a Python user expects: a ShapeError is a ValueError, an IoError an OSError."""

from ._core import (
    AutogradError,
    DeviceError,
    DTypeError,
    IndexError,
    IoError,
    LinAlgError,
    MemoryError,
    PluginError,
    ShapeError,
    StrataError,
    ValueError,
)

__all__ = [
    "AutogradError",
    "DTypeError",
    "DeviceError",
    "IndexError",
    "IoError",
    "LinAlgError",
    "MemoryError",
    "OutOfMemoryError",
    "PluginError",
    "ShapeError",
    "StrataError",
    "ValueError",
]

OutOfMemoryError = MemoryError  # PyTorch's name
