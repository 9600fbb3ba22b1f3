"""Builds Open Model Zoo's face-reidentification-retail-0095 as ONNX from its OpenVINO files (FP16).

usage: openvino_embedder.py NETWORK.xml NETWORK.bin OUT.onnx

Input `input` [N,3,128,128] BGR 0..255 (the scaling is in the graph), output `embedding` [N,256], not normalised.

The published form keeps a convolution and its bias as two layers and its activations as PReLU with one slope. Here
a bias joins its convolution and PReLU becomes LeakyReLU: the same sums in nearly half the time.
"""

import sys
import xml.etree.ElementTree as ElementTree

import numpy

from onnx_graph import GraphBuilder

DTYPES = {"f16": numpy.float16, "f32": numpy.float32}


class Network:
    """The layers of an OpenVINO file, in an order in which each comes after what it needs."""

    def __init__(self, xml_path, weights_path):
        root = ElementTree.parse(xml_path).getroot()
        with open(weights_path, "rb") as file:
            self.content = file.read()
        self.layers = {layer.get("id"): layer for layer in root.find("layers")}
        self.sources = {layer: [] for layer in self.layers}
        self.readers = {layer: [] for layer in self.layers}
        edges = sorted(root.find("edges"), key=lambda edge: (edge.get("to-layer"), int(edge.get("to-port"))))
        for edge in edges:
            self.sources[edge.get("to-layer")].append(edge.get("from-layer"))
            self.readers[edge.get("from-layer")].append(edge.get("to-layer"))

    def kind(self, layer):
        return self.layers[layer].get("type")

    def numbers(self, layer, attribute):
        return [int(part) for part in self.layers[layer].find("data").get(attribute).split(",")]

    def ordered(self):
        """Layer ids, inputs before their readers."""
        done, waiting = {}, list(reversed(self.layers))
        while waiting:
            layer = waiting[-1]
            missing = [source for source in self.sources[layer] if source not in done]
            if layer in done or not missing:
                done[layer] = True
                waiting.pop()
            else:
                waiting.extend(missing)
        return list(done)

    def constant(self, layer):
        """The float32 values of a constant layer, also through the layer that widens them; None for any other."""
        if self.kind(layer) == "Convert":
            return self.constant(self.sources[layer][0])
        if self.kind(layer) != "Const":
            return None
        dtype = DTYPES[self.layers[layer].find("data").get("element_type")]
        offset, size = self.numbers(layer, "offset")[0], self.numbers(layer, "size")[0]
        values = numpy.frombuffer(self.content[offset : offset + size], dtype).astype(numpy.float32)
        shape = self.layers[layer].find("data").get("shape")
        return values.reshape(self.numbers(layer, "shape") if shape else [])


class Translation:
    """Turns layers into ONNX nodes; `values` maps a layer to the name of what it gives."""

    def __init__(self, network):
        self.network = network
        self.graph = GraphBuilder("face_reidentification_retail_0095")
        self.values = {}

    def run(self, path):
        actions = {
            "Parameter": self.parameter,
            "Convolution": self.convolution,
            "GroupConvolution": self.convolution,
            "Add": self.arithmetic,
            "Multiply": self.arithmetic,
            "PReLU": self.activation,
            "Sigmoid": lambda layer: self.plain("Sigmoid", layer),
            "AvgPool": lambda layer: self.plain("GlobalAveragePool", layer),
            "Result": self.result,
        }
        for layer in self.network.ordered():
            kind = self.network.kind(layer)
            if kind in ("Const", "Convert") or layer in self.values:
                continue
            if kind not in actions:
                sys.exit(f"layer {layer}: no translation of type {kind}")
            actions[kind](layer)
        self.graph.save(path, ("input", ["N", 3, 128, 128]), ("embedding", ["N", 256]))

    def operand(self, layer):
        """The name of an input, its weights added when it is a constant."""
        constant = self.network.constant(layer)
        return self.values[layer] if constant is None else self.graph.weight(f"constant_{layer}", constant)

    def plain(self, operator, layer):
        self.values[layer] = self.graph.node(operator, [self.operand(self.network.sources[layer][0])], f"value_{layer}")

    def parameter(self, layer):
        self.values[layer] = "input"

    def arithmetic(self, layer):
        operator = "Add" if self.network.kind(layer) == "Add" else "Mul"
        operands = [self.operand(source) for source in self.network.sources[layer]]
        self.values[layer] = self.graph.node(operator, operands, f"value_{layer}")

    def activation(self, layer):
        value, slope = self.network.sources[layer]
        slope = self.network.constant(slope)
        if slope.size != 1:
            sys.exit(f"layer {layer}: a slope for each channel was not expected")
        self.values[layer] = self.graph.node(
            "LeakyRelu", [self.values[value]], f"value_{layer}", alpha=float(slope.reshape(-1)[0])
        )

    def convolution(self, layer):
        value, filters = self.network.sources[layer]
        filters, groups = self.network.constant(filters), 1
        if self.network.kind(layer) == "GroupConvolution":
            groups = filters.shape[0]
            filters = filters.reshape(-1, *filters.shape[2:])
        inputs = [self.values[value], self.graph.weight(f"filters_{layer}", filters)]
        bias_layer, bias = self.bias_behind(layer, filters.shape[0])
        if bias is not None:
            inputs.append(self.graph.weight(f"bias_{layer}", bias))
        self.values[layer] = self.graph.node(
            "Conv",
            inputs,
            f"value_{layer}",
            dilations=self.network.numbers(layer, "dilations"),
            group=groups,
            kernel_shape=list(filters.shape[2:]),
            pads=self.network.numbers(layer, "pads_begin") + self.network.numbers(layer, "pads_end"),
            strides=self.network.numbers(layer, "strides"),
        )
        if bias is not None:
            self.values[bias_layer] = self.values[layer]

    def bias_behind(self, layer, channels):
        """The layer that alone reads this convolution and adds one constant a channel, with that constant."""
        readers = self.network.readers[layer]
        if len(readers) == 1 and self.network.kind(readers[0]) == "Add":
            constants = [self.network.constant(source) for source in self.network.sources[readers[0]]]
            constants = [values for values in constants if values is not None and values.size == channels]
            if constants:
                return readers[0], constants[0].reshape(-1)
        return None, None

    def result(self, layer):
        value = self.values[self.network.sources[layer][0]]
        self.values[layer] = self.graph.node("Flatten", [value], "embedding", axis=1)


if __name__ == "__main__":
    Translation(Network(sys.argv[1], sys.argv[2])).run(sys.argv[3])
