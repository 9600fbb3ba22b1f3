"""Random numbers, colours and patterns of cloth and backgrounds, and the place of a runner on the canvas.

Lengths are in units `u` of the runner (about a face's width) from the middle of the chin, as in docs/READING.md.
"""

import cv2
import numpy as np

WIDTH, HEIGHT = 256, 384
# The input and the map of the light text detector.
LIGHT_WIDTH, LIGHT_HEIGHT = WIDTH // 2, HEIGHT // 2
UNIT = 88.0           # pixels of the canvas per u
REACH, TOP = 1.45, 0.70  # the region's left and upper edge


class Patterns:
    """Draws with one sequence of random numbers, so that a seed gives the same torsos everywhere."""

    def __init__(self, seed, fonts, pictures):
        self.rng = np.random.default_rng(seed)
        self.fonts = fonts
        self.pictures = pictures
        self.loaded = {}

    # ---- random numbers

    def uni(self, low, high):
        return float(self.rng.uniform(low, high))

    def chance(self, probability):
        return self.rng.random() < probability

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def color(self, low=0, high=255):
        return self.rng.uniform(low, high, 3).astype(np.float32)

    def cloth_color(self):
        kind = self.rng.random()
        if kind < 0.2:
            return np.full(3, self.uni(180, 250), np.float32) + self.rng.normal(0, 4, 3).astype(np.float32)
        if kind < 0.45:
            return np.full(3, self.uni(15, 60), np.float32) + self.rng.normal(0, 6, 3).astype(np.float32)
        hsv = np.uint8([[[self.rng.integers(180), self.rng.integers(60, 256), self.rng.integers(60, 256)]]])
        return cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR)[0, 0].astype(np.float32)

    def bright_color(self):
        """A colour of printed digits: red, blue, green and the like, often no darker than what is around them."""
        hsv = np.uint8([[[self.rng.integers(180), self.rng.integers(150, 256), self.rng.integers(90, 256)]]])
        return cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR)[0, 0].astype(np.float32)

    def contrast_color(self, other):
        """A colour that can be seen on another, sometimes barely."""
        for _ in range(8):
            color = self.cloth_color()
            if abs(float(color.mean() - other.mean())) > self.uni(20, 110):
                return color
        return 255 - other

    # ---- patterns

    def noise(self, height, width, cell):
        """Smooth noise of mean 0, about -1 to 1, whose bumps are `cell` pixels wide."""
        rows, columns = max(2, int(height / cell) + 2), max(2, int(width / cell) + 2)
        grid = self.rng.normal(0, 0.5, (rows, columns)).astype(np.float32)
        return cv2.resize(grid, (width, height), interpolation=cv2.INTER_CUBIC)

    def fractal(self, height, width, cell):
        return self.noise(height, width, cell) * 0.6 + self.noise(height, width, cell / 2) * 0.3 + self.noise(height, width, max(2, cell / 4)) * 0.2

    def cut(self, height, width):
        """Part of a picture."""
        picture = self.pick(self.pictures)
        rows, columns = picture.shape[:2]
        part = self.uni(0.15, 0.8) ** 1.3
        h = max(16, min(rows, int(part * min(rows, columns * height / width))))
        w = max(16, min(columns, int(h * width / height)))
        y, x = int(self.rng.integers(rows - h + 1)), int(self.rng.integers(columns - w + 1))
        patch = cv2.resize(picture[y:y + h, x:x + w], (width, height), interpolation=cv2.INTER_LINEAR)
        if self.chance(0.5):
            patch = patch[:, ::-1]
        return patch.astype(np.float32)

    def waves(self, height, width, period):
        """Stripes in any direction, -1 to 1; mostly straight ones."""
        angle = self.pick([0.0, np.pi / 2, self.uni(0, np.pi), self.uni(0, np.pi)])
        y, x = np.mgrid[:height, :width].astype(np.float32)
        along = x * np.cos(angle) + y * np.sin(angle)
        if self.chance(0.3):
            along += self.noise(height, width, 60) * self.uni(2, 20)
        return np.sin(along * (2 * np.pi / period) + self.uni(0, 6))

    def texture(self, height, width):
        """A coloured pattern for cloth or a background."""
        base, other = self.cloth_color(), self.cloth_color()
        kind = self.rng.random()
        image = np.empty((height, width, 3), np.float32)
        image[:] = base
        if kind < 0.45:
            return image
        if kind < 0.55:
            mask = self.waves(height, width, self.uni(6, 90)) > self.uni(-0.8, 0.8)
        elif kind < 0.62:
            period = self.uni(8, 70)
            mask = (self.waves(height, width, period) > self.uni(-0.5, 0.5)) ^ (self.waves(height, width, period) > 0)
        elif kind < 0.71:
            mask = self.fractal(height, width, self.uni(6, 70)) > self.uni(-0.2, 0.5)
        elif kind < 0.76:
            return image + (other - base) * np.linspace(0, 1, height, dtype=np.float32)[:, None, None]
        elif kind < 0.86:
            return self.cut(height, width)
        elif kind < 0.93:
            y, x = np.mgrid[:height, :width].astype(np.float32)
            mask = y + x * self.uni(-1, 1) > self.uni(0, height)
        else:
            image += self.rng.normal(0, self.uni(3, 25), (height, width, 1)).astype(np.float32)
            return image
        soft = cv2.GaussianBlur(mask.astype(np.float32), (0, 0), self.uni(0.5, 1.5))[..., None]
        return image * (1 - soft) + other * soft

    # ---- points are (right, down) in u from the chin

    def to_pixels(self, points):
        return np.float32([[(x - self.left) * self.scale, (y - TOP - self.up) * self.scale] for x, y in points])
