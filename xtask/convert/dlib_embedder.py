"""Builds dlib's face recognition ResNet as ONNX from the TensorFlow.js weights of the package face-api.

usage: dlib_embedder.py WEIGHTS_MANIFEST.json WEIGHTS.bin OUT.onnx

Input `input` [N,3,150,150] RGB 0..255, output `embedding` [N,128], not normalised.

Most weights are stored as bytes with a scale and an offset per tensor. The network has 29 convolutions, each followed by
a learned scale and bias per channel; those two and the input's normalisation, (x - mean) / 255, are folded into the
convolutions. Sums run in float64 and by `fsum`, so that the result does not depend on how a machine adds.
"""

import json
import math
import sys

import numpy

from onnx_graph import GraphBuilder

MEAN_RGB = numpy.array([122.782, 117.001, 104.298])

# Residual blocks in order. A block with `_down` in its name halves the sides.
BLOCKS = (
    ["conv32_1", "conv32_2", "conv32_3"]
    + ["conv64_down", "conv64_1", "conv64_2", "conv64_3"]
    + ["conv128_down", "conv128_1", "conv128_2"]
    + ["conv256_down", "conv256_1", "conv256_2"]
    + ["conv256_down_out"]
)


def read_weights(manifest_path, bytes_path):
    """Returns the float32 tensors by name."""
    with open(bytes_path, "rb") as file:
        content = file.read()
    with open(manifest_path, encoding="utf-8") as file:
        entries = [entry for group in json.load(file) for entry in group["weights"]]
    weights, offset = {}, 0
    for entry in entries:
        packing = entry.get("quantization", {"dtype": entry["dtype"], "scale": 1, "min": 0})
        stored = numpy.frombuffer(content, packing["dtype"], math.prod(entry["shape"]), offset)
        offset += stored.nbytes
        values = stored.astype(numpy.float32) * numpy.float32(packing["scale"]) + numpy.float32(packing["min"])
        weights[entry["name"]] = values.reshape(entry["shape"])
    if offset != len(content):
        sys.exit(f"{bytes_path}: the manifest describes {offset} bytes, the file has {len(content)}")
    return weights


class DlibResNet:
    """Adds the network's layers to a graph; `side` is the current height and width of the feature map."""

    def __init__(self, weights):
        self.weights = weights
        self.graph = GraphBuilder("dlib_face_recognition_resnet")
        self.side = 150
        self.channels = 3

    def convolution(self, value, name, stride, pad):
        """Adds a convolution, with the scale and bias layer after it folded in."""
        filters = self.weights[f"{name}/conv/filters"].astype(numpy.float64).transpose(3, 2, 0, 1)
        bias = self.weights[f"{name}/conv/bias"].astype(numpy.float64)
        if self.channels == 3:
            # Exact: this convolution has no padding, which would have to be the mean instead of 0.
            darkness = (filters * (MEAN_RGB / 255).reshape(1, 3, 1, 1)).reshape(len(filters), -1)
            bias = bias - numpy.array([math.fsum(row) for row in darkness])
            filters = filters / 255
        scale = self.weights[f"{name}/scale/weights"].astype(numpy.float64)
        filters = filters * scale.reshape(-1, 1, 1, 1)
        bias = bias * scale + self.weights[f"{name}/scale/biases"].astype(numpy.float64)
        kernel = filters.shape[2]
        self.channels = len(filters)
        return self.graph.node(
            "Conv",
            [value, self.graph.weight(f"{name}/filters", filters), self.graph.weight(f"{name}/bias", bias)],
            name,
            kernel_shape=[kernel, kernel],
            pads=[pad] * 4,
            strides=[stride, stride],
        )

    def block(self, value, name):
        """Adds a residual block: two convolutions with a shortcut around them."""
        halves = "_down" in name
        before, side_before = self.channels, self.side
        inner = self.convolution(value, f"{name}/conv1", 2 if halves else 1, 0 if halves else 1)
        inner = self.graph.node("Relu", [inner], f"{name}/relu1")
        inner = self.convolution(inner, f"{name}/conv2", 1, 1)
        around = value
        if halves:
            inner, around = self.halved(inner, value, name, before, side_before)
        total = self.graph.node("Add", [inner, around], f"{name}/sum")
        return self.graph.node("Relu", [total], f"{name}/relu2")

    def halved(self, inner, value, name, channels_before, side_before):
        """Gives both branches the same shape: the shortcut is average-pooled and gets zero channels; where the unpadded
        convolution is one row and column smaller than the pooled shortcut, it is padded with zeros."""
        convolved, averaged = (side_before - 3) // 2 + 1, side_before // 2
        around = self.graph.node(
            "AveragePool", [value], f"{name}/average", kernel_shape=[2, 2], strides=[2, 2]
        )
        if convolved != averaged:
            inner = self.padded(inner, f"{name}/side_pad", [0, 0, 0, 0, 0, 0, 1, 1])
        if self.channels != channels_before:
            missing = self.channels - channels_before
            around = self.padded(around, f"{name}/channel_pad", [0, 0, 0, 0, 0, missing, 0, 0])
        self.side = averaged
        return inner, around

    def padded(self, value, name, amounts):
        """Pads a value with zeros; `amounts` are those before each axis, then those after each."""
        pads = self.graph.weight(f"{name}/amounts", numpy.array(amounts))
        return self.graph.node("Pad", [value, pads], name)

    def build(self, path):
        """Writes the whole network to `path`."""
        value = self.convolution("input", "conv32_down", 2, 0)
        value = self.graph.node("Relu", [value], "conv32_down/relu")
        value = self.graph.node("MaxPool", [value], "pool", kernel_shape=[3, 3], strides=[2, 2])
        self.side = 35
        for name in BLOCKS:
            value = self.block(value, name)
        value = self.graph.node("GlobalAveragePool", [value], "mean")
        value = self.graph.node("Flatten", [value], "features", axis=1)
        matrix = self.graph.weight("projection", self.weights["fc"])
        self.graph.node("MatMul", [value, matrix], "embedding")
        self.graph.save(path, ("input", ["N", 3, 150, 150]), ("embedding", ["N", 128]))


if __name__ == "__main__":
    DlibResNet(read_weights(sys.argv[1], sys.argv[2])).build(sys.argv[3])
