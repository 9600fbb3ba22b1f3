"""Trains the gate with JAX on one CPU core and writes it as ONNX.

usage: train.py OUT.onnx TRAIN.npz... [--check CHECK.npz] [--epochs 14] [--seed 0]

The network: 96 x 144 pixels, BGR, 0 to 255 -> seven convolutions, 70,416 weights -> per cell of 12 x 8 the probabilities
of text that may be a bib and of a number; the scores are their maxima.
"""

import argparse
import os
import time
from functools import partial
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import jax
import jax.numpy as jnp
import numpy as np

import onnx_file

CHANNELS = (16, 32, 32, 48, 48, 48)
KERNELS = (5, 3, 3, 3, 3, 3)
STRIDES = (3, 2, 1, 2, 1, 1)
BATCH, RATE, DECAY, EPSILON = 64, 3e-3, 1e-2, 1e-3
# How much more a cell with text counts than one without, and the part of the loss on cells.
POSITIVE_WEIGHT, CELL_WEIGHT = 4.0, 4.0


def load(files):
    sets = [np.load(file) for file in files]
    return {key: np.concatenate([s[key] for s in sets]) for key in ("image", "text", "number", "score")}


def initial(seed):
    rng = np.random.default_rng(seed)
    layers, inputs = [], 3
    for outputs, kernel in zip(CHANNELS, KERNELS):
        weights = rng.normal(size=(kernel, kernel, inputs, outputs)) * np.sqrt(2 / (kernel * kernel * inputs))
        layers.append({"w": jnp.float32(weights), "g": jnp.ones(outputs), "b": jnp.zeros(outputs)})
        inputs = outputs
    layers.append({"w": jnp.float32(rng.normal(size=(1, 1, inputs, 2)) * 0.05), "b": jnp.full(2, -2.0)})
    return layers, [(jnp.zeros(c), jnp.ones(c)) for c in CHANNELS]


def padding(kernel, stride):
    """So that a side is divided by the stride exactly."""
    return (kernel - stride + 1) // 2, (kernel - stride) // 2


def network(layers, statistics, x, training):
    """Logits per cell, and the running statistics of the batch norms."""
    x = x / 127.5 - 1
    updated = []
    for layer, (mean, variance), kernel, stride in zip(layers, statistics, KERNELS, STRIDES):
        pad = padding(kernel, stride)
        x = jax.lax.conv_general_dilated(x, layer["w"], (stride, stride), (pad, pad), dimension_numbers=("NHWC", "HWIO", "NHWC"))
        if training:
            m, v = x.mean((0, 1, 2)), x.var((0, 1, 2))
            updated.append((0.95 * mean + 0.05 * m, 0.95 * variance + 0.05 * v))
            mean, variance = m, v
        x = jax.nn.relu((x - mean) * jax.lax.rsqrt(variance + EPSILON) * layer["g"] + layer["b"])
    return jnp.einsum("nhwc,cd->nhwd", x, layers[-1]["w"][0, 0]) + layers[-1]["b"], updated


def cross_entropy(logit, target):
    return jnp.maximum(logit, 0) - logit * target + jnp.log1p(jnp.exp(-jnp.abs(logit)))


def loss(layers, statistics, x, cells, scores):
    """Over the cells, and over the best cell against whether the torso has text and a number."""
    logits, updated = network(layers, statistics, x, True)
    weight = 1 + (POSITIVE_WEIGHT - 1) * cells
    per_cell = (weight * cross_entropy(logits, cells)).mean((0, 1, 2)).sum() * CELL_WEIGHT
    per_torso = cross_entropy(logits.max((1, 2)), scores).mean(0).sum()
    return per_cell + per_torso, updated


@jax.jit
def step(state, count, rate, x, cells, scores):
    """One step of AdamW."""
    layers, statistics, first, second = state
    (value, statistics), gradient = jax.value_and_grad(loss, has_aux=True)(layers, statistics, x, cells, scores)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, gradient)

    def move(p, m, v):
        direction = m / (1 - 0.9**count) / (jnp.sqrt(v / (1 - 0.99**count)) + 1e-7)
        return p - rate * (direction + (DECAY * p if p.ndim == 4 else 0))

    return (jax.tree.map(move, layers, first, second), statistics, first, second), value


@partial(jax.jit, static_argnums=())
def infer(layers, statistics, x):
    return jax.nn.sigmoid(network(layers, statistics, x, False)[0]).max((1, 2))


