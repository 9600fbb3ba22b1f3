"""Trains the light text recogniser with TensorFlow and writes it as ONNX.

usage: train_recogniser.py OUT.onnx DATA.npz... [--seed 0] [--steps N]

The network: a strip of 160 x 48 pixels, BGR, -1 to 1 -> convolutions, from 6 rows on over columns alone -> for each of 20
columns the probability of each class, as the recogniser gives it. It learns that one's probabilities (distillation, Hinton et
al. 2015), so that both are decoded in the same way (connectionist temporal classification, Graves et al. 2006).
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
from recogniser_data import CLASSES, COLUMNS
from student import block, convolution, made_by_thread, rate_at, step_of
from teacher import STRIP_COLUMNS, STRIP_ROWS

layers = tf.keras.layers

# Channels at a half, a quarter and an eighth of the size, and of the columns; depthwise blocks of the latter three.
HALF, QUARTER, EIGHTH, COLUMN = 24, 48, 128, 160
QUARTER_BLOCKS, EIGHTH_BLOCKS, COLUMN_BLOCKS = 2, 4, 2
ROWS_LEFT = STRIP_ROWS // 8
BATCH, STEPS, HIGHEST_RATE = 64, 8000, 2e-3
# How much more a column with a character counts than one without.
CHARACTER_WEIGHT = 4.0
# Examples that are kept for checks, how often they are looked at, and which of them are certain.
CHECKED, CHECK_EVERY, CERTAIN = 2000, 500, 0.95


def network():
    image = layers.Input((STRIP_ROWS, STRIP_COLUMNS, 3))
    x = convolution(image, HALF, 3, 2)
    x = convolution(x, QUARTER, 3, 2)
    for _ in range(QUARTER_BLOCKS):
        x = layers.Add()([x, block(x, QUARTER, kernel=3)])
    x = block(x, EIGHTH, 2)
    for _ in range(EIGHTH_BLOCKS):
        x = layers.Add()([x, block(x, EIGHTH)])
    x = convolution(x, COLUMN, (ROWS_LEFT, 1), padding="valid")
    for _ in range(COLUMN_BLOCKS):
        x = layers.Add()([x, block(x, COLUMN, kernel=(1, 5))])
    return tf.keras.Model(image, layers.Conv2D(CLASSES, 1)(x))


def change(image, rng):
    """A strip in another light, place, sharpness and noise, in which the characters are in the same columns."""
    if rng.random() < 0.7:
        matrix = np.float32([[rng.uniform(0.98, 1.02), rng.normal(0, 0.03), rng.uniform(-2, 2)], [0, rng.uniform(0.93, 1.07), rng.uniform(-2.5, 2.5)]])
        image = cv2.warpAffine(image, matrix, (STRIP_COLUMNS, STRIP_ROWS), borderMode=cv2.BORDER_REPLICATE)
    image = image.astype(np.float32)
    if rng.random() < 0.15:
        image = cv2.GaussianBlur(image, (0, 0), rng.uniform(0.4, 1.2))
    if rng.random() < 0.8:
        image = (image - 127.5) * np.float32(rng.uniform(0.6, 1.25)) + 127.5
        image = image * np.float32(rng.uniform(0.75, 1.25) * rng.uniform(0.93, 1.07, 3)) + np.float32(rng.uniform(-20, 20))
    if rng.random() < 0.3:
        image = image + np.float32(rng.normal(0, rng.uniform(1, 8), image.shape))
    return scaled(np.clip(image, 0, 255))


def scaled(image):
    return np.float32(image) * (2 / 255) - 1


def batches(images, classes, seed):
    """Endless batches."""
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(len(images))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            part = order[start:start + BATCH]
            yield np.stack([change(images[i], rng) for i in part]), np.float32(classes[part])


def loss(logits, wanted):
    """Cross entropy by column; those with characters count more."""
    weight = 1 + (CHARACTER_WEIGHT - 1) * (1 - wanted[..., 0])
    entropy = tf.nn.softmax_cross_entropy_with_logits(wanted, tf.squeeze(logits, 1))
    return tf.reduce_sum(weight * entropy) / tf.reduce_sum(weight)


def decode(probabilities):
    """The classes of a strip, and the least probability of them."""
    best, certainty = probabilities.argmax(-1), probabilities.max(-1)
    keep = (best != 0) & np.concatenate([[True], best[1:] != best[:-1]])
    return best[keep].tolist(), float(certainty[keep].min()) if keep.any() else 0.0


def report(model, images, classes):
    """How many texts of the checked are certain to the network, and how many of these are others than the recogniser's."""
    found = tf.nn.softmax(model.predict(images, batch_size=100, verbose=0)[:, 0]).numpy()
    certain = wrong = certain_of_teacher = same = 0
    for got, wanted in zip(found, np.float32(classes)):
        (text, least), (true, true_least) = decode(got), decode(wanted)
        if true_least >= 0.9 and true:
            certain_of_teacher += 1
            same += text == true
        if least >= CERTAIN and text:
            certain += 1
            wrong += text != true
    return f"{certain} certain, {wrong} of them others; {same} of the recogniser's {certain_of_teacher} the same"


def train(images, classes, seed, steps):
    model = network()
    checked = scaled(images[:CHECKED]), classes[:CHECKED]
    source = made_by_thread(batches(images[CHECKED:], classes[CHECKED:], seed))
    step = step_of(model, loss)
    started, average = time.time(), 0.0
    for number in range(steps):
        value = float(step(*next(source), rate_at(number, steps, HIGHEST_RATE)))
        average += (value - average) / min(number + 1, 100)
        if (number + 1) % CHECK_EVERY == 0:
            print(f"{number + 1} steps, {time.time() - started:.0f} s, loss {average:.3f}, {report(model, *checked)}", flush=True)
    return model


def write(model, path):
    writer = OnnxWriter()
    columns = writer.add("Reshape", [writer.add_layers(model), "by_class"])
    writer.add_shape("by_class", [1, CLASSES, COLUMNS])
    by_column = writer.add("Transpose", [columns], perm=[0, 2, 1])
    writer.add_output("Softmax", [by_column], "classes", axis=-1)
    writer.write(path, "light_text_recogniser", [1, 3, STRIP_ROWS, STRIP_COLUMNS], [1, COLUMNS, CLASSES])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    tf.keras.utils.set_random_seed(arguments.seed)
    sets = [np.load(file) for file in arguments.data]
    images, classes = (np.concatenate([s[key] for s in sets]) for key in ("image", "classes"))
    print(len(images), "strips", flush=True)
    model = train(images, classes, arguments.seed, arguments.steps)
    write(model, arguments.out)
    check_file(arguments.out, scaled(images[:50]), lambda image: tf.nn.softmax(model(image, training=False)[:, 0]).numpy())


if __name__ == "__main__":
    main()
