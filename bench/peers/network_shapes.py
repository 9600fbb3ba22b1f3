"""How long each network takes in ONNX Runtime on a device, by the shape of its input: what a call costs, and what a new shape costs.

Of each network it prints the first call with a shape, in which cuDNN plans and compiles, the median of calls with input and output
in the host's memory and of calls with both on the device, the median of two calls that alternate between two shapes, and the
largest difference from the CPU with and without TF32. Input is random. Needs onnxruntime-gpu and numpy for `--device cuda`.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import time
from typing import Callable

import numpy as np
import onnxruntime

NETWORKS = {
    "yunet_n_dynamic": [(items, 3, 448, 640) for items in (1, 4, 16)],
    "omz_face_reid_0095_fused": [(items, 3, 128, 128) for items in (1, 8, 64)],
    "ch_PP-OCRv4_det_infer": [(items, 3, 320, 256) for items in (1, 16, 64)],
    "rec_v4_alnum": [(items, 3, 48, 160) for items in (1, 8, 64)],
}
CALLS = 20
MAX_MS = 1500.0


def open_session(file: pathlib.Path, device: str, tf32: bool = True) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    cuda = ("CUDAExecutionProvider", {"cudnn_conv_algo_search": "HEURISTIC", "use_tf32": str(int(tf32))})
    providers = ([cuda] if device == "cuda" else []) + ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(str(file), options, providers=providers)
    if device == "cuda" and session.get_providers()[0] != cuda[0]:
        raise SystemExit("ONNX Runtime could not use CUDA")
    return session


def measure(call: Callable[[], object]) -> str:
    times: list[float] = []
    while len(times) <= CALLS and sum(times[1:]) < MAX_MS:
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return f"first {times[0]:.1f} ms, median of {len(times) - 1} more {statistics.median(times[1:]):.2f} ms"


def bind(session: onnxruntime.InferenceSession, name: str, tensor: np.ndarray) -> Callable[[], object]:
    binding = session.io_binding()
    binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(tensor, "cuda", 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda")
    return lambda: session.run_with_iobinding(binding)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, required=True, help="folder of the networks")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments = parser.parse_args()
    print(f"ONNX Runtime {onnxruntime.__version__}, {arguments.device}")
    for network, shapes in NETWORKS.items():
        file = arguments.models / f"{network}.onnx"
        session = open_session(file, arguments.device)
        name = session.get_inputs()[0].name
        tensors = [np.random.default_rng(1).random(shape, np.float32) for shape in shapes]
        for tensor in tensors:
            print(network, tensor.shape, measure(lambda: session.run(None, {name: tensor})), flush=True)
        last_two = tensors[-2:]
        print(network, "two shapes in turn", measure(lambda: [session.run(None, {name: t}) for t in last_two]), flush=True)
        if arguments.device == "cuda":
            print(network, tensors[-1].shape, "bound", measure(bind(session, name, tensors[-1])), flush=True)
            expected = open_session(file, "cpu").run(None, {name: tensors[0]})
            for tf32 in (True, False):
                found = open_session(file, "cuda", tf32).run(None, {name: tensors[0]})
                difference = max(float(np.abs(a - b).max()) for a, b in zip(found, expected))
                print(network, f"TF32 {tf32}: largest difference from the CPU {difference:.5f}", flush=True)


if __name__ == "__main__":
    main()
