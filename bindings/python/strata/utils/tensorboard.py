"""torch.utils.tensorboard.SummaryWriter: scalars, text, histograms and images in TensorBoard's own file format, for which
nothing has to be installed. A file is a row of records (length, masked CRC of it, an Event of protocol buffers, its CRC), as
TensorFlow writes them."""

from __future__ import annotations

import os
import socket
import struct
import time
import zlib
from datetime import datetime
from typing import Any, Dict, List, Optional

from .._once import once

__all__ = ["FileWriter", "SummaryWriter"]

_CRC = []
for _n in range(256):
    for _ in range(8):
        _n = _n >> 1 ^ (0x82F63B78 if _n & 1 else 0)
    _CRC.append(_n)


def _masked_crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(n: int) -> bytes:
    n &= 0xFFFFFFFFFFFFFFFF
    out = b""
    while n > 0x7F:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def _bytes(field: int, data: Any) -> bytes:
    content: bytes = data.encode() if isinstance(data, str) else data
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _int(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _array(value: Any) -> Any:
    import numpy as np

    detach = getattr(value, "detach", None)
    return np.asarray(value if detach is None else detach().cpu().float().numpy() if value.is_floating_point() else detach().cpu().numpy())


class FileWriter:
    """One file of events."""

    def __init__(self, log_dir: Any, max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = "") -> None:
        self._folder: str = os.fspath(log_dir)
        os.makedirs(self._folder, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{id(self) % 100000}{filename_suffix}"
        self.path = os.path.join(self._folder, name)
        self._file = open(self.path, "ab")
        self._write(_double(1, time.time()) + _bytes(3, "brain.Event:2"))
        self.flush()

    def get_logdir(self) -> str:
        """The folder."""
        return self._folder

    def _write(self, event: bytes) -> None:
        head = struct.pack("<Q", len(event))
        self._file.write(head + struct.pack("<I", _masked_crc(head)) + event + struct.pack("<I", _masked_crc(event)))

    def add(self, value: bytes, step: Optional[int], walltime: Optional[float]) -> None:
        """One value of a Summary."""
        self._write(_double(1, time.time() if walltime is None else walltime) + _int(2, int(step or 0)) + _bytes(5, _bytes(1, value)))

    def flush(self) -> None:
        """Hands what was written to the system."""
        if not self._file.closed:
            self._file.flush()

    def close(self) -> None:
        """Ends the file."""
        self._file.close()


def _plugin(name: str) -> bytes:
    return _bytes(9, _bytes(1, _bytes(1, name)))


def _png(rows: Any) -> bytes:
    height, width, channels = rows.shape
    kind = {1: 0, 3: 2, 4: 6}[channels]

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    lines = b"".join(b"\0" + rows[i].tobytes() for i in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


class SummaryWriter:
    """Logs of a training for TensorBoard: ``writer.add_scalar("loss", loss, step)``."""

    def __init__(self, log_dir: Any = None, comment: str = "", purge_step: Optional[int] = None, max_queue: int = 10,
                 flush_secs: int = 120, filename_suffix: str = "") -> None:
        if not log_dir:
            log_dir = os.path.join("runs", datetime.now().strftime("%b%d_%H-%M-%S") + "_" + socket.gethostname() + comment)
        self.log_dir: str = os.fspath(log_dir)
        self._suffix = filename_suffix
        self.file_writer = FileWriter(self.log_dir, filename_suffix=filename_suffix)
        self._others: Dict[str, FileWriter] = {}

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    def _add(self, tag: str, content: bytes, step: Optional[int], walltime: Optional[float]) -> None:
        self.file_writer.add(_bytes(1, tag) + content, step, walltime)

    def add_scalar(self, tag: str, scalar_value: Any, global_step: Optional[int] = None, walltime: Optional[float] = None,
                   new_style: bool = False, double_precision: bool = False) -> None:
        """One number."""
        self._add(tag, _scalar(scalar_value), global_step, walltime)

    def add_scalars(self, main_tag: str, tag_scalar_dict: Dict[str, Any], global_step: Optional[int] = None,
                    walltime: Optional[float] = None) -> None:
        """Numbers of one diagram, each in a file of its own, as PyTorch writes them."""
        for tag, value in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, main_tag.replace("/", "_") + "_" + tag)
            if folder not in self._others:
                self._others[folder] = FileWriter(folder, filename_suffix=self._suffix)
            self._others[folder].add(_bytes(1, main_tag) + _scalar(value), global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: Optional[int] = None, walltime: Optional[float] = None) -> None:
        """A text, as Markdown."""
        tensor = _int(1, 7) + _bytes(2, _bytes(2, _int(1, 1))) + _bytes(8, str(text_string))
        self._add(tag + "/text_summary", _bytes(8, tensor) + _plugin("text"), global_step, walltime)

    def add_histogram(self, tag: str, values: Any, global_step: Optional[int] = None, bins: Any = "tensorflow",
                      walltime: Optional[float] = None, max_bins: Optional[int] = None) -> None:
        """How the values are distributed."""
        import numpy as np

        a = _array(values).reshape(-1).astype(np.float64)
        if a.size == 0:
            raise ValueError("add_histogram: the input has no elements")
        count, edges = np.histogram(a, bins="auto" if bins == "tensorflow" and a.size < 2 else 30 if bins == "tensorflow" else bins)
        data = b"".join(_double(i + 1, float(v)) for i, v in enumerate((a.min(), a.max(), a.size, a.sum(), (a * a).sum())))
        limits = np.concatenate([edges[1:]]).astype("<f8").tobytes()
        data += _bytes(6, limits) + _bytes(7, count.astype("<f8").tobytes())
        self._add(tag, _bytes(5, data), global_step, walltime)

    def add_image(self, tag: str, img_tensor: Any, global_step: Optional[int] = None, walltime: Optional[float] = None,
                  dataformats: str = "CHW") -> None:
        """A picture of uint8, or of floats in [0, 1]."""
        import numpy as np

        a = _array(img_tensor)
        if a.ndim != len(dataformats):
            raise ValueError(f"add_image: dataformats {dataformats} of a tensor of {a.ndim} dimensions")
        letters = dataformats.upper()
        a = a[..., None] if "C" not in letters else a.transpose([letters.index(c) for c in "HWC"])
        if a.dtype != np.uint8:
            a = (a * 255).clip(0, 255).astype(np.uint8)
        if a.shape[2] not in (1, 3, 4):
            raise ValueError(f"add_image: 1, 3 or 4 channels are wanted, got {a.shape[2]}")
        content = _int(1, a.shape[0]) + _int(2, a.shape[1]) + _int(3, a.shape[2]) + _bytes(4, _png(np.ascontiguousarray(a)))
        self._add(tag, _bytes(4, content), global_step, walltime)

    def add_images(self, tag: str, img_tensor: Any, global_step: Optional[int] = None, walltime: Optional[float] = None,
                   dataformats: str = "NCHW") -> None:
        """Pictures side by side."""
        import numpy as np

        a = _array(img_tensor)
        letters = dataformats.upper()
        rows = a.transpose([letters.index(c) for c in "NHWC"])
        self.add_image(tag, np.concatenate(list(rows), 1), global_step, walltime, "HWC")

    def add_figure(self, tag: str, figure: Any, global_step: Optional[int] = None, close: bool = True,
                   walltime: Optional[float] = None) -> None:
        """A figure of Matplotlib, or several."""
        import numpy as np
        from matplotlib import pyplot as plt  # type: ignore[import-not-found, unused-ignore]
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # type: ignore[import-not-found, unused-ignore]

        for one in figure if isinstance(figure, list) else [figure]:
            canvas = FigureCanvasAgg(one)
            canvas.draw()
            self.add_image(tag, np.asarray(canvas.buffer_rgba())[..., :3], global_step, walltime, "HWC")
            if close:
                plt.close(one)

    def add_hparams(self, hparam_dict: Dict[str, Any], metric_dict: Dict[str, Any], hparam_domain_discrete: Any = None,
                    run_name: Optional[str] = None, global_step: Optional[int] = None) -> None:
        """The settings as a table of text, the metrics as numbers."""
        table = "| | |\n|-|-|\n" + "\n".join(f"| {k} | {v} |" for k, v in hparam_dict.items())
        self.add_text("hparams", table, global_step)
        for name, value in metric_dict.items():
            self.add_scalar(name, value, global_step)

    def add_graph(self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True) -> None:
        """Writes nothing, and says so once: there is no traced graph."""
        once("add_graph", "add_graph() writes nothing: modules are not traced")

    def flush(self) -> None:
        """Hands what was written to the system."""
        for writer in self._writers():
            writer.flush()

    def close(self) -> None:
        """Ends the files."""
        for writer in self._writers():
            writer.close()

    def _writers(self) -> List[FileWriter]:
        return [self.file_writer, *self._others.values()]

    def __enter__(self) -> "SummaryWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("add_"):
            raise AttributeError(f"SummaryWriter.{name}() is not there; scalars, text, histograms, images and figures are written")
        raise AttributeError(name)


def _scalar(value: Any) -> bytes:
    return _varint(2 << 3 | 5) + struct.pack("<f", float(value))
