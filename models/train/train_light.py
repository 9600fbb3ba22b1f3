"""Trains the light text detector with TensorFlow and writes it as ONNX.

usage: train_light.py OUT.onnx DATA.npz... [--from FILE.onnx] [--seed 0]

The network: 128 x 192 pixels, BGR, -1 to 1 -> 25 convolutions in three scales, joined from coarse to fine -> the probability
of a number for each pixel, in the shape in which the text detector gives it for text at twice the scale. It learns where
numbers were drawn. The rate falls along a cosine, and starts a second time (Loshchilov and Hutter 2017).
"""

import argparse
import os
import queue
import threading
import time
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import cv2
import numpy as np
import onnx
import tensorflow as tf
from onnx import helper, numpy_helper

from patterns import LIGHT_HEIGHT, LIGHT_WIDTH

layers = tf.keras.layers

# Channels of the three scales, and the depthwise blocks of the two coarser ones.
FINE, MIDDLE, COARSE = 24, 64, 128
MIDDLE_BLOCKS, COARSE_BLOCKS = 3, 4
JOINED, LAST = 32, 24
EPSILON = 1e-3
BATCH, DECAY, WARM_UP = 32, 1e-4, 100
# For each cycle of the rate: steps, highest rate, and how much more a pixel of a number counts than another. One is enough for a
# network that has learned where text is.
CYCLES = ((2100, 2e-3, 4.0), (3000, 1.6e-3, 3.0))
CYCLES_FROM_FILE = ((2400, 1.2e-3, 3.0),)
# Examples by which the batch norms of such a network get the means and variances that its file has no longer.
NORMALISED = 512
# The parts of the loss.
ENTROPY_PART, DICE_PART = 4.0, 0.5
# Examples that are kept for checks, and how often they are looked at.
CHECKED, CHECK_EVERY = 256, 200


def convolution(x, outputs, kernel, stride=1):
    x = layers.Conv2D(outputs, kernel, stride, "same", use_bias=False)(x)
    return layers.ReLU()(layers.BatchNormalization(momentum=0.98, epsilon=EPSILON)(x))


def block(x, outputs, stride=1):
    """A depthwise convolution of 5 x 5 and one over channels."""
    x = layers.DepthwiseConv2D(5, stride, "same", use_bias=False)(x)
    x = layers.ReLU()(layers.BatchNormalization(momentum=0.98, epsilon=EPSILON)(x))
    return convolution(x, outputs, 1) if outputs else x


def network():
    image = layers.Input((LIGHT_HEIGHT, LIGHT_WIDTH, 3))
    fine = convolution(image, FINE, 3, 2)
    x = convolution(fine, MIDDLE, 3, 2)
    for _ in range(MIDDLE_BLOCKS):
        x = block(x, MIDDLE)
    middle = x
    x = block(x, COARSE, 2)
    for _ in range(COARSE_BLOCKS):
        x = block(x, COARSE)
    x = convolution(x, MIDDLE, 1)
    x = layers.Concatenate()([layers.UpSampling2D()(x), middle])
    x = convolution(block(convolution(x, MIDDLE, 1), 0), JOINED, 1)
    x = layers.Concatenate()([layers.UpSampling2D()(x), fine])
    x = block(convolution(x, LAST, 1), 0)
    # Four values a place: those of its 2 x 2 pixels.
    x = layers.Conv2D(4, 1, bias_initializer=tf.keras.initializers.Constant(-2.0))(x)
    return tf.keras.Model(image, x)


def load(path, images):
    """The network of a file, with batch norms that change nothing: means and variances are those of some examples."""
    model = network()
    file = onnx.load(path)
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in file.graph.initializer}
    given = [node.input[1:] for node in file.graph.node if node.op_type == "Conv"]
    convolutions = [layer for layer in model.layers if isinstance(layer, (layers.Conv2D, layers.DepthwiseConv2D))]
    norms = {layer.input._keras_history.operation.name: layer for layer in model.layers
             if isinstance(layer, layers.BatchNormalization)}
    assert len(given) == len(convolutions)
    for layer, (weights, bias) in zip(convolutions, given):
        is_depthwise = isinstance(layer, layers.DepthwiseConv2D)
        kernel = tensors[weights].transpose((2, 3, 0, 1) if is_depthwise else (2, 3, 1, 0))
        norm = norms.get(layer.name)
        layer.set_weights([kernel] if norm else [kernel, tensors[bias]])
        if norm:
            ones = np.ones_like(tensors[bias])
            norm.set_weights([ones * np.sqrt(1 + EPSILON), tensors[bias], 0 * ones, ones])
    normalised = [layer for layer in convolutions if layer.name in norms]
    seen = tf.keras.Model(model.input, [layer.output for layer in normalised])
    parts = [seen(scaled(images[i:i + BATCH]), training=False) for i in range(0, NORMALISED, BATCH)]
    for layer, outputs in zip(normalised, zip(*parts)):
        means = tf.reduce_mean([tf.reduce_mean(output, (0, 1, 2)) for output in outputs], 0)
        squares = tf.reduce_mean([tf.reduce_mean(output**2, (0, 1, 2)) for output in outputs], 0)
        variances = squares - means**2
        norm = norms[layer.name]
        norm.set_weights([np.sqrt(variances + EPSILON), norm.get_weights()[1] + means, means, variances])
    return model


