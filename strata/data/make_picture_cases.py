"""Writes picture_cases.jsonl: small PNG and JPEG files, and what Pillow's convert("RGB") makes of each.

make_picture_cases.py > picture_cases.jsonl
"""

import io
import json
import struct
import zlib

import numpy as np
from PIL import Image


def png(width, height, depth, colour, rows, interlaced=False, more=b""):
    """A file of rows of bytes as the format has them, by hand: kinds that Pillow does not write."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + more + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def interlaced(pixels):
    """Adam7: seven pictures of every eighth, fourth and second pixel."""
    rows = []
    for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        part = pixels[y0::dy, x0::dx]
        rows += [row.tobytes() for row in part if row.size]
    return rows


def main():
    random = np.random.default_rng(5)
    wave = np.add.outer(np.arange(7) * 14, np.arange(9) * 11)
    colour = np.stack([wave, 255 - wave, wave * wave % 256], 2).clip(0, 255).astype(np.uint8)
    noise = random.integers(0, 256, (7, 9, 3), dtype=np.uint8)
    grey, alpha = colour[:, :, 0], noise[:, :, 1]
    files = {}

    def save(name, image, **options):
        out = io.BytesIO()
        image.save(out, **options)
        files[name] = out.getvalue()

    save("png-rgb", Image.fromarray(noise), format="PNG")
    save("png-rgba", Image.fromarray(np.dstack([colour, alpha])), format="PNG")
    save("png-grey", Image.fromarray(grey), format="PNG")
    save("png-grey-alpha", Image.fromarray(np.dstack([grey, alpha])), format="PNG")
    save("png-bits", Image.fromarray(colour[:, :, 2] > 99), format="PNG")
    save("png-palette", Image.fromarray(colour).quantize(7), format="PNG")
    save("png-palette-transparent", Image.fromarray(colour).quantize(7), format="PNG", transparency=2)
    gamma = struct.pack(">I", 4) + b"gAMA" + struct.pack(">I", 20000)
    gamma += struct.pack(">I", zlib.crc32(gamma[4:]))
    files["png-gamma"] = png(9, 7, 8, 2, [row.tobytes() for row in colour], more=gamma)
    wide = random.integers(0, 65536, (7, 9, 3), dtype=np.uint16).astype(">u2")
    files["png-16"] = png(9, 7, 16, 2, [row.tobytes() for row in wide])
    files["png-interlaced"] = png(9, 7, 8, 2, interlaced(noise), interlaced=True)
    files["png-one"] = png(1, 1, 8, 0, [b"\x80"])
    save("jpeg", Image.fromarray(colour), format="JPEG", quality=92, subsampling=0, optimize=True)
    save("jpeg-420", Image.fromarray(colour), format="JPEG", quality=80, subsampling=2, optimize=True)
    save("jpeg-422", Image.fromarray(colour), format="JPEG", quality=60, subsampling=1, optimize=True)
    save("jpeg-grey", Image.fromarray(grey), format="JPEG", quality=75, optimize=True)
    save("jpeg-progressive", Image.fromarray(colour), format="JPEG", quality=85, progressive=True)
    save("jpeg-cmyk", Image.fromarray(colour).convert("CMYK"), format="JPEG", optimize=True)
    for name, data in files.items():
        picture = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        print(json.dumps({"name": name, "file": data.hex(), "height": picture.shape[0], "width": picture.shape[1],
                          "pixels": picture.tobytes().hex()}))


if __name__ == "__main__":
    main()
