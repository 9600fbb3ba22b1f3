"""Draws torsos with known and unknown contents: the canvas of the text detector's first pass, 256 x 384 pixels, as the
service cuts it from a photo. Most torsos wear clothes with patterns, straps, logos and words; half wear a bib.
"""

import cv2
import numpy as np

from patterns import HEIGHT, UNIT, WIDTH
from people import People
from sheets import LEAST_HEIGHT, Sheets


class Draw(People, Sheets):
    """Draws whole examples."""

    def finish(self, image):
        """Light, colour, lens, sensor and file of a camera."""
        if self.chance(0.3):
            shadow = self.fractal(HEIGHT, WIDTH, self.uni(30, 150)) > self.uni(-0.3, 0.4)
            soft = cv2.GaussianBlur(shadow.astype(np.float32), (0, 0), self.uni(1, 8))[..., None]
            image = image * (1 - self.uni(0.2, 0.6) * soft)
        if self.chance(0.2):
            ramp = np.linspace(self.uni(0.5, 1.2), self.uni(0.5, 1.2), WIDTH, dtype=np.float32)[None, :, None]
            image = image * ramp
        image = np.clip(image, 0, 255)
        if self.chance(0.7):
            image = 255 * (np.clip(image * self.uni(0.55, 1.35) + self.uni(-20, 25), 0, 255) / 255) ** self.uni(0.65, 1.5)
        if self.chance(0.3):
            image = image * self.rng.uniform(0.8, 1.2, 3).astype(np.float32)
        if self.chance(0.05):
            image = np.repeat(image.mean(2, keepdims=True), 3, 2)
        if self.chance(0.2):
            if self.chance(0.5):
                image = cv2.GaussianBlur(image, (0, 0), self.uni(0.5, 2.5))
            else:
                n = self.pick([3, 5, 7, 9])
                image = cv2.blur(image, (n, 1) if self.chance(0.6) else (1, n))
        unit = min(UNIT, float(np.exp(self.uni(np.log(20), np.log(150)))))
        k = unit / UNIT
        self.shown_unit = unit
        small = cv2.resize(image, (int(WIDTH * k), int(HEIGHT * k)), interpolation=cv2.INTER_AREA) if k < 1 else image
        if self.chance(0.5):
            small = small + cv2.GaussianBlur(self.rng.normal(0, self.uni(1, 14), small.shape).astype(np.float32), (0, 0), self.uni(0.3, 0.8))
        small = np.clip(small, 0, 255).astype(np.uint8)
        if self.chance(0.3):
            soft = cv2.GaussianBlur(small, (0, 0), 1)
            small = np.clip(small + (small.astype(np.float32) - soft) * self.uni(0.2, 1.2), 0, 255).astype(np.uint8)
        if self.chance(0.75):
            small = cv2.imdecode(cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, int(self.rng.integers(30, 96))])[1], 1)
        return cv2.resize(small, (WIDTH, HEIGHT), interpolation=cv2.INTER_LINEAR) if k < 1 else small

    def clip(self, image):
        """What the photo's edges leave of the region, at the top left of a black canvas; and which sides are edges."""
        rows, columns = image.shape[:2]
        left, right, bottom = 0, columns, rows
        if self.chance(0.1):
            left = int(self.uni(0.05, 0.6) * columns)
        elif self.chance(0.1):
            right = max(24, int(self.uni(0.4, 0.95) * columns))
        if self.chance(0.25):
            bottom = max(24, int(self.uni(0.3, 0.98) * rows))
        canvas = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        canvas[:bottom, :right - left] = image[:bottom, left:right]
        numbers = self.number_map(LEAST_HEIGHT / (self.shown_unit * self.scale / UNIT))
        self.number_canvas = np.zeros((HEIGHT, WIDTH), np.float32)
        shown = cv2.resize(numbers, (columns, rows), interpolation=cv2.INTER_LINEAR)
        self.number_canvas[:bottom, :right - left] = shown[:bottom, left:right]
        return canvas, (bottom, right - left), (left > 0, right < columns)

    def torso_canvas(self, scene=None):
        """One example: the canvas, rows and columns of it that the photo fills, and which sides are the photo's edges.
        `number_canvas` is then where its numbers are."""
        self.numbers = []
        mode = self.rng.random()
        self.scale = UNIT * (self.uni(0.85, 1.18) if mode < 0.75 else self.uni(0.5, 1.6))
        self.left = -WIDTH / 2 / self.scale + self.rng.normal(0, 0.15)
        self.up = self.rng.normal(0, 0.15)
        if mode > 0.8:
            self.left += self.uni(-2, 2)
            self.up += self.uni(-2.5, 2)
        image = self.background() if scene is None else scene
        has_body = scene is None and self.chance(0.9)
        if has_body:
            if self.chance(0.35):
                image = self.neighbour(image)
            if self.chance(0.7):
                image = self.arms(image, front=False)
            image = self.torso(image)
        if self.chance(0.6 if scene is None else 0.25):
            image = self.bib(image, (self.rng.normal(0, 0.3), self.uni(1.3, 4.7)))
        if has_body and self.chance(0.35):
            image = self.arms(image, front=True)
        if self.chance(0.08):
            image = self.passer_by(image)
        if self.chance(0.12):
            image = self.neighbour(image)
        return self.clip(self.finish(image))
