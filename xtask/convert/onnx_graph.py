"""Builds an ONNX file node by node, reproducible byte by byte.

Set-up checks the SHA-256 of a converted file, so nothing here may depend on the machine, the library versions or
the time: the IR and operator set versions are fixed, weights are written in the order of their use, and no shape
inference runs (its output changes between releases of the `onnx` package).
"""

import numpy
from onnx import TensorProto, checker, helper, numpy_helper

IR_VERSION = 8
OPERATOR_SET = 13


class GraphBuilder:
    """Collects nodes and weights; each method that adds one returns the name of its output value."""

    def __init__(self, name):
        self.name = name
        self.nodes = []
        self.weights = {}

    def weight(self, name, values):
        """A constant tensor; floating point becomes float32, integers int64."""
        kind = numpy.int64 if numpy.issubdtype(values.dtype, numpy.integer) else numpy.float32
        if name not in self.weights:
            self.weights[name] = numpy_helper.from_array(numpy.ascontiguousarray(values.astype(kind)), name)
        return name

    def node(self, operator, inputs, output, **attributes):
        """One operator with a single output."""
        self.nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    def save(self, path, taken, given):
        """Checks the graph and writes it. `taken` and `given` are (name, shape) of its one input and one output."""
        inputs = [helper.make_tensor_value_info(taken[0], TensorProto.FLOAT, taken[1])]
        outputs = [helper.make_tensor_value_info(given[0], TensorProto.FLOAT, given[1])]
        graph = helper.make_graph(self.nodes, self.name, inputs, outputs, list(self.weights.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPERATOR_SET)])
        model.ir_version = IR_VERSION
        model.producer_name = "photofinish"
        model.producer_version = ""
        write(model, path)


def write(model, path):
    """Writes a checked model."""
    checker.check_model(model)
    with open(path, "wb") as file:
        file.write(model.SerializeToString(deterministic=True))
