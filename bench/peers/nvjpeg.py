"""How fast nvJPEG decodes photos on this machine's GPU, for `photofinish-bench gpu-check`: what decoding on the device would give.

Each backend decodes the same photos in batches into memory of the device, as interleaved RGB, at full size; the engine at half
too. The bitstreams are in the host's memory, as they are after a download, so their copies count.

The last line of standard output is a JSON array with an object for each measurement: `backend`, `scale` (one divided by it),
`batch`, `engines` (those for JPEG, times their cores), `photos_per_s`, `gigapixels_per_s` (of the photos before scaling) and
`cpu_ms_per_photo` of all threads; or `error` in the place of the figures. Linux only. Needs nvJPEG and CUDA's runtime library: PyPI's nvidia-nvjpeg and nvidia-cuda-runtime.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import pathlib
import resource
import sys
import time
from ctypes import byref, c_int, c_size_t, c_ubyte, c_uint, c_void_p
from dataclasses import dataclass

CUDART, NVJPEG = "libcudart.so.13", "libnvjpeg.so.13"
# `nvjpegBackend_t`: Huffman codes by the CPU, by the GPU's arithmetic, by the engine for JPEG.
HARDWARE = 3
BACKENDS = {"hybrid": 1, "gpu": 2, "hardware": HARDWARE}
# `nvjpegOutputFormat_t`
INTERLEAVED_RGB = 5
# `nvjpegScaleFactor_t`. Only the engine scales.
HALF = 1
COMPONENTS = 4


class Image(ctypes.Structure):
    """`nvjpegImage_t`."""

    _fields_ = [("channel", c_void_p * COMPONENTS), ("pitch", c_size_t * COMPONENTS)]


def load(name: str) -> ctypes.CDLL:
    """Opens a library by its name, or in the folder of one of the packages of this Python."""
    folders = [pathlib.Path(path) / "nvidia" for path in sys.path]
    found = [str(file) for folder in folders if folder.is_dir() for file in folder.glob(f"*/lib/{name}")]
    for path in [name, *found]:
        try:
            return ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
        except OSError as error:
            reason = error
    raise reason


cuda, nvjpeg = load(CUDART), load(NVJPEG)


def check(status: int, what: str) -> None:
    if status:
        raise RuntimeError(f"{what}: status {status}")


@dataclass
class Photo:
    jpeg: bytes
    width: int
    height: int


class Decoder:
    """A backend with its state for batches of one size."""

    def __init__(self, backend: int, batch: int, threads: int) -> None:
        self.handle, self.state, self.parameters = c_void_p(), c_void_p(), c_void_p()
        check(nvjpeg.nvjpegCreateEx(backend, None, None, c_uint(0), byref(self.handle)), "nvjpegCreateEx")
        check(nvjpeg.nvjpegJpegStateCreate(self.handle, byref(self.state)), "nvjpegJpegStateCreate")
        check(nvjpeg.nvjpegDecodeParamsCreate(self.handle, byref(self.parameters)), "nvjpegDecodeParamsCreate")
        check(nvjpeg.nvjpegDecodeParamsSetOutputFormat(self.parameters, INTERLEAVED_RGB), "output format")
        check(nvjpeg.nvjpegDecodeParamsSetScaleFactor(self.parameters, HALF), "scale")
        check(
            nvjpeg.nvjpegDecodeBatchedInitialize(self.handle, self.state, batch, threads, INTERLEAVED_RGB),
            "nvjpegDecodeBatchedInitialize",
        )

    def read_size(self, jpeg: bytes) -> tuple[int, int]:
        components, subsampling = c_int(), c_int()
        widths, heights = (c_int * COMPONENTS)(), (c_int * COMPONENTS)()
        check(
            nvjpeg.nvjpegGetImageInfo(
                self.handle, jpeg, c_size_t(len(jpeg)), byref(components), byref(subsampling), widths, heights),
            "nvjpegGetImageInfo",
        )
        return widths[0], heights[0]

    def decode(self, photos: list[Photo], targets: ctypes.Array, scale: int) -> None:
        count, stream = len(photos), c_void_p()
        data = (ctypes.c_char_p * count)(*[photo.jpeg for photo in photos])
        lengths = (c_size_t * count)(*[len(photo.jpeg) for photo in photos])
        if scale == 1:
            status = nvjpeg.nvjpegDecodeBatched(self.handle, self.state, data, lengths, targets, stream)
        else:
            parameters = (c_void_p * count)(*[self.parameters.value] * count)
            status = nvjpeg.nvjpegDecodeBatchedEx(
                self.handle, self.state, data, lengths, targets, parameters, stream)
        check(status, "decoding a batch")
        check(cuda.cudaStreamSynchronize(stream), "waiting for a batch")

    def describe(self) -> str:
        """The engines and their cores, where there are any."""
        engines, cores = c_uint(), c_uint()
        status = nvjpeg.nvjpegGetHardwareDecoderInfo(self.handle, byref(engines), byref(cores))
        return f"status {status}" if status else f"{engines.value} x {cores.value}"

    def close(self) -> None:
        nvjpeg.nvjpegDecodeParamsDestroy(self.parameters)
        nvjpeg.nvjpegJpegStateDestroy(self.state)
        nvjpeg.nvjpegDestroy(self.handle)


class Targets:
    """Memory of the device for the pictures of a batch."""

    def __init__(self, photos: list[Photo], scale: int) -> None:
        self.images = (Image * len(photos))()
        self.memory: list[c_void_p] = []
        for image, photo in zip(self.images, photos):
            width, height = -(-photo.width // scale), -(-photo.height // scale)
            memory = c_void_p()
            size = c_size_t(width * height * 3)
            check(cuda.cudaMalloc(byref(memory), size), "cudaMalloc")
            self.memory.append(memory)
            # What was freed before still has its pictures, which would pass for decoded ones.
            check(cuda.cudaMemset(memory, 0, size), "cudaMemset")
            image.channel[0], image.pitch[0] = memory.value, width * 3

    def find_blank(self, photos: list[Photo], scale: int) -> list[int]:
        """The pictures whose middle row is all zeros: those that were not decoded."""
        blank = []
        for number, (memory, photo) in enumerate(zip(self.memory, photos)):
            width, height = -(-photo.width // scale), -(-photo.height // scale)
            row = (c_ubyte * (width * 3))()
            start = c_void_p(memory.value + height // 2 * width * 3)
            check(cuda.cudaMemcpy(row, start, c_size_t(len(row)), 2), "cudaMemcpy")
            if not any(row):
                blank.append(number)
        return blank

    def free(self) -> None:
        for memory in self.memory:
            cuda.cudaFree(memory)


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(decoder: Decoder, photos: list[Photo], scale: int, seconds: float) -> dict:
    """Decodes the batch again and again for so long."""
    targets = Targets(photos, scale)
    try:
        # The first batches make room.
        for _ in range(2):
            decoder.decode(photos, targets.images, scale)
        clock, cpu, batches = time.perf_counter(), cpu_seconds(), 0
        while time.perf_counter() - clock < seconds:
            decoder.decode(photos, targets.images, scale)
            batches += 1
        elapsed, cpu = time.perf_counter() - clock, cpu_seconds() - cpu
        blank = targets.find_blank(photos, scale)
        if blank:
            raise RuntimeError(f"pictures {blank} of the batch are blank")
    finally:
        targets.free()
    decoded = batches * len(photos)
    pixels = sum(photo.width * photo.height for photo in photos) * batches
    return {
        "photos_per_s": round(decoded / elapsed, 1),
        "gigapixels_per_s": round(pixels / elapsed / 1e9, 2),
        "cpu_ms_per_photo": round(1e3 * cpu / decoded, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=pathlib.Path, required=True, help="folder of JPEG files")
    parser.add_argument("--batch", type=int, default=16, help="photos of a call; files are repeated until then")
    parser.add_argument("--threads", type=int, default=16, help="most threads of a backend that computes on the CPU")
    parser.add_argument("--seconds", type=float, default=2.0, help="time of each measurement")
    arguments = parser.parse_args()
    files = sorted(file for file in arguments.photos.iterdir() if file.suffix.lower() in (".jpg", ".jpeg"))
    if not files:
        sys.exit(f"no photos in {arguments.photos}")
    jpegs = [files[number % len(files)].read_bytes() for number in range(arguments.batch)]
    measured = []
    for name, backend in BACKENDS.items():
        for scale in (1, 2) if backend == HARDWARE else (1,):
            row: dict = {"backend": name, "scale": scale, "batch": arguments.batch}
            try:
                decoder = Decoder(backend, arguments.batch, arguments.threads)
                row["engines"] = decoder.describe()
                try:
                    photos = [Photo(jpeg, *decoder.read_size(jpeg)) for jpeg in jpegs]
                    row |= measure(decoder, photos, scale, arguments.seconds)
                finally:
                    decoder.close()
            except RuntimeError as error:
                row["error"] = str(error)
            measured.append(row)
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
