"""Searches vectors with faiss and prints times and hits as JSON, for `photofinish-bench search`.

Arguments: folder of `rows.f32` and `probes.f32` (little-endian float32, row after row), dimension, hits, threads,
repetitions. Times are in milliseconds; building an index is not timed.
"""

import json
import pathlib
import sys
import time

import faiss
import numpy


def measure(index, probes, hits, repetitions):
    """Returns times of searches with one probe and with all, and the hits of all."""
    one, many = [], []
    index.search(probes[:1], hits)
    for number in range(repetitions):
        probe = probes[number % len(probes)][None, :]
        start = time.perf_counter()
        index.search(probe, hits)
        one.append(1e3 * (time.perf_counter() - start))
    for _ in range(-(-repetitions // 3)):
        start = time.perf_counter()
        _, rows = index.search(probes, hits)
        many.append(1e3 * (time.perf_counter() - start))
    return {"one_ms": one, "many_ms": many, "hits": rows.tolist()}


def main():
    folder = pathlib.Path(sys.argv[1])
    dimension, hits, threads, repetitions = (int(word) for word in sys.argv[2:6])
    faiss.omp_set_num_threads(threads)
    rows, probes = (
        numpy.fromfile(folder / name, dtype="<f4").reshape(-1, dimension) for name in ("rows.f32", "probes.f32")
    )
    flat = faiss.IndexFlatIP(dimension)
    flat.add(rows)
    results = {"faiss, IndexFlatIP": measure(flat, probes, hits, repetitions)}
    del flat
    kind = faiss.ScalarQuantizer.QT_8bit
    scalar = faiss.IndexScalarQuantizer(dimension, kind, faiss.METRIC_INNER_PRODUCT)
    scalar.train(rows[:100_000])
    scalar.add(rows)
    results["faiss, SQ8"] = measure(scalar, probes, hits, repetitions)
    print(json.dumps(results))


main()
