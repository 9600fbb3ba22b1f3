"""Draws torsos and keeps, at half the scale of the first pass, their pixels and where their numbers are.

usage: light_data.py OUT.npz COUNT SEED --materials FOLDER
"""

import time

import cv2
import numpy as np

import examples
from patterns import LIGHT_HEIGHT, LIGHT_WIDTH


def halved(image):
    return cv2.resize(image, (LIGHT_WIDTH, LIGHT_HEIGHT), interpolation=cv2.INTER_AREA)


def main():
    arguments = examples.parser().parse_args()
    draw = examples.prepare_drawing(arguments)
    images = np.zeros((arguments.count, LIGHT_HEIGHT, LIGHT_WIDTH, 3), np.uint8)
    maps = np.zeros((arguments.count, LIGHT_HEIGHT, LIGHT_WIDTH), np.uint8)
    started = time.time()
    for done in range(arguments.count):
        canvas, _, _ = draw.torso_canvas()
        images[done], maps[done] = halved(canvas), np.rint(255 * halved(draw.number_canvas))
        if done % 500 == 499:
            print(f"{done + 1} torsos, {time.time() - started:.0f} s", flush=True)
    examples.write(arguments.out, image=images, map=maps)


if __name__ == "__main__":
    main()
