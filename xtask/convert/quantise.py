"""Rewrites a network so that its heaviest convolutions multiply 8-bit integers.

usage: quantise.py NETWORK.onnx CALIBRATION.json OUT.onnx

The file says with QuantizeLinear and DequantizeLinear where integers are: OpenVINO multiplies them as they are, and takes
a little more than half of the time on CPUs with VNNI instructions. Weights have a scale for each output channel, inputs one
for the whole tensor with a zero point. A calibration says for each such convolution the range of its input and what is
added to its bias, so that the mean of its output stays what it was: `models/train/calibrate.py` makes it.
"""

import json
import sys

import numpy
from onnx import helper

from onnx_edit import Network, fold

# Steps of an input's range, and of a weight in either direction.
INPUT_STEPS = 255
WEIGHT_STEPS = 127

# The rows or columns of a transposed convolution, 4 x 4 with stride 2 and one pixel of padding, that reach the outputs of
# even and of odd index, in the order of the inputs that they are taken with, and how many inputs before and after are needed.
EVEN_AND_ODD = (((3, 1), (1, 0)), ((2, 0), (0, 1)))


def prepare(network):
    """Brings a network into the form whose layers a calibration names."""
    raise_squeezes(network)
    fold(network)
    split_transposed_convolutions(network)
    normalise(network, "quantised")


def raise_squeezes(network):
    """From operator set 13 on the axes of Squeeze are an input."""
    for node in network.nodes:
        if node.op_type == "Squeeze" and node.attribute:
            name = node.output[0] + "_axes"
            network.constants[name] = numpy.array(list(node.attribute[0].ints), numpy.int64)
            node.input.append(name)
            del node.attribute[:]


def split_transposed_convolutions(network):
    """Each output pixel of a transposed convolution of 4 x 4 with stride 2 has four of its weights, by whether its row and
    its column are even: four convolutions of 2 x 2, whose outputs alternate. Integers are multiplied in these alone."""
    nodes = []
    for node in network.nodes:
        weights = network.constants.get(node.input[1]) if node.op_type == "ConvTranspose" else None
        if weights is None or weights.shape[2:] != (4, 4):
            nodes.append(node)
            continue
        how = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        if len(node.input) > 2 or how.get("strides") != [2, 2] or how.get("pads") != [1, 1, 1, 1]:
            sys.exit(f"{node.output[0]}: a transposed convolution with a bias, another stride or other padding")
        output, parts = node.output[0], []
        for row, (rows, (above, below)) in enumerate(EVEN_AND_ODD):
            for column, (columns, (before, after)) in enumerate(EVEN_AND_ODD):
                name = f"{output}_{row}{column}"
                part = weights[:, :, rows, :][:, :, :, columns].swapaxes(0, 1)
                network.constants[name + "_w"] = numpy.ascontiguousarray(part)
                shape = {"kernel_shape": [2, 2], "pads": [above, before, below, after]}
                nodes.append(helper.make_node("Conv", [node.input[0], name + "_w"], [name], **shape))
                parts.append(name)
        nodes.append(helper.make_node("Concat", parts, [output + "_parts"], axis=1))
        nodes.append(helper.make_node("DepthToSpace", [output + "_parts"], [output], blocksize=2, mode="DCR"))
    network.nodes = nodes


def normalise(network, name_of_graph):
    """Makes the same network from two sources the same file: names are those of its layers' kinds and numbers, and the sides
    of a kernel stand in its weights alone."""
    network.model.graph.name = name_of_graph
    renamed, constants = {}, {}
    for number, node in enumerate(network.nodes):
        sides = [attribute for attribute in node.attribute if attribute.name == "kernel_shape"]
        if node.op_type == "Conv" and sides:
            node.attribute.remove(sides[0])
        for place, name in enumerate(node.input):
            if name in network.constants and name not in renamed:
                renamed[name] = f"constant_{len(constants)}"
                constants[renamed[name]] = network.constants[name]
            node.input[place] = renamed.get(name, name)
        for place, name in enumerate(node.output):
            if name not in network.outputs:
                renamed[name] = f"{node.op_type.lower()}_{number}"
            node.output[place] = renamed.get(name, name)
    network.constants = constants


def quantise(network, layers):
    """Makes the convolutions that `layers` names, by their outputs, multiply integers."""
    nodes, quantised = [], {}
    for node in network.nodes:
        layer = layers.get(node.output[0])
        if layer is not None:
            source = node.input[0]
            if source not in quantised:
                quantised[source] = quantise_input(network, nodes, source, *layer["input"])
            node.input[0] = quantised[source]
            node.input[1] = quantise_weights(network, nodes, node.input[1])
            add_to_bias(network, node, numpy.array(layer["bias"], numpy.float32))
        nodes.append(node)
    network.nodes = nodes


def quantise_input(network, nodes, name, low, high):
    """Rounds a tensor to 256 values from `low` to `high`; returns the name of the result."""
    scale = numpy.float32((high - low) / INPUT_STEPS)
    zero = numpy.uint8(min(max(round(-low / float(scale)), 0), INPUT_STEPS))
    network.constants[name + "_scale"] = numpy.array(scale)
    network.constants[name + "_zero"] = numpy.array(zero)
    how = [name + "_scale", name + "_zero"]
    nodes.append(helper.make_node("QuantizeLinear", [name, *how], [name + "_integers"]))
    nodes.append(helper.make_node("DequantizeLinear", [name + "_integers", *how], [name + "_rounded"]))
    return name + "_rounded"


def quantise_weights(network, nodes, name):
    """Stores weights as integers with a scale for each output channel; returns the name of their values."""
    weights = network.constants[name]
    scale = (numpy.abs(weights).reshape(len(weights), -1).max(axis=1) / numpy.float32(WEIGHT_STEPS)).clip(1e-9)
    by_channel = scale.reshape(-1, *[1] * (weights.ndim - 1))
    network.constants[name + "_integers"] = numpy.rint(weights / by_channel).astype(numpy.int8)
    network.constants[name + "_scale"] = scale
    network.constants[name + "_zero"] = numpy.zeros(len(scale), numpy.int8)
    inputs = [name + "_integers", name + "_scale", name + "_zero"]
    nodes.append(helper.make_node("DequantizeLinear", inputs, [name + "_rounded"], axis=0))
    return name + "_rounded"


def add_to_bias(network, node, values):
    """Adds to a convolution's bias, which it gets if it has none."""
    if len(node.input) < 3:
        node.input.append(node.output[0] + "_mean")
        network.constants[node.input[2]] = values
    else:
        network.constants[node.input[2]] = network.constants[node.input[2]] + values


def main(source, calibration, target):
    with open(calibration, encoding="utf-8") as file:
        layers = json.load(file)["layers"]
    network = Network(source)
    prepare(network)
    missing = set(layers) - {node.output[0] for node in network.nodes}
    if missing:
        sys.exit(f"{source} has no layers {sorted(missing)}: another network than {calibration} is for")
    quantise(network, layers)
    network.save(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