def change(image, label, rng):
    """One example in another size, place, light and noise."""
    if rng.random() < 0.3:
        image, label = image[:, ::-1], label[:, ::-1]
    if rng.random() < 0.6:
        zoom, stretch = rng.uniform(0.75, 1.35), rng.uniform(0.92, 1.08)
        matrix = np.float32([[zoom * stretch, 0, rng.uniform(-16, 10)], [0, zoom, rng.uniform(-30, 30)]])
        if rng.random() < 0.3:
            angle = rng.uniform(-0.12, 0.12)
            turn = np.float32([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
            matrix[:, :2] = matrix[:, :2] @ turn
        size = (LIGHT_WIDTH, LIGHT_HEIGHT)
        image = cv2.warpAffine(np.ascontiguousarray(image), matrix, size)
        label = cv2.warpAffine(np.ascontiguousarray(label), matrix, size)
    image = image * np.float32(rng.uniform(0.7, 1.3) * rng.uniform(0.92, 1.08, 3)) + np.float32(rng.uniform(-15, 15))
    if rng.random() < 0.3:
        image = image + np.float32(rng.normal(0, rng.uniform(1, 8), image.shape))
    return scaled(np.clip(image, 0, 255)), np.float32(label) / 255


def scaled(image):
    return np.float32(image) * (2 / 255) - 1


def by_place(maps):
    """The four pixels of each place of the network's output."""
    count = len(maps)
    parts = np.reshape(maps, (count, LIGHT_HEIGHT // 2, 2, LIGHT_WIDTH // 2, 2)).transpose(0, 1, 3, 2, 4)
    return parts.reshape(count, LIGHT_HEIGHT // 2, LIGHT_WIDTH // 2, 4)


def batches(images, labels, seed):
    """Endless batches, made by a thread of their own."""
    made = queue.Queue(8)

    def make():
        rng = np.random.default_rng(seed)
        while True:
            order = rng.permutation(len(images))
            for start in range(0, len(order) - BATCH + 1, BATCH):
                changed = [change(images[i], labels[i], rng) for i in order[start:start + BATCH]]
                made.put((np.stack([image for image, _ in changed]), by_place(np.stack([label for _, label in changed]))))

    threading.Thread(target=make, daemon=True).start()
    while True:
        yield made.get()


def dice_loss(probability, wanted):
    """1 less the overlap (Milletari et al. 2016)."""
    overlap = 2 * tf.reduce_sum(probability * wanted) + 1
    return 1 - overlap / (tf.reduce_sum(probability**2) + tf.reduce_sum(wanted**2) + 1)


def step_of(model, positive_weight):
    """A function that takes one step."""
    optimizer = tf.keras.optimizers.AdamW(weight_decay=DECAY, global_clipnorm=5.0)

    @tf.function
    def step(image, wanted, rate):
        optimizer.learning_rate.assign(rate)
        with tf.GradientTape() as tape:
            logits = model(image, training=True)
            weight = 1 + (positive_weight - 1) * wanted
            entropy = tf.reduce_mean(weight * tf.nn.sigmoid_cross_entropy_with_logits(wanted, logits))
            loss = ENTROPY_PART * entropy + DICE_PART * dice_loss(tf.sigmoid(logits), wanted)
        gradient = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradient, model.trainable_variables))
        return loss

    return step


def train(model, cycles, images, labels, seed):
    checked = scaled(images[:CHECKED]), by_place(np.float32(labels[:CHECKED]) / 255)
    source = batches(images[CHECKED:], labels[CHECKED:], seed)
    started, average, done = time.time(), 0.0, 0
    for steps, highest, positive_weight in cycles:
        step = step_of(model, positive_weight)
        for number in range(steps):
            rate = highest * min(1, (number + 1) / WARM_UP) * (0.5 + 0.5 * np.cos(np.pi * number / steps)) + 1e-6
            value = float(step(*next(source), tf.constant(rate, tf.float32)))
            done += 1
            average += (value - average) / min(done, 100)
            if done % CHECK_EVERY == 0:
                found = tf.sigmoid(model(checked[0], training=False))
                print(f"{done} steps, {time.time() - started:.0f} s, loss {average:.3f}, "
                      f"dice loss of the checked {float(dice_loss(found, checked[1])):.3f}", flush=True)


class OnnxWriter:
    """Writes the network as ONNX, with the batch norms in the weights."""

    def __init__(self):
        self.nodes, self.tensors, self.names = [], {}, {}

    def add(self, operator, inputs, **attributes):
        output = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def add_convolution(self, layer, source):
        kernel, stride = layer.kernel_size[0], layer.strides[0]
        is_depthwise = isinstance(layer, layers.DepthwiseConv2D)
        weights, *bias = layer.get_weights()
        weights = weights.transpose((2, 3, 0, 1) if is_depthwise else (3, 2, 0, 1))
        padded = kernel - stride if stride > 1 else kernel - 1
        before, after = padded // 2, padded - padded // 2
        name = f"conv_{len(self.nodes)}"
        self.tensors[name + "_w"] = weights
        self.tensors[name + "_b"] = bias[0] if bias else np.zeros(len(weights), np.float32)
        return self.add(
            "Conv", [source, name + "_w", name + "_b"], kernel_shape=[kernel, kernel], strides=[stride, stride],
            pads=[before, before, after, after], group=len(weights) if is_depthwise else 1,
        )

    def fold(self, layer, convolution_output):
        gain, shift, mean, variance = layer.get_weights()
        factor = gain / np.sqrt(variance + EPSILON)
        weights, bias = convolution_output + "_w", convolution_output + "_b"
        self.tensors[weights] = self.tensors[weights] * factor[:, None, None, None]
        self.tensors[bias] = (self.tensors[bias] - mean) * factor + shift

    def write(self, model, path):
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
                case layers.UpSampling2D():
                    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
                    self.names[layer.name] = self.add("Resize", [sources[0], "", "twice"], **how)
                case layers.Concatenate():
                    self.names[layer.name] = self.add("Concat", sources, axis=1)
                case _:
                    raise TypeError(layer)
        probability = self.add("Sigmoid", [self.names[model.layers[-1].name]])
        self.nodes.append(helper.make_node("DepthToSpace", [probability], ["map"], blocksize=2, mode="CRD"))
        values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, channels, LIGHT_HEIGHT, LIGHT_WIDTH])
                  for name, channels in (("image", 3), ("map", 1))]
        tensors = [numpy_helper.from_array(np.float32(value), name) for name, value in self.tensors.items()]
        graph = helper.make_graph(self.nodes, "light_text_detector", values[:1], values[1:], tensors)
        written = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8, producer_name="photofinish")
        onnx.checker.check_model(written)
        path.write_bytes(written.SerializeToString())


def compare(model, path, images):
    """The largest difference between the file under ONNX Runtime and the trained network."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    largest = 0.0
    for image in images:
        tensor = scaled(image)[None]
        wanted = tf.sigmoid(model(tensor, training=False)).numpy()
        got = session.run(None, {"image": tensor.transpose(0, 3, 1, 2)})[0]
        largest = max(largest, float(np.abs(wanted - by_place(got[:, 0])).max()))
    return largest


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--from", dest="file", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    tf.keras.utils.set_random_seed(arguments.seed)
    sets = [np.load(file) for file in arguments.data]
    images, labels = (np.concatenate([s[key] for s in sets]) for key in ("image", "map"))
    print(len(images), "torsos", flush=True)
    model = load(arguments.file, images) if arguments.file else network()
    cycles = CYCLES_FROM_FILE if arguments.file else CYCLES
    train(model, cycles, images, labels, arguments.seed)
    OnnxWriter().write(model, arguments.out)
    difference = compare(model, arguments.out, images[:50])
    print(f"{arguments.out.stat().st_size} bytes, ONNX Runtime differs by {difference:.1e}")
    assert difference < 1e-3


if __name__ == "__main__":
    main()
