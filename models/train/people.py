"""Draws people: bodies, what they wear and carry, and who is beside and behind them."""

import cv2
import numpy as np

from patterns import HEIGHT, WIDTH, Patterns

SKINS = [(150, 180, 225), (120, 155, 205), (95, 130, 185), (70, 100, 150), (45, 65, 105), (35, 45, 70)]


class People(Patterns):
    """Needs `letters`, `word`, `bib`, `sheet_without_number` and `hide_numbers` of the class that draws sheets."""

    def mask(self, points, blur=0.7):
        mask = np.zeros((HEIGHT, WIDTH), np.uint8)
        cv2.fillPoly(mask, [np.round(self.to_pixels(points) * 16).astype(np.int32)], 255, cv2.LINE_AA, 4)
        return cv2.GaussianBlur(mask, (0, 0), blur).astype(np.float32)[..., None] / 255

    def capsule(self, ends, half, blur=0.9):
        mask = np.zeros((HEIGHT, WIDTH), np.uint8)
        a, b = self.to_pixels(ends)
        cv2.line(mask, tuple(int(v) for v in a), tuple(int(v) for v in b), 255, max(1, int(2 * half * self.scale)), cv2.LINE_AA)
        return cv2.GaussianBlur(mask, (0, 0), blur).astype(np.float32)[..., None] / 255

    def blend(self, image, mask, color):
        """Puts a colour on the picture, in front of all that was put there before."""
        self.hide_numbers(mask)
        return self.mix(image, mask, color)

    @staticmethod
    def mix(image, mask, color):
        return image * (1 - mask) + color * mask

    def folds(self, depth):
        """Light and shadow of folded cloth around 1."""
        bumps = self.fractal(HEIGHT, WIDTH, self.uni(25, 90))
        slope = cv2.Sobel(cv2.GaussianBlur(bumps, (0, 0), 2), cv2.CV_32F, 1, self.pick([0, 1]))
        return (1 + depth * np.tanh(slope * 8))[..., None]

    def skin(self):
        return np.float32(self.pick(SKINS)) * self.uni(0.8, 1.15)

    def background(self):
        kind = self.rng.random()
        image = self.cut(HEIGHT, WIDTH) if kind < 0.6 else self.texture(HEIGHT, WIDTH)
        if self.chance(0.7):
            image = cv2.GaussianBlur(image, (0, 0), self.uni(0.6, 7))
        if self.chance(0.35):
            rough = self.fractal(HEIGHT, WIDTH, self.uni(4, 50))[..., None]
            image = image + rough * self.color(10, 70)
        for _ in range(self.rng.integers(0, 3)):
            image = self.passer_by(image)
        if self.chance(0.15):
            image = self.letters(image, self.word(), (self.uni(-1.5, 1.5), self.uni(0.8, 5)), self.uni(0.2, 1.4))
        return image

    def passer_by(self, image):
        """Another person, larger or smaller, anywhere; sometimes with a bib."""
        return self.person(image, (self.uni(-2, 2), self.uni(-1.5, 4.5)), self.uni(0.4, 1.4), 0.35)

    def neighbour(self, image):
        """A person beside the runner, whose bib the side of the region often cuts off: then it is not this runner's."""
        place = (self.pick([-1, 1]) * self.uni(1.1, 2.3), self.uni(-0.6, 0.8))
        return self.person(image, place, self.uni(0.7, 1.2), 0.7)

    def person(self, image, chin, size, bib_chance):
        """Somebody else with a face and hair, and perhaps a bib."""
        x, y = chin
        body = self.mask([(x - 1.4 * size, y + 5 * size), (x - 1.3 * size, y + 0.9 * size), (x - 0.5 * size, y + 0.3 * size),
                          (x + 0.5 * size, y + 0.3 * size), (x + 1.3 * size, y + 0.9 * size), (x + 1.4 * size, y + 5 * size)])
        image = self.blend(image, body, self.texture(HEIGHT, WIDTH) * self.folds(0.15))
        image = self.blend(image, self.capsule([(x, y - 0.9 * size), (x, y - 0.6 * size)], 0.75 * size), self.color(10, 110))
        image = self.blend(image, self.capsule([(x, y - 0.6 * size), (x, y - 0.3 * size)], 0.48 * size), self.skin())
        for side in (-0.2, 0.2):
            image = self.blend(image, self.capsule([(x + (side - 0.05) * size, y - 0.6 * size), (x + (side + 0.05) * size, y - 0.6 * size)], 0.05 * size), self.color(10, 60))
        image = self.blend(image, self.capsule([(x - 0.15 * size, y - 0.15 * size), (x + 0.15 * size, y - 0.15 * size)], 0.05 * size), self.color(40, 200))
        if self.chance(bib_chance):
            image = self.bib(image, (x + self.uni(-0.3, 0.3) * size, y + self.uni(1.4, 4.4) * size), size)
        return image

    def torso(self, image):
        """Shirt, neck, shorts and what is worn over the shirt."""
        lean, broad, waist = self.uni(-0.35, 0.35), self.uni(1.05, 1.7), self.uni(0.85, 1.6)
        hem = self.uni(4.0, 5.6)
        outline = [(-waist + lean, hem), (-waist + lean * 0.6, 3.0), (-broad, 1.5), (-broad * 0.95, 0.9), (-0.5, 0.35),
                   (0.5, 0.35), (broad * 0.95, 0.9), (broad, 1.5), (waist + lean * 0.6, 3.0), (waist + lean, hem)]
        outline = [(x + self.uni(-0.08, 0.08), y + self.uni(-0.08, 0.08)) for x, y in outline]
        skin = self.skin()
        hips = self.mask([(-1.2 * waist + lean, 4.4), (1.2 * waist + lean, 4.4), (1.25 * waist + lean, 9), (-1.25 * waist + lean, 9)])
        image = self.blend(image, hips, self.texture(HEIGHT, WIDTH) * self.folds(0.12))
        shirt = self.texture(HEIGHT, WIDTH)
        if self.chance(0.12):
            shirt = np.empty_like(shirt)
            shirt[:] = skin
        if self.chance(0.3):
            shirt = self.mix(shirt, self.panel(), self.texture(HEIGHT, WIDTH))
        x = (np.mgrid[:HEIGHT, :WIDTH][1].astype(np.float32) / self.scale + self.left) / broad
        rounding = (1 - self.uni(0, 0.5) * np.clip(np.abs(x - self.uni(-0.5, 0.5)), 0, 1.4) ** 2)[..., None]
        shirt = shirt * self.folds(self.uni(0.03, 0.35)) * np.clip(rounding, 0.2, 1.2)
        image = self.blend(image, self.mask(outline, self.uni(0.6, 1.5)), shirt)
        if self.chance(0.5):
            depth = self.uni(0.5, 1.5)
            image = self.blend(image, self.mask([(-0.55, 0.2), (0.55, 0.2), (self.uni(0.0, 0.3), depth), (self.uni(-0.3, 0.0), depth)]), skin)
        return self.accessories(image)

    def panel(self):
        kind = self.rng.integers(4)
        if kind == 0:
            y, h = self.uni(0.8, 4.5), self.uni(0.15, 1.2)
            return self.mask([(-3, y), (3, y + self.uni(-0.5, 0.5)), (3, y + h), (-3, y + h)])
        if kind == 1:
            x, w = self.uni(-1.4, 1.4), self.uni(0.08, 0.8)
            return self.mask([(x, 0), (x + w, 0), (x + w + self.uni(-0.3, 0.3), 7), (x, 7)])
        if kind == 2:
            y = self.uni(0.5, 4)
            return self.mask([(-3, y), (3, self.uni(0.5, 4)), (3, 8), (-3, 8)])
        w = self.uni(0.5, 1.1)
        return 1 - self.mask([(-w, 0), (w, 0), (w, 8), (-w, 8)])

    def accessories(self, image):
        """Straps, zips, belts, ribbons, medals, cables, bottles, badges: the usual reasons for a false number."""
        if self.chance(0.2):
            color, x, w = self.color(), self.uni(0.5, 1.1), self.uni(0.05, 0.22)
            for side in (-1, 1):
                image = self.blend(image, self.capsule([(side * x, 0.3), (side * (x + 0.1), self.uni(2.5, 5))], w), color)
            if self.chance(0.5):
                y = self.uni(1.4, 2.4)
                image = self.blend(image, self.capsule([(-x, y), (x, y)], w * 0.4), color)
        if self.chance(0.15):
            color = self.color()
            image = self.blend(image, self.capsule([(self.uni(-0.1, 0.1), 0.5), (self.uni(-0.1, 0.1), self.uni(1.2, 6))], self.uni(0.01, 0.05), 0.5), color)
        if self.chance(0.15):
            y, color = self.uni(3.6, 4.8), self.color()
            image = self.blend(image, self.capsule([(-2, y), (2, y + self.uni(-0.2, 0.2))], self.uni(0.04, 0.25)), color)
        if self.chance(0.12):
            color, y = self.color(), self.uni(2, 3.5)
            for side in (-1, 1):
                image = self.blend(image, self.capsule([(side * self.uni(0.4, 0.7), 0.2), (0, y)], self.uni(0.03, 0.12)), color)
            if self.chance(0.7):
                image = self.blend(image, self.capsule([(0, y + 0.3), (0, y + 0.31)], self.uni(0.15, 0.4)), self.color(60, 230))
        if self.chance(0.08):
            image = self.blend(image, self.capsule([(self.uni(-1, 1), 0.3), (self.uni(-1, 1), self.uni(2, 5))], 0.012, 0.4), self.color(0, 255))
        for _ in range(self.rng.integers(0, 3) if self.chance(0.35) else 0):
            image = self.logo(image, (self.uni(-1, 1), self.uni(1, 4.5)), self.uni(0.08, 0.5))
        if self.chance(0.3):
            image = self.letters(image, self.word(), (self.uni(-0.6, 0.6), self.uni(1.2, 3.8)), self.uni(0.12, 0.7))
            if self.chance(0.4):
                image = self.letters(image, self.word(), (self.uni(-0.5, 0.5), self.uni(1.2, 4.2)), self.uni(0.1, 0.4))
        if self.chance(0.08):
            image = self.sheet_without_number(image)
        return image

    def logo(self, image, centre, size):
        """A few strokes or a round or square badge."""
        x, y = centre
        color = self.pick([np.full(3, 240, np.float32), np.full(3, 20, np.float32), self.color()])
        kind = self.rng.integers(4)
        if kind == 0:
            return self.blend(image, self.capsule([(x, y), (x + 0.01, y)], size * 0.5), color)
        if kind == 1:
            w, h = size * self.uni(0.3, 1), size * self.uni(0.2, 1)
            return self.blend(image, self.mask([(x - w, y - h), (x + w, y - h), (x + w, y + h), (x - w, y + h)]), color)
        if kind == 2:
            points = [(x + self.uni(-size, size), y + self.uni(-size, size) * 0.6) for _ in range(self.rng.integers(3, 7))]
            return self.blend(image, self.mask(points), color)
        slant = self.uni(-0.3, 0.6) * size
        for i in range(self.rng.integers(2, 5)):
            dx = i * size * 0.4
            image = self.blend(image, self.capsule([(x + dx, y + size * 0.4), (x + dx + slant, y - size * 0.4)], size * self.uni(0.06, 0.16), 0.6), color)
        return image

    def arms(self, image, front):
        """Arms beside the torso, or (`front`) across it, with hands and what they hold."""
        skin = self.skin()
        sleeve = self.cloth_color() if self.chance(0.4) else skin
        for side in (-1, 1):
            if not self.chance(0.75 if not front else 0.3):
                continue
            shoulder = (side * self.uni(1.2, 1.6), self.uni(0.8, 1.3))
            elbow = (side * self.uni(1.3, 2.2), self.uni(2.2, 3.6))
            hand = (side * self.uni(0.7, 1.9), self.uni(1.2, 4.8))
            if front:
                hand = (side * self.uni(-0.7, 0.9), self.uni(1.3, 4.2))
            shade = self.uni(0.75, 1.1)
            thick = self.uni(0.2, 0.4)
            image = self.blend(image, self.capsule([shoulder, elbow], thick), sleeve * shade)
            image = self.blend(image, self.capsule([elbow, hand], thick * 0.75), (sleeve if self.chance(0.5) else skin) * shade)
            image = self.blend(image, self.capsule([hand, (hand[0] + self.uni(-0.1, 0.1), hand[1] - 0.15)], thick * 0.8), skin * shade)
            for finger in range(self.rng.integers(0, 5)):
                y = hand[1] - 0.25 + finger * 0.1
                image = self.blend(image, self.capsule([(hand[0], y), (hand[0] - side * 0.25, y + 0.05)], 0.05), skin * shade * self.uni(0.7, 1.1))
            if self.chance(0.15):
                image = self.blend(image, self.capsule([(elbow[0] * 0.3 + hand[0] * 0.7, elbow[1] * 0.3 + hand[1] * 0.7), hand], thick * 0.8), self.color())
            if self.chance(0.1):
                w, h = self.uni(0.15, 0.4), self.uni(0.2, 0.6)
                image = self.blend(image, self.mask([(hand[0] - w, hand[1] - h), (hand[0] + w, hand[1] - h), (hand[0] + w, hand[1] + h), (hand[0] - w, hand[1] + h)]), self.color())
        return image
