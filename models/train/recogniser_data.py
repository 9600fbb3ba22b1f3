"""Draws torsos and keeps the strips of the texts that the text detector finds on them, with what the recogniser says of each.

usage: recogniser_data.py OUT.npz COUNT SEED --models FOLDER --materials FOLDER
"""

import time

import cv2
import numpy as np

import examples
from patterns import TOP, UNIT
from teacher import BIB_HEIGHTS, CHARACTERS, STRIP_COLUMNS, STRIP_ROWS, canvas_tensor, sides, strip

# Extensions of boxes at their ends: of the first reading, the second try and the look beyond the ends (steps 9 to 11).
EXTENSIONS = (0.1, 0.1, 0.3, 0.6)
# Columns of the recogniser's output, and its classes with the blank.
COLUMNS, CLASSES = 20, len(CHARACTERS) + 1
# A part of the strips is of texts that are drawn alone, which takes a quarter of the time of a torso, on pictures of this size.
ALONE_PART, ALONE_WIDTH, ALONE_HEIGHT = 0.9, 288, 128
# How far a text detector's box reaches beyond the characters at each end, and above and below, in heights: mean and deviation.
MARGIN, MARGIN_DEVIATION = 0.06, (0.09, 0.09, 0.06, 0.06)


def moved(quad, rng, margin=0.0):
    """A box as another detector may have found it: a little off at each side, and larger by the margin."""
    width, height = sides(quad)
    across, down = (quad[1] - quad[0]) / max(width, 1e-6), (quad[3] - quad[0]) / max(height, 1e-6)
    left, right, above, below = rng.normal(np.float64([-1, 1, -1, 1]) * margin, MARGIN_DEVIATION) * min(width, height)
    ends = np.stack([across * left, across * right, across * right, across * left])
    return np.float32(quad + ends + np.stack([down * above, down * above, down * below, down * below]))


def strip_alone(draw):
    """A strip of one text on a sheet, on cloth or on anything."""
    draw.scale = UNIT * draw.uni(0.6, 1.2)
    draw.left, draw.up = -ALONE_WIDTH / 2 / draw.scale, -TOP - ALONE_HEIGHT / 2 / draw.scale
    image = draw.cut(ALONE_HEIGHT, ALONE_WIDTH) if draw.chance(0.3) else draw.texture(ALONE_HEIGHT, ALONE_WIDTH)
    if draw.chance(0.8):
        image = draw.bib(image, (0, 0))
    else:
        image = draw.letters(image, draw.number() if draw.chance(0.4) else draw.word(), (0, 0), draw.uni(0.25, 0.8))
    left, top, width, height = draw.printed
    corners = np.float32([[left, top], [left + width, top], [left + width, top + height], [left, top + height]])
    quad = cv2.perspectiveTransform(corners[None], draw.placed)[0]
    if draw.chance(0.12):
        # A finger, a strap, a pin.
        ends = [tuple(int(draw.uni(0, side)) for side in (ALONE_WIDTH, ALONE_HEIGHT)) for _ in range(2)]
        image = cv2.line(np.ascontiguousarray(image), *ends, draw.color().tolist(), int(draw.uni(2, 20)), cv2.LINE_AA)
    picture = draw.finish(image)
    quad *= np.float32([picture.shape[1] / ALONE_WIDTH, picture.shape[0] / ALONE_HEIGHT])
    return strip(picture, moved(quad, draw.rng, MARGIN), draw.pick(EXTENSIONS))


def strips_of_torso(draw, teacher):
    """The strips of a drawn torso."""
    canvas, (rows, columns), _ = draw.torso_canvas()
    probability = teacher.run(teacher.detector, canvas_tensor(canvas, (rows, columns)))[0, 0]
    for quad in teacher.boxes(probability):
        width, height = sides(quad)
        if not BIB_HEIGHTS[0] <= min(width, height) / UNIT <= BIB_HEIGHTS[1]:
            continue
        yield strip(canvas[:rows, :columns], quad, EXTENSIONS[0])
        yield strip(canvas[:rows, :columns], moved(quad, draw.rng), draw.pick(EXTENSIONS))


def main():
    arguments = examples.parser().parse_args()
    draw, teacher = examples.prepare(arguments)
    images = np.zeros((arguments.count, STRIP_ROWS, STRIP_COLUMNS, 3), np.uint8)
    classes = np.zeros((arguments.count, COLUMNS, CLASSES), np.float16)
    started, done = time.time(), 0
    while done < arguments.count:
        strips = [strip_alone(draw)] if draw.chance(ALONE_PART) else strips_of_torso(draw, teacher)
        for tensor in strips:
            if done == arguments.count:
                break
            images[done] = np.rint((tensor[0] + 1) * 127.5).transpose(1, 2, 0)
            classes[done] = teacher.run(teacher.recogniser, tensor)[0]
            done += 1
            if done % 1000 == 0:
                print(f"{done} strips, {time.time() - started:.0f} s", flush=True)
    examples.write(arguments.out, image=images, classes=classes)


if __name__ == "__main__":
    main()
