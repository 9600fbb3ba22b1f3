"""What a competent team would run on one GPU in Python, for `photofinish-bench gpu-check`: the peer of the service there.

Networks are those of Photofinish, in ONNX Runtime's Python package; everything else is OpenCV and numpy. Modes:

- `batched`: processes, one a core, decode photos and, later, cut out faces and lines of text; frames lie in shared memory.
  The main process gathers photos of one shape into batches and runs the networks on them, several batches at a time, so that
  the GPU works while tensors of other batches are made.
- `one-by-one`: one photo after the other in one process, with calls of networks for that photo alone.

Per photo: decode at the smallest scale of JPEG whose long side is at least 1280, frame of 1280, faces at 640, one vector a face
(5-point alignment), text detection on the whole frame, a reading of every line. It does less than the service: it receives no
uploads, writes no previews and no database, and the working frame is the largest picture that it makes.

The last line of standard output is a JSON object. Linux only. Needs opencv-python-headless, numpy and onnxruntime.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import pathlib
import queue
import resource
import sys
import threading
import time
from collections import defaultdict
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Callable, Optional, Sequence

# BLAS would start a thread a core in each of the processes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import cv2
import numpy as np

import gpu_peer_photos as work
from gpu_peer_photos import CROP, FACE_SCORE, LINE_HEIGHT, Photo, Slots, cut_out, decode

FACES, VECTORS, TEXT, READING = "yunet_n_dynamic", "omz_face_reid_0095_fused", "ch_PP-OCRv4_det_infer", "rec_v4_alnum"
TEXT_READ = 0.5
LINE_WIDTHS = (160, 320, work.WIDEST_LINE)
# Faces and lines of a call, on a GPU: it computes new shapes slowly, so a call is filled up to one of these.
CALL_SIZES = (8, 32)
BATCHES_AT_ONCE = 3


class Networks:
    """The four networks on a device. A call is made by one thread at a time for each."""

    def __init__(self, models: pathlib.Path, device: str, search: str) -> None:
        import onnxruntime

        if device == "cuda" and hasattr(onnxruntime, "preload_dlls"):
            onnxruntime.preload_dlls()
        self.runtime, self.device, self.models, self.search = onnxruntime, device, models, search
        self.sessions: dict[tuple, object] = {}
        self.locks: defaultdict = defaultdict(threading.Lock)
        self.opening = threading.Lock()
        self.outputs = [output.name for output in self.session((FACES,)).get_outputs()]
        self.provider = self.session((FACES,)).get_providers()[0]
        metadata = self.session((READING,)).get_modelmeta().custom_metadata_map
        self.characters = ["", *metadata["character"].splitlines(), " "]
        if device == "cuda":
            for size in CALL_SIZES:
                self.embed([np.zeros((CROP, CROP, 3), np.uint8)] * size)
                for width in LINE_WIDTHS:
                    self.read([np.zeros((LINE_HEIGHT, width, 3), np.uint8)] * size)

    def session(self, key: tuple):
        """The session of a network, whose file is the first part of the key; the rest is a shape. Each shape has its own: a
        session prepares its convolutions anew when the shape changes."""
        with self.opening:
            if key not in self.sessions:
                options = self.runtime.SessionOptions()
                options.intra_op_num_threads = 1 if self.device == "cuda" else os.cpu_count() or 1
                options.add_session_config_entry("session.intra_op.allow_spinning", "0")
                cpu, wanted = "CPUExecutionProvider", "CUDAExecutionProvider"
                # Memory for what is needed, not for the next power of two: every shape has its own.
                cuda = (wanted, {"arena_extend_strategy": "kSameAsRequested", "cudnn_conv_algo_search": self.search})
                providers = [cuda, cpu] if self.device == "cuda" else [cpu]
                if self.device == "cuda" and wanted not in self.runtime.get_available_providers():
                    sys.exit(f"this onnxruntime {self.runtime.__version__} was built without CUDA")
                session = self.runtime.InferenceSession(
                    str(self.models / f"{key[0]}.onnx"), options, providers=providers)
                if self.device == "cuda" and wanted not in session.get_providers():
                    sys.exit("CUDA was asked for, but ONNX Runtime could not load its libraries or found no GPU")
                self.sessions[key] = session
            return self.sessions[key]

    def run(self, key: tuple, tensor: np.ndarray) -> list[np.ndarray]:
        session = self.session(key)
        with self.locks[key]:
            return session.run(None, {session.get_inputs()[0].name: tensor})

    def fill_up(self, items: list, size: int) -> list:
        """Repeats the last item, so that a GPU sees few shapes; a CPU gets no more than there is."""
        return items + items[-1:] * (size - len(items)) if self.device == "cuda" else items

    def detect_faces(self, frames: list[np.ndarray], size: int) -> list[np.ndarray]:
        """Candidates of each frame, see `cut_out`."""
        tensor = cv2.dnn.blobFromImages(self.fill_up(frames, size))
        outputs = dict(zip(self.outputs, self.run((FACES, *tensor.shape), tensor)))
        found: list[list[np.ndarray]] = [[] for _ in frames]
        for stride in (8, 16, 32):
            classes, objects = outputs[f"cls_{stride}"][..., 0], outputs[f"obj_{stride}"][..., 0]
            scores = np.sqrt(np.clip(classes, 0, 1) * np.clip(objects, 0, 1))[: len(frames)]
            which, cells = np.nonzero(scores >= FACE_SCORE)
            corner = np.column_stack(np.divmod(cells, tensor.shape[3] // stride)[::-1])
            box, points = (outputs[f"{name}_{stride}"][which, cells] for name in ("bbox", "kps"))
            sizes = np.exp(box[:, 2:]) * stride
            starts = (corner + box[:, :2]) * stride - sizes / 2
            points = (points.reshape(-1, 5, 2) + corner[:, None]) * stride
            rows = np.column_stack([scores[which, cells], starts, sizes, points.reshape(-1, 10)])
            for photo, row in zip(which, rows):
                found[photo].append(row)
        return [np.array(rows, np.float32).reshape(-1, 15) for rows in found]

    def map_text(self, frames: list[np.ndarray], size: int) -> np.ndarray:
        tensor = cv2.dnn.blobFromImages(self.fill_up(frames, size), 2 / 255, mean=(127.5, 127.5, 127.5))
        return self.run((TEXT, *tensor.shape), tensor)[0][: len(frames), 0]

    def call(self, name: str, items: list[np.ndarray], to_tensor: Callable, *key: int) -> list[np.ndarray]:
        """Runs a network on pictures, in calls of few sizes."""
        rows: list[np.ndarray] = []
        for start in range(0, len(items), CALL_SIZES[-1]):
            part = items[start : start + CALL_SIZES[-1]]
            size = next(size for size in CALL_SIZES if size >= len(part))
            rows.extend(self.run((name, size, *key), to_tensor(self.fill_up(part, size)))[0][: len(part)])
        return rows

    def embed(self, faces: list[np.ndarray]) -> list[np.ndarray]:
        vectors = self.call(VECTORS, faces, cv2.dnn.blobFromImages)
        return [vector / np.linalg.norm(vector) for vector in vectors]

    def read(self, lines: list[np.ndarray]) -> list[tuple[str, float]]:
        """Reads lines, those of similar width together; returns texts and confidences in the order of the lines."""
        texts: list[tuple[str, float]] = [("", 0.0)] * len(lines)
        groups = defaultdict(list)
        for number, line in enumerate(lines):
            groups[next(width for width in LINE_WIDTHS if width >= line.shape[1])].append(number)
        for width, numbers in groups.items():
            def to_tensor(part: list[np.ndarray], width: int = width) -> np.ndarray:
                tensor = np.zeros((len(part), 3, LINE_HEIGHT, width), np.float32)
                for row, line in zip(tensor, part):
                    row[:, :, : line.shape[1]] = line.transpose(2, 0, 1) * np.float32(2 / 255) - 1
                return tensor

            outputs = np.array(self.call(READING, [lines[n] for n in numbers], to_tensor, width))
            for number, best, sure in zip(numbers, outputs.argmax(2), outputs.max(2)):
                kept = (best != 0) & np.concatenate([[True], best[1:] != best[:-1]])
                text = "".join(self.characters[index] for index in best[kept])
                texts[number] = text, float(sure[kept].mean()) if text else 0.0
        return texts


@dataclass
class Found:
    file: str
    faces: int
    texts: list[str]


def process(photos: list[Photo], networks: Networks, size: int, pool: Optional[ProcessPoolExecutor]) -> list[Found]:
    """Runs everything after decoding on photos of one shape."""
    candidates = networks.detect_faces([work.slots.small(photo.slot, photo.small) for photo in photos], size)
    maps = networks.map_text([work.slots.frame(photo.slot, photo.frame) for photo in photos], size)
    for photo, text_map in zip(photos, maps):
        work.slots.text_map(photo.slot, photo.frame)[:] = text_map
    cut = list((pool.map if pool else map)(cut_out, photos, candidates))
    faces, lines = [], []
    for photo, (count, widths) in zip(photos, cut):
        out = work.slots.cutouts(photo.slot)
        at = count * CROP * CROP * 3
        faces.extend(out[:at].reshape(count, CROP, CROP, 3))
        for width in widths:
            lines.append(out[at : at + LINE_HEIGHT * width * 3].reshape(LINE_HEIGHT, width, 3))
            at += lines[-1].size
    networks.embed(faces)
    texts = iter(networks.read(lines))
    read = [[text for text, sure in itertools.islice(texts, len(widths)) if text and sure >= TEXT_READ] for _, widths in cut]
    return [Found(photo.file, count, texts) for photo, (count, _), texts in zip(photos, cut, read)]


def run_one_by_one(files: Sequence[str], networks: Networks) -> list[Found]:
    return [process([decode(file, 0)], networks, 1, None)[0] for file in files]


def run_batched(
    files: Sequence[str], networks: Networks, batch: int, pool: ProcessPoolExecutor, workers: int
) -> list[Found]:
    """Keeps the processes decoding and batches in work. A photo has its slot until its batch is done."""
    waiting, free = list(reversed(files)), list(range(len(work.slots.memory)))
    ended: queue.SimpleQueue[Future] = queue.SimpleQueue()
    decoding, working, found = 0, {}, []
    gathered = defaultdict(list)
    with ThreadPoolExecutor(BATCHES_AT_ONCE) as threads:
        while waiting or decoding or working or any(gathered.values()):
            # Few, as what follows detection waits behind them.
            while waiting and free and decoding < 2 * workers:
                pool.submit(decode, waiting.pop(), free.pop()).add_done_callback(ended.put)
                decoding += 1
            largest = max(gathered, key=lambda shape: len(gathered[shape]), default=None)
            no_more = not decoding and not working
            if largest and gathered[largest] and (len(gathered[largest]) >= batch or no_more or not (waiting or decoding)):
                photos, gathered[largest] = gathered[largest][:batch], gathered[largest][batch:]
                future = threads.submit(process, photos, networks, batch, pool)
                working[future] = [photo.slot for photo in photos]
                future.add_done_callback(ended.put)
                continue
            future = ended.get()
            if future in working:
                found.extend(future.result())
                free.extend(working.pop(future))
            else:
                photo = future.result()
                gathered[photo.shape].append(photo)
                decoding -= 1
    return found


def cpu_seconds() -> float:
    """User and system time of this process and its running children."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    ticks = 0
    for child in multiprocessing.active_children():
        fields = pathlib.Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return usage.ru_utime + usage.ru_stime + ticks / os.sysconf("SC_CLK_TCK")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=("batched", "one-by-one"), required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), required=True)
    parser.add_argument("--models", type=pathlib.Path, required=True, help="folder of the networks")
    parser.add_argument("--photos", type=pathlib.Path, required=True, help="folder of JPEG files")
    parser.add_argument("--count", type=int, required=True, help="photos; files are repeated until then")
    parser.add_argument("--warm-up", type=int, default=16, help="photos before, which do not count")
    parser.add_argument("--search", choices=("EXHAUSTIVE", "HEURISTIC"), default="EXHAUSTIVE",
                        help="how cuDNN chooses its algorithms, for each shape while warming up")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes that decode")
    parser.add_argument("--found", type=pathlib.Path, help="file for what was found in each photo, as JSON")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    files = sorted(str(file) for file in arguments.photos.rglob("*") if file.suffix.lower() in (".jpg", ".jpeg"))
    if not files:
        sys.exit(f"no photos in {arguments.photos}")
    batched = arguments.mode == "batched"
    count = arguments.batch * (BATCHES_AT_ONCE + 2) + 2 * arguments.workers if batched else 1
    work.slots, path = Slots.create(count)
    pool = None
    if batched:
        context = multiprocessing.get_context("spawn")
        initial = (path, count, context.Barrier(arguments.workers))
        pool = ProcessPoolExecutor(arguments.workers, context, work.start_process, initial)
        list(pool.map(abs, range(arguments.workers)))
    networks = Networks(arguments.models, arguments.device, arguments.search)

    def run(number: int) -> list[Found]:
        taken = list(itertools.islice(itertools.cycle(files), number))
        if pool:
            return run_batched(taken, networks, arguments.batch, pool, arguments.workers)
        return run_one_by_one(taken, networks)

    run(arguments.warm_up)
    clock, cpu = time.perf_counter(), cpu_seconds()
    found = run(arguments.count)
    seconds, cpu = time.perf_counter() - clock, cpu_seconds() - cpu
    if arguments.found:
        arguments.found.write_text(json.dumps([vars(photo) for photo in found]))
    print(json.dumps({
        "mode": arguments.mode,
        "photos": len(found),
        "faces": sum(photo.faces for photo in found),
        "texts": sum(len(photo.texts) for photo in found),
        "photos_per_s": round(len(found) / seconds, 2),
        "cpu_ms_per_photo": round(1e3 * cpu / len(found), 2),
        "provider": networks.provider,
        "onnxruntime": networks.runtime.__version__,
    }))
    if pool:
        pool.shutdown()


if __name__ == "__main__":
    main()
