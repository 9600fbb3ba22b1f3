"""Draws torsos and keeps, at half the scale of the first pass, their pixels and the text detector's map.

usage: light_data.py OUT.npz COUNT SEED --models FOLDER --materials FOLDER
"""

import argparse
import time
from pathlib import Path

import cv2
import numpy as np

import materials
from draw import Draw
from patterns import LIGHT_HEIGHT, LIGHT_WIDTH
from teacher import Teacher, canvas_tensor


def halved(image):
    return cv2.resize(image, (LIGHT_WIDTH, LIGHT_HEIGHT), interpolation=cv2.INTER_AREA)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--materials", type=Path, required=True)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    packages = materials.fetch(arguments.materials)
    draw = Draw(arguments.seed, materials.fonts(packages), materials.pictures(packages))
    teacher = Teacher(arguments.models)
    images = np.zeros((arguments.count, LIGHT_HEIGHT, LIGHT_WIDTH, 3), np.uint8)
    maps = np.zeros((arguments.count, LIGHT_HEIGHT, LIGHT_WIDTH), np.uint8)
    started = time.time()
    for done in range(arguments.count):
        canvas, filled, _ = draw.torso_canvas()
        probability = teacher.run(teacher.detector, canvas_tensor(canvas, filled))[0, 0]
        images[done], maps[done] = halved(canvas), np.rint(255 * halved(probability))
        if done % 500 == 499:
            print(f"{done + 1} torsos, {time.time() - started:.0f} s", flush=True)
    # Under its name only when it is whole.
    unfinished = arguments.out.with_suffix(".unfinished.npz")
    np.savez(unfinished, image=images, map=maps)
    unfinished.rename(arguments.out)


if __name__ == "__main__":
    main()
