"""Writes a network of `student.py` as ONNX, with the batch norms in the weights, and compares the two."""

import numpy as np
import onnx
import onnxruntime
import tensorflow as tf
from onnx import helper, numpy_helper

from student import EPSILON

layers = tf.keras.layers


class OnnxWriter:
    """The nodes and weights of a file."""

    def __init__(self):
        self.nodes, self.tensors, self.names, self.output = [], {}, {}, None

    def add(self, operator, inputs, **attributes):
        output = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def add_output(self, operator, inputs, output, **attributes):
        """The last node."""
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        self.output = output

    def add_shape(self, name, shape):
        self.tensors[name] = np.int64(shape)

    def add_convolution(self, layer, source):
        is_depthwise = isinstance(layer, layers.DepthwiseConv2D)
        weights, *bias = layer.get_weights()
        weights = weights.transpose((2, 3, 0, 1) if is_depthwise else (3, 2, 0, 1))
        pads = [padding(kernel, stride, size) if layer.padding == "same" else (0, 0)
                for kernel, stride, size in zip(layer.kernel_size, layer.strides, layer.input.shape[1:3])]
        name = f"conv_{len(self.nodes)}"
        self.tensors[name + "_w"] = weights
        self.tensors[name + "_b"] = bias[0] if bias else np.zeros(len(weights), np.float32)
        return self.add(
            "Conv", [source, name + "_w", name + "_b"], kernel_shape=list(layer.kernel_size), strides=list(layer.strides),
            pads=[before for before, _ in pads] + [after for _, after in pads], group=len(weights) if is_depthwise else 1,
        )

    def fold(self, layer, convolution_output):
        gain, shift, mean, variance = layer.get_weights()
        factor = gain / np.sqrt(variance + EPSILON)
        weights, bias = convolution_output + "_w", convolution_output + "_b"
        self.tensors[weights] = self.tensors[weights] * factor[:, None, None, None]
        self.tensors[bias] = (self.tensors[bias] - mean) * factor + shift

    def add_layers(self, model):
        """Adds the layers, from the input `image` on; returns the name of their output."""
        self.tensors["twice"] = np.float32([1, 1, 2, 2])
        for layer in model.layers:
            given = layer.input if isinstance(layer.input, list) else [layer.input]
            sources = [self.names.get(source._keras_history.operation.name, "image") for source in given]
            match layer:
                case layers.InputLayer():
                    self.names[layer.name] = "image"
                case layers.Conv2D() | layers.DepthwiseConv2D():
                    self.names[layer.name] = self.add_convolution(layer, sources[0])
                case layers.BatchNormalization():
                    self.fold(layer, sources[0])
                    self.names[layer.name] = sources[0]
                case layers.ReLU():
                    self.names[layer.name] = self.add("Relu", sources)
                case layers.Add():
                    self.names[layer.name] = self.add("Add", sources)
                case layers.UpSampling2D():
                    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
                    self.names[layer.name] = self.add("Resize", [sources[0], "", "twice"], **how)
                case layers.Concatenate():
                    self.names[layer.name] = self.add("Concat", sources, axis=1)
                case _:
                    raise TypeError(layer)
        return self.names[model.layers[-1].name]

    def write(self, path, name, image_shape, output_shape):
        used = {source for node in self.nodes for source in node.input}
        tensors = [numpy_helper.from_array(value, key) for key, value in self.tensors.items() if key in used]
        values = [helper.make_tensor_value_info(key, onnx.TensorProto.FLOAT, shape)
                  for key, shape in (("image", image_shape), (self.output, output_shape))]
        graph = helper.make_graph(self.nodes, name, values[:1], values[1:], tensors)
        written = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8, producer_name="photofinish")
        onnx.checker.check_model(written)
        path.write_bytes(written.SerializeToString())


def padding(kernel, stride, size):
    """Before and after, as TensorFlow pads."""
    padded = max(kernel - (stride if size % stride == 0 else size % stride), 0)
    return padded // 2, padded - padded // 2


def check_file(path, images, wanted_of):
    """Fails if the file under ONNX Runtime gives something else than the network."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    difference = 0.0
    for image in images:
        got = session.run(None, {"image": image[None].transpose(0, 3, 1, 2)})[0]
        difference = max(difference, float(np.abs(wanted_of(image[None]) - got).max()))
    print(f"{path.stat().st_size} bytes, ONNX Runtime differs by {difference:.1e}")
    assert difference < 1e-3
