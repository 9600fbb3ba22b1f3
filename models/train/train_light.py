"""Trains the light text detector with TensorFlow and writes it as ONNX.

usage: train_light.py OUT.onnx DATA.npz... [--seed 0]

The network: 128 x 192 pixels, BGR, -1 to 1 -> 25 convolutions in three scales, joined from coarse to fine -> the probability
of text for each pixel, as the text detector gives it for twice the scale. It learns that detector's maps (distillation, Hinton
et al. 2015). The rate falls along a cosine, and starts a second time (Loshchilov and Hutter 2017).
"""

import argparse
import os
import time
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import cv2
import numpy as np
import tensorflow as tf

from keras_onnx import OnnxWriter, check_file
from patterns import LIGHT_HEIGHT, LIGHT_WIDTH
from student import block, convolution, made_by_thread, rate_at, step_of

layers = tf.keras.layers

# Channels of the three scales, and the depthwise blocks of the two coarser ones.
FINE, MIDDLE, COARSE = 24, 64, 128
MIDDLE_BLOCKS, COARSE_BLOCKS = 3, 4
JOINED, LAST = 32, 24
BATCH = 32
# For each cycle of the rate: steps, highest rate, and how much more a pixel of text counts than another.
CYCLES = ((2100, 2e-3, 4.0), (3000, 1.6e-3, 3.0))
# The parts of the loss.
ENTROPY_PART, DICE_PART = 4.0, 0.5
# Examples that are kept for checks, and how often they are looked at.
CHECKED, CHECK_EVERY = 256, 200


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


def from_places(places):
    """The maps of what `by_place` gives."""
    parts = np.reshape(places, (len(places), LIGHT_HEIGHT // 2, LIGHT_WIDTH // 2, 2, 2)).transpose(0, 1, 3, 2, 4)
    return parts.reshape(len(places), 1, LIGHT_HEIGHT, LIGHT_WIDTH)


def batches(images, labels, seed):
    """Endless batches."""
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(len(images))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            changed = [change(images[i], labels[i], rng) for i in order[start:start + BATCH]]
            yield np.stack([image for image, _ in changed]), by_place(np.stack([label for _, label in changed]))


def dice_loss(probability, wanted):
    """1 less the overlap (Milletari et al. 2016)."""
    overlap = 2 * tf.reduce_sum(probability * wanted) + 1
    return 1 - overlap / (tf.reduce_sum(probability**2) + tf.reduce_sum(wanted**2) + 1)


def loss_of(positive_weight):
    """What the network is to make small."""

    def loss(logits, wanted):
        weight = 1 + (positive_weight - 1) * wanted
        entropy = tf.reduce_mean(weight * tf.nn.sigmoid_cross_entropy_with_logits(wanted, logits))
        return ENTROPY_PART * entropy + DICE_PART * dice_loss(tf.sigmoid(logits), wanted)

    return loss


def train(images, labels, seed):
    model = network()
    checked = scaled(images[:CHECKED]), by_place(np.float32(labels[:CHECKED]) / 255)
    source = made_by_thread(batches(images[CHECKED:], labels[CHECKED:], seed))
    started, average, done = time.time(), 0.0, 0
    for steps, highest, positive_weight in CYCLES:
        step = step_of(model, loss_of(positive_weight))
        for number in range(steps):
            value = float(step(*next(source), rate_at(number, steps, highest)))
            done += 1
            average += (value - average) / min(done, 100)
            if done % CHECK_EVERY == 0:
                found = tf.sigmoid(model(checked[0], training=False))
                print(f"{done} steps, {time.time() - started:.0f} s, loss {average:.3f}, "
                      f"dice loss of the checked {float(dice_loss(found, checked[1])):.3f}", flush=True)
    return model


def write(model, path):
    writer = OnnxWriter()
    probability = writer.add("Sigmoid", [writer.add_layers(model)])
    writer.add_output("DepthToSpace", [probability], "map", blocksize=2, mode="CRD")
    size = LIGHT_HEIGHT, LIGHT_WIDTH
    writer.write(path, "light_text_detector", [1, 3, *size], [1, 1, *size])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    tf.keras.utils.set_random_seed(arguments.seed)
    sets = [np.load(file) for file in arguments.data]
    images, labels = (np.concatenate([s[key] for s in sets]) for key in ("image", "map"))
    print(len(images), "torsos", flush=True)
    model = train(images, labels, arguments.seed)
    write(model, arguments.out)
    as_map = lambda image: from_places(tf.sigmoid(model(image, training=False)).numpy())
    check_file(arguments.out, scaled(images[:50]), as_map)


if __name__ == "__main__":
    main()