def report(state, data, name):
    """How many torsos without text or number fall below the score that keeps 99, 98 and 95 % of the others."""
    layers, statistics = state[:2]
    parts = [infer(layers, statistics, np.float32(data["image"][i:i + 100])) for i in range(0, len(data["image"]), 100)]
    scores = np.concatenate(parts)
    for channel, what in enumerate(("text", "number")):
        with_it = data["score"][:, channel] > 0
        limits = np.quantile(scores[with_it, channel], [0.01, 0.02, 0.05])
        skipped = [(scores[~with_it, channel] < limit).mean() for limit in limits]
        print(name, what, f"{with_it.mean():.2f} have it; of the others", " ".join(f"{s:.2f}" for s in skipped),
              "are below the scores that keep .99 .98 .95", flush=True)


def train(data, check, epochs, seed):
    rng = np.random.default_rng(seed)
    layers, statistics = initial(seed)
    zeros = jax.tree.map(jnp.zeros_like, layers)
    state = (layers, statistics, zeros, zeros)
    cells = np.stack([data["text"], data["number"]], -1)
    count = len(data["image"])
    batches = count // BATCH
    total = epochs * batches
    started, average = time.time(), 0.0
    for k in range(total):
        if k % batches == 0:
            order = rng.permutation(count)
        chosen = order[k % batches * BATCH:][:BATCH]
        x, c = np.float32(data["image"][chosen]), np.float32(cells[chosen])
        if rng.random() < 0.3:
            x, c = x[:, :, ::-1], c[:, :, ::-1]
        x = x * np.float32(rng.uniform(0.8, 1.2, (BATCH, 1, 1, 1))) * np.float32(rng.uniform(0.9, 1.1, (BATCH, 1, 1, 3)))
        rate = RATE * min(1, k / 100) * (0.5 + 0.5 * np.cos(np.pi * k / total)) + 1e-5
        state, value = step(state, k + 1.0, rate, x, c, data["score"][chosen])
        average += (float(value) - average) * (0.02 if k > 50 else 1 / (k + 1))
        if k % 500 == 499:
            print(f"{k + 1} of {total} steps, {time.time() - started:.0f} s, loss {average:.3f}", flush=True)
    if check is not None:
        report(state, check, "check")
    return state


def write(state, path, metadata):
    """Batch norms and the scaling of the input are folded into the weights, except that padding needs the input's mean."""
    layers, statistics = state[:2]
    tensors = {"scale": np.float32(1 / 127.5), "one": np.float32(1)}
    nodes = [onnx_file.node("Mul", ["image", "scale"], "scaled"), onnx_file.node("Sub", ["scaled", "one"], "x0")]
    for i, layer in enumerate(layers):
        last = i == len(layers) - 1
        weights, bias = np.asarray(layer["w"]), np.asarray(layer["b"])
        if not last:
            factor = np.asarray(layer["g"]) / np.sqrt(np.asarray(statistics[i][1]) + EPSILON)
            weights, bias = weights * factor, bias - np.asarray(statistics[i][0]) * factor
        stride = 1 if last else STRIDES[i]
        before, after = (0, 0) if last else padding(KERNELS[i], stride)
        tensors |= {f"w{i}": weights.transpose(3, 2, 0, 1), f"b{i}": bias}
        output = "logits" if last else f"c{i}"
        nodes.append(onnx_file.node("Conv", [f"x{i}", f"w{i}", f"b{i}"], output, strides=[stride, stride], pads=[before, before, after, after]))
        if not last:
            nodes.append(onnx_file.node("Relu", [output], f"x{i + 1}"))
    nodes += [onnx_file.node("Sigmoid", ["logits"], "map"), onnx_file.node("ReduceMax", ["map"], "score", axes=[2, 3], keepdims=0)]
    outputs = {"map": (1, 2, 12, 8), "score": (1, 2)}
    path.write_bytes(onnx_file.model(nodes, tensors, {"image": (1, 3, 144, 96)}, outputs, metadata))


def compare(state, path, images):
    """The largest difference between the file under ONNX Runtime and the trained network."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    wanted = np.asarray(infer(*state[:2], np.float32(images)))
    got = np.concatenate([session.run(["score"], {"image": np.float32(i[None].transpose(0, 3, 1, 2))})[0] for i in images])
    return float(np.abs(wanted - got).max())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--check", type=Path)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip-below", default="0.01")
    parser.add_argument("--second-pass-from", default="0")
    parser.add_argument("--small-from", default="0.1")
    arguments = parser.parse_args()
    data = load(arguments.data)
    check = load([arguments.check]) if arguments.check else None
    print(len(data["image"]), "torsos", flush=True)
    state = train(data, check, arguments.epochs, arguments.seed)
    names = ("skip_below", "second_pass_from", "small_from")
    write(state, arguments.out, {name: getattr(arguments, name) for name in names})
    difference = compare(state, arguments.out, data["image"][:100])
    print(f"{arguments.out.stat().st_size} bytes, ONNX Runtime differs by {difference:.1e}")
    assert difference < 1e-3


if __name__ == "__main__":
    main()
