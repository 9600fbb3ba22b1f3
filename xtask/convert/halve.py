"""Rewrites a network so that it computes with floats of 16 bits, for GPUs. Its inputs and outputs keep 32.

usage: halve.py NETWORK.onnx OUT.onnx

What follows convolutions is folded into them first, and layer normalisations become one operator: the values between, some
of which are beyond the range of 16 bits, are then never rounded to it. Whether the result is near enough is not judged
here: the service compares both networks on its device before it uses this one.
"""

import sys

import numpy
from onnx import TensorProto, helper

from onnx_edit import Network, fold, set_inputs
from quantise import normalise, raise_squeezes

# Has the operator LayerNormalization. What else is in these networks means the same as in set 14.
OPERATOR_SET = 17

# Inputs that have 32 bits in whatever precision the operator computes, by their places: factors of sizes.
ALWAYS_32_BITS = {"Resize": (1, 2)}


def join_layer_normalisations(network):
    """A layer normalisation, which exporters write as nine operators, is one."""
    for mean in [node for node in network.nodes if node.op_type == "ReduceMean"]:
        chain = [mean]
        for kind in ("Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add"):
            followers = [user for user in network.users(chain[-1].output[0]) if user.op_type == kind]
            if len(followers) != 1:
                break
            chain.append(followers[0])
        else:
            join(network, chain)


def join(network, chain):
    """Makes one operator of those of a layer normalisation, if they are just that."""
    mean, subtract, square, variance, add, root, divide, multiply, last = chain
    values, centred = mean.input[0], subtract.output[0]
    is_whole = (
        list(subtract.input) == [values, mean.output[0]]
        and network.operand(square, centred) == 2
        and list(divide.input) == [centred, root.output[0]]
        and all(helper.get_node_attr_value(node, "axes") == [-1] for node in (mean, variance))
    )
    epsilon = network.operand(add, variance.output[0])
    factors = [name for name in multiply.input if name in network.constants]
    summands = [name for name in last.input if name in network.constants]
    if not is_whole or epsilon is None or len(factors) != 1 or len(summands) != 1:
        return
    last.op_type = "LayerNormalization"
    set_inputs(last, [values, factors[0], summands[0]])
    how = {"axis": -1, "epsilon": float(epsilon)}
    last.attribute.extend(helper.make_attribute(name, value) for name, value in how.items())
    network.remove(chain[:-1])


def halve(network):
    """Gives every operator that takes floats those of 16 bits."""
    floats, nodes, halved = {value.name for value in network.model.graph.input}, [], {}

    def half_of(name):
        """The name of a float in 16 bits."""
        if name not in halved:
            halved[name] = name + "_f16"
            if name in network.constants:
                network.constants[halved[name]] = round_constant(name, network.constants[name])
            else:
                nodes.append(helper.make_node("Cast", [name], [halved[name]], to=TensorProto.FLOAT16))
        return halved[name]

    def is_float(name):
        constant = network.constants.get(name)
        return name in floats if constant is None else constant.dtype == numpy.float32

    for node in network.nodes:
        wide = ALWAYS_32_BITS.get(node.op_type, ())
        places = [place for place, name in enumerate(node.input) if is_float(name) and place not in wide]
        for place in places:
            node.input[place] = half_of(node.input[place])
        nodes.append(node)
        # A shape is of integers.
        if not places or node.op_type == "Shape":
            continue
        if node.op_type == "Cast" or len(node.output) != 1:
            sys.exit(f"{node.output[0]}: a {node.op_type} of floats is not known here")
        output = node.output[0]
        floats.add(output)
        halved[output] = output
        if output in network.outputs:
            halved[output] = output + "_f16"
            node.output[0] = halved[output]
            nodes.append(helper.make_node("Cast", [halved[output]], [output], to=TensorProto.FLOAT))
    network.nodes = nodes


def round_constant(name, values):
    """A constant in 16 bits."""
    with numpy.errstate(over="ignore"):
        rounded = values.astype(numpy.float16)
    if not numpy.isfinite(rounded).all():
        sys.exit(f"{name}: a constant beyond the range of 16 bits")
    return rounded


def main(source, target):
    network = Network(source)
    raise_squeezes(network)
    fold(network)
    join_layer_normalisations(network)
    normalise(network, "halved")
    halve(network)
    network.save(target, OPERATOR_SET)


if __name__ == "__main__":
    main(*sys.argv[1:])
