"""Draws torsos and labels them with the text networks.

usage: data.py OUT.npz COUNT SEED --models FOLDER --materials FOLDER [--scenes FOLDER]
"""

import time
from pathlib import Path

import cv2
import numpy as np

import examples
from patterns import HEIGHT, WIDTH
from teacher import NUMBER_CONFIDENCE, Teacher

# The gate's input, pixels, and the cells of its map: 8 x 12.
INPUT_WIDTH, INPUT_HEIGHT, CELL = 96, 144, 32
# Part of the examples that are cut from drawn scenes in place of drawn alone.
SCENE_PART = 0.1


def cells(label):
    """The largest value in each cell."""
    return label.reshape(HEIGHT // CELL, CELL, WIDTH // CELL, CELL).max((1, 3))


def scene_cut(draw, scenes):
    """Part of a drawn scene, at about the scale of its runners: their face unit is about 1 / 14 of the short side."""
    scene = draw.pick(scenes)
    unit = min(scene.shape[:2]) / 14 * draw.uni(0.6, 1.8)
    height, width = int(unit * HEIGHT / 88), int(unit * WIDTH / 88)
    y, x = int(draw.uni(0, scene.shape[0] - height)), int(draw.uni(0, scene.shape[1] - width))
    part = scene[y:y + height, x:x + width]
    if draw.chance(0.5):
        part = part[:, ::-1]
    return cv2.resize(part, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA).astype(np.float32)


def main():
    parser = examples.parser()
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--scenes", type=Path)
    arguments = parser.parse_args()
    draw, teacher = examples.prepare_drawing(arguments), Teacher(arguments.models)
    scenes = [cv2.imread(str(file)) for file in sorted((arguments.scenes or Path("/")).glob("photos/*.jpg"))]
    scenes = [cv2.resize(s, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA) for s in scenes]
    images, texts, numbers, scores = [], [], [], []
    started = time.time()
    for done in range(1, arguments.count + 1):
        scene = scene_cut(draw, scenes) if scenes and draw.chance(SCENE_PART) else None
        canvas, filled, edges = draw.torso_canvas(scene)
        text, number, count, best = teacher.label(canvas, filled, edges)
        images.append(cv2.resize(canvas, (INPUT_WIDTH, INPUT_HEIGHT), interpolation=cv2.INTER_AREA))
        texts.append(cells(text).astype(np.float16))
        numbers.append(cells(number).astype(np.float16))
        scores.append((float(count > 0), float(best >= NUMBER_CONFIDENCE)))
        if done % 500 == 0:
            shares = np.mean(scores, 0)
            print(f"{done} torsos, {time.time() - started:.0f} s, {shares[0]:.2f} with text, {shares[1]:.2f} with a number", flush=True)
    examples.write(arguments.out, image=np.stack(images), text=np.stack(texts), number=np.stack(numbers), score=np.float32(scores))


if __name__ == "__main__":
    main()
