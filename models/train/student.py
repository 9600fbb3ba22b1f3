"""What the networks that learn from others have in common: their convolutions, the rate, and the steps of training."""

import queue
import threading

import numpy as np
import tensorflow as tf

layers = tf.keras.layers

EPSILON = 1e-3
DECAY, WARM_UP = 1e-4, 100


def normalised(x):
    return layers.ReLU()(layers.BatchNormalization(momentum=0.98, epsilon=EPSILON)(x))


def convolution(x, outputs, kernel, stride=1, padding="same"):
    return normalised(layers.Conv2D(outputs, kernel, stride, padding, use_bias=False)(x))


def block(x, outputs, stride=1, kernel=5):
    """A depthwise convolution, of 5 x 5 unless said otherwise, and one over channels."""
    x = normalised(layers.DepthwiseConv2D(kernel, stride, "same", use_bias=False)(x))
    return convolution(x, outputs, 1) if outputs else x


def rate_at(step, steps, highest):
    """The rate of one of `steps`: it rises at first and then falls along a cosine (Loshchilov and Hutter 2017)."""
    rate = highest * min(1, (step + 1) / WARM_UP) * (0.5 + 0.5 * np.cos(np.pi * step / steps)) + 1e-6
    return tf.constant(rate, tf.float32)


def made_by_thread(batches):
    """The same batches, made ahead by a thread of their own."""
    made = queue.Queue(8)

    def make():
        for batch in batches:
            made.put(batch)

    threading.Thread(target=make, daemon=True).start()
    while True:
        yield made.get()


def step_of(model, loss_of_logits):
    """A function that takes one step, and returns its loss."""
    optimizer = tf.keras.optimizers.AdamW(weight_decay=DECAY, global_clipnorm=5.0)

    @tf.function
    def step(image, wanted, rate):
        optimizer.learning_rate.assign(rate)
        with tf.GradientTape() as tape:
            loss = loss_of_logits(model(image, training=True), wanted)
        gradient = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradient, model.trainable_variables))
        return loss

    return step
