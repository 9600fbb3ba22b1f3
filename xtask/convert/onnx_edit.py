"""Rewrites a published ONNX network into one that computes the same with fewer operations.

Weights are combined element by element in float32, and sums by `fsum`, so that the result does not depend on how a machine
adds: set-up checks the SHA-256 of the file.
"""

import math

import numpy
import onnx
from onnx import helper, numpy_helper

from onnx_graph import IR_VERSION, write

# Has the operator HardSwish, which libraries compute in one pass over memory.
OPERATOR_SET = 14


class Network:
    """The nodes of a network in order, and its constants by name."""

    def __init__(self, path):
        self.model = onnx.load(path)
        graph = self.model.graph
        self.constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant":
                self.constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        self.nodes = [node for node in graph.node if node.op_type != "Constant"]
        self.outputs = {output.name for output in graph.output}

    def users(self, value):
        """The nodes that take a value."""
        return [node for node in self.nodes if value in node.input]

    def only_user(self, value):
        """The node that takes a value, if there is just one and the value is no output of the network."""
        users = self.users(value)
        return users[0] if len(users) == 1 and value not in self.outputs else None

    def operand(self, node, value):
        """The one-element constant that a node combines a value with; None if it is anything else."""
        others = [name for name in node.input if name != value]
        if len(others) != 1 or others[0] not in self.constants or self.constants[others[0]].size != 1:
            return None
        return numpy.float32(self.constants[others[0]].reshape(()))

    def remove(self, nodes):
        """Removes nodes."""
        self.nodes = [node for node in self.nodes if not any(node is removed for removed in nodes)]

    def save(self, path, operator_set=OPERATOR_SET):
        """Writes the network without the constants that nothing uses any more."""
        used = {name for node in self.nodes for name in node.input}
        for node in self.nodes:
            node.name = node.output[0]
        weights = [
            numpy_helper.from_array(numpy.ascontiguousarray(values), name)
            for name, values in self.constants.items()
            if name in used
        ]
        graph = self.model.graph
        rewritten = helper.make_graph(self.nodes, graph.name, graph.input, graph.output, weights)
        model = helper.make_model(rewritten, opset_imports=[helper.make_opsetid("", operator_set)])
        model.ir_version = IR_VERSION
        model.producer_name = "photofinish"
        model.producer_version = ""
        model.metadata_props.extend(self.model.metadata_props)
        write(model, path)


def set_output(node, name):
    """Gives a node the one output of this name."""
    del node.output[:]
    node.output.append(name)


def set_inputs(node, names):
    """Gives a node these inputs."""
    del node.input[:]
    node.input.extend(names)


def channel_factors(network, normalisation):
    """The factor and the summand of each channel that a batch normalisation with fixed statistics amounts to."""
    scale, shift, mean, variance = (network.constants[name] for name in normalisation.input[1:])
    epsilon = numpy.float32(next(a.f for a in normalisation.attribute if a.name == "epsilon"))
    factor = scale / numpy.sqrt(variance + epsilon)
    return factor, shift - mean * factor


def fold(network):
    """Moves factors and summands that follow or precede convolutions into their weights, and joins hard swishes."""
    uses = {}
    for node in network.nodes:
        for name in node.input:
            uses[name] = uses.get(name, 0) + 1
    own = [
        node
        for node in network.nodes
        if node.op_type == "Conv" and uses[node.input[1]] == 1 and node.input[1] in network.constants
    ]
    for convolution in own:
        fold_what_follows(network, convolution)
    join_hard_swishes(network)
    own_names = {node.output[0] for node in own}
    for node in list(network.nodes):
        if node.op_type == "Mul":
            fold_what_precedes(network, node, own_names)


def bias_of(network, convolution):
    """The name of a convolution's bias, which it gets if it has none."""
    if len(convolution.input) < 3:
        name = convolution.output[0] + "_bias"
        network.constants[name] = numpy.zeros(len(network.constants[convolution.input[1]]), numpy.float32)
        convolution.input.append(name)
    return convolution.input[2]


def fold_what_follows(network, convolution):
    """Folds the factors and summands, one for all or one a channel, that a convolution's output gets next."""
    while True:
        output = convolution.output[0]
        follower = network.only_user(output)
        if follower is None:
            return
        operand = network.operand(follower, output)
        if follower.op_type == "BatchNormalization":
            factor, summand = channel_factors(network, follower)
        elif follower.op_type == "Mul" and operand is not None:
            factor, summand = operand.reshape(1), numpy.zeros(1, numpy.float32)
        elif follower.op_type == "Add" and operand is not None:
            factor, summand = numpy.ones(1, numpy.float32), operand.reshape(1)
        else:
            return
        weights, bias = convolution.input[1], bias_of(network, convolution)
        network.constants[weights] = network.constants[weights] * factor.reshape(-1, 1, 1, 1)
        network.constants[bias] = network.constants[bias] * factor + summand
        set_output(convolution, follower.output[0])
        network.remove([follower])


def join_hard_swishes(network):
    """x * clip(x + 3, 0, 6) / 6, which exporters write as four operators, is one."""
    for add in list(network.nodes):
        inputs = [name for name in add.input if name not in network.constants]
        if add.op_type != "Add" or len(inputs) != 1 or network.operand(add, inputs[0]) != 3:
            continue
        chain = [add]
        for kind in ("Clip", "Mul", "Div"):
            chain.append(network.only_user(chain[-1].output[0]) if chain[-1] is not None else None)
            if chain[-1] is None or chain[-1].op_type != kind:
                break
        else:
            _, clip, multiply, divide = chain
            limits = [float(network.constants[name]) for name in clip.input[1:]]
            is_whole = limits == [0, 6] and inputs[0] in multiply.input
            if is_whole and network.operand(divide, multiply.output[0]) == 6:
                add.op_type = "HardSwish"
                set_inputs(add, inputs)
                set_output(add, divide.output[0])
                network.remove(chain[1:])


def fold_what_precedes(network, multiply, own_names):
    """Folds a factor and a summand that only convolutions take. Where one of them pads, the summand stays before it:
    the padding has none."""
    inputs = [name for name in multiply.input if name not in network.constants]
    add = network.only_user(multiply.output[0])
    if len(inputs) != 1 or add is None or add.op_type != "Add":
        return
    factor = network.operand(multiply, inputs[0])
    summand = network.operand(add, multiply.output[0])
    users = network.users(add.output[0])
    if factor is None or summand is None or factor == 0 or add.output[0] in network.outputs:
        return
    if not users or any(user.output[0] not in own_names or user.input[0] != add.output[0] for user in users):
        return
    are_points = all(network.constants[user.input[1]].shape[2:] == (1, 1) for user in users)
    for user in users:
        weights = network.constants[user.input[1]]
        if are_points:
            bias = bias_of(network, user)
            sums = [math.fsum(row.ravel().tolist()) for row in weights.astype(numpy.float64)]
            added = numpy.array([float(summand) * total for total in sums])
            network.constants[bias] = (network.constants[bias] + added).astype(numpy.float32)
        network.constants[user.input[1]] = weights * factor
    if are_points:
        for user in users:
            user.input[0] = inputs[0]
        network.remove([multiply, add])
    else:
        shift = add.output[0] + "_shift"
        network.constants[shift] = (summand / factor).reshape(1)
        set_inputs(add, [inputs[0], shift])
        network.remove([multiply])
