"""Draws torsos with known and unknown contents: the canvas of the text detector's first pass, 256 x 384 pixels, as the
service cuts it from a photo. Most torsos wear clothes with patterns, straps, logos and words; half wear a bib.

Lengths are in units `u` of the runner (about a face's width) from the middle of the chin, as in docs/READING.md.
"""

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 256, 384
UNIT = 88.0           # pixels of the canvas per u
REACH, TOP = 1.45, 0.70  # the region's left and upper edge

WORDS = (
    "RUN TEAM CITY CLUB SPORT RACE ACTIVE FINISHER MARATHON TRAIL ROAD COACH ATHLETIC PACER VOLUNTEER MEDIC PRESS EVENT "
    "HALF START ELITE POWER ENERGY WATER FOREST LAKE NORTH SOUTH COAST VALLEY RIVER SUMMER WINTER SPRING FIT FAST STRONG "
    "GO PRO MAX AIR DRY LIGHT FUN JOY HOPE CARE HEART LOVE PEACE SMILE DREAM FLY JUMP BIKE SWIM TRI UNION BANK MEDIA "
    "RADIO FOODS MARKET HOTEL CLINIC SCHOOL COLLEGE UNIVERSITY TIGERS LIONS EAGLES WOLVES ROCKETS ANNA MAX LEO MIA TOM EVA"
).split()
SKINS = [(150, 180, 225), (120, 155, 205), (95, 130, 185), (70, 100, 150), (45, 65, 105), (35, 45, 70)]


class Draw:
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
        if kind < 0.34:
            return image
        if kind < 0.48:
            mask = self.waves(height, width, self.uni(6, 90)) > self.uni(-0.8, 0.8)
        elif kind < 0.56:
            period = self.uni(8, 70)
            mask = (self.waves(height, width, period) > self.uni(-0.5, 0.5)) ^ (self.waves(height, width, period) > 0)
        elif kind < 0.68:
            mask = self.fractal(height, width, self.uni(6, 70)) > self.uni(-0.2, 0.5)
        elif kind < 0.74:
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

    # ---- bodies; points are (right, down) in u from the chin

    def to_pixels(self, points):
        return np.float32([[(x - self.left) * self.scale, (y - TOP - self.up) * self.scale] for x, y in points])

    def mask(self, points, blur=0.7):
        mask = np.zeros((HEIGHT, WIDTH), np.uint8)
        cv2.fillPoly(mask, [np.round(self.to_pixels(points) * 16).astype(np.int32)], 255, cv2.LINE_AA, 4)
        return cv2.GaussianBlur(mask, (0, 0), blur).astype(np.float32)[..., None] / 255

    def capsule(self, ends, half, blur=0.9):
        mask = np.zeros((HEIGHT, WIDTH), np.uint8)
        a, b = self.to_pixels(ends)
        cv2.line(mask, tuple(int(v) for v in a), tuple(int(v) for v in b), 255, max(1, int(2 * half * self.scale)), cv2.LINE_AA)
        return cv2.GaussianBlur(mask, (0, 0), blur).astype(np.float32)[..., None] / 255

    @staticmethod
    def blend(image, mask, color):
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
        """Another person, larger or smaller, anywhere; with a face, hair and sometimes a bib."""
        size, x, y = self.uni(0.4, 1.4), self.uni(-2, 2), self.uni(-1.5, 4.5)
        body = self.mask([(x - 1.4 * size, y + 5 * size), (x - 1.3 * size, y + 0.9 * size), (x - 0.5 * size, y + 0.3 * size),
                          (x + 0.5 * size, y + 0.3 * size), (x + 1.3 * size, y + 0.9 * size), (x + 1.4 * size, y + 5 * size)])
        image = self.blend(image, body, self.texture(HEIGHT, WIDTH) * self.folds(0.15))
        image = self.blend(image, self.capsule([(x, y - 0.9 * size), (x, y - 0.6 * size)], 0.75 * size), self.color(10, 110))
        image = self.blend(image, self.capsule([(x, y - 0.6 * size), (x, y - 0.3 * size)], 0.48 * size), self.skin())
        for side in (-0.2, 0.2):
            image = self.blend(image, self.capsule([(x + (side - 0.05) * size, y - 0.6 * size), (x + (side + 0.05) * size, y - 0.6 * size)], 0.05 * size), self.color(10, 60))
        image = self.blend(image, self.capsule([(x - 0.15 * size, y - 0.15 * size), (x + 0.15 * size, y - 0.15 * size)], 0.05 * size), self.color(40, 200))
        if self.chance(0.35):
            image = self.bib(image, (x, y + 2.5 * size), size)
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
            shirt = self.blend(shirt, self.panel(), self.texture(HEIGHT, WIDTH))
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

    # ---- letters and bibs

    def font(self, size):
        key = (self.pick(self.fonts), size)
        if key not in self.loaded:
            self.loaded[key] = ImageFont.truetype(*key)
        return self.loaded[key]

    def word(self):
        word = self.pick(WORDS)
        if self.chance(0.3):
            word = word + " " + self.pick(WORDS)
        if self.chance(0.08):
            word = self.pick(["10K", "2024", "42.195", "21K", "5K", "2019", "24H", "100"])
        return word if self.chance(0.6) else word.capitalize()

    def number(self):
        digits = int(self.rng.choice([1, 2, 3, 4, 5], p=[0.03, 0.1, 0.27, 0.38, 0.22]))
        number = "".join(str(d) for d in self.rng.integers(0, 10, digits))
        if self.chance(0.1):
            number = self.pick(["A", "B", "F", "M", "E", "H", "W", "K", "S", "VM"]) + number
        return number

    def stencil(self, text, size=72):
        """Coverage of a text, 0 to 255, cut tightly; wide, narrow or bold."""
        font = self.font(size)
        bold = int(self.rng.integers(0, 5)) if self.chance(0.35) else 0
        left, top, right, bottom = font.getbbox(text, stroke_width=bold)
        picture = Image.new("L", (right - left, max(4, bottom - top)))
        ImageDraw.Draw(picture).text((-left, -top), text, fill=255, font=font, stroke_width=bold)
        stencil = np.asarray(picture)
        if self.chance(0.5):
            stencil = cv2.resize(stencil, (max(4, int(stencil.shape[1] * self.uni(0.55, 1.15))), stencil.shape[0]), interpolation=cv2.INTER_AREA)
        return stencil

    def letters(self, image, text, centre, height):
        """A text on cloth or a wall, `height` u high."""
        stencil = self.stencil(text).astype(np.float32)
        plate = np.zeros((stencil.shape[0], stencil.shape[1], 4), np.float32)
        x, y = self.to_pixels([centre])[0].clip([0, 0], [WIDTH - 1, HEIGHT - 1])
        plate[..., :3] = self.contrast_color(image[int(y), int(x)])
        plate[..., 3] = stencil / 255
        return self.place(image, plate, centre, height / stencil.shape[0], bend=self.uni(0, 0.6))

    def sheet(self, number):
        """A flat bib as colour and coverage, and the height of its digits, in pixels."""
        stencil = self.stencil(number).astype(np.float32)[..., None] / 255
        rows, columns = stencil.shape[:2]
        side, above, below = int(self.uni(0.1, 0.9) * rows), int(self.uni(0.06, 0.9) * rows), int(self.uni(0.06, 0.7) * rows)
        height, width = rows + above + below, columns + 2 * side
        paper = self.color(205, 255) if self.chance(0.75) else self.cloth_color()
        if self.chance(0.8):
            ink = self.color(0, 80) if paper.mean() > 130 else self.color(190, 255)
        else:
            ink = self.contrast_color(paper)
        plate = np.ones((height, width, 4), np.float32)
        plate[..., :3] = paper
        if self.chance(0.12):
            plate[..., :3] = paper + (self.cloth_color() - paper) * np.linspace(0, self.uni(0.2, 0.9), height, dtype=np.float32)[:, None, None]
        if self.chance(0.1):
            plate[..., :3] = plate[..., :3] * 0.75 + self.texture(height, width) * 0.25
        if self.chance(0.55) and above > 12:
            band = self.cloth_color()
            plate[:int(above * self.uni(0.6, 0.95)), :, :3] = band
            self.print_on(plate, self.word(), (0, above), band)
        if self.chance(0.5) and below > 12:
            band = self.cloth_color() if self.chance(0.6) else paper
            plate[height - int(below * self.uni(0.6, 0.95)):, :, :3] = band
            self.print_on(plate, self.word(), (height - below, height), band)
        if self.chance(0.1):
            self.bars(plate)
        if self.chance(0.06):
            plate[..., 3] = 0.0     # printed on the shirt itself
            plate[above:above + rows, side:side + columns, 3:] = stencil
        part = plate[above:above + rows, side:side + columns, :3]
        plate[above:above + rows, side:side + columns, :3] = part * (1 - stencil) + ink * stencil
        for y in (0.06, 0.94):
            for x in (0.04, 0.96):
                if self.chance(0.4):
                    cv2.circle(plate, (int(x * width), int(y * height)), 2, (90, 90, 90, 1), -1)
        return plate, rows

    def print_on(self, plate, text, rows, paper):
        """A line of small print between two rows of a sheet."""
        top, bottom = rows
        height = int((bottom - top) * self.uni(0.35, 0.7))
        stencil = self.stencil(text, 40)
        stencil = cv2.resize(stencil, (max(4, int(stencil.shape[1] * height / stencil.shape[0])), max(4, height)), interpolation=cv2.INTER_AREA)
        stencil = stencil[:, :plate.shape[1] - 4].astype(np.float32)[..., None] / 255
        h, w = stencil.shape[:2]
        y, x = top + (bottom - top - h) // 2, int(self.uni(0, plate.shape[1] - w))
        part = plate[y:y + h, x:x + w, :3]
        plate[y:y + h, x:x + w, :3] = part * (1 - stencil[:part.shape[0]]) + self.contrast_color(paper) * stencil[:part.shape[0]]

    def bars(self, plate):
        """A bar code or a square code in a corner."""
        height, width = plate.shape[:2]
        h, w = int(height * self.uni(0.1, 0.3)), int(width * self.uni(0.1, 0.3))
        rows = 1 if self.chance(0.5) else 12
        code = (self.rng.random((rows, 14)) > 0.5).astype(np.float32) * 255
        code = cv2.resize(code, (max(4, w), max(4, h)), interpolation=cv2.INTER_NEAREST)[..., None]
        y, x = self.pick([2, height - code.shape[0] - 2]), self.pick([2, width - code.shape[1] - 2])
        plate[y:y + code.shape[0], x:x + code.shape[1], :3] = code

    def bib(self, image, centre, size=1.0):
        plate, digit_rows = self.sheet(self.number())
        height = float(np.clip(self.rng.normal(0.52, 0.14), 0.25, 0.95)) * size
        return self.place(image, plate, centre, height / digit_rows, bend=self.uni(0, 1))

    def sheet_without_number(self, image):
        """A name badge, a sign, a towel, a blank bib."""
        height, width = int(self.rng.integers(30, 120)), int(self.rng.integers(40, 140))
        plate = np.ones((height, width, 4), np.float32)
        plate[..., :3] = self.texture(height, width) if self.chance(0.4) else self.color(190, 255)
        if self.chance(0.6):
            self.print_on(plate, self.word(), (0, height // 2), plate[0, 0, :3])
        return self.place(image, plate, (self.uni(-0.7, 0.7), self.uni(1.2, 4.2)), self.uni(0.008, 0.02), bend=self.uni(0, 1))

    def place(self, image, plate, centre, zoom, bend):
        """Puts a sheet on the picture, `zoom` u per pixel of it: turned, in perspective, bent and folded like cloth."""
        zoom *= self.scale
        height, width = plate.shape[:2]
        x, y = self.to_pixels([centre])[0]
        angle, slant = self.rng.normal(0, 0.12), self.rng.normal(0, 0.06)
        turn = np.float32([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        w, h = width * zoom / 2 * self.uni(0.72, 1.0), height * zoom / 2
        corners = np.float32([[-w, -h * (1 - slant)], [w, -h * (1 + slant)], [w, h * (1 + slant)], [-w, h * (1 - slant)]])
        corners[:, 1] += corners[:, 0] * self.rng.normal(0, 0.06)
        corners = corners @ turn.T + [x, y]
        blur = int(np.clip(1 / zoom, 1, 8))
        plate = plate.copy()
        plate[..., :3] *= plate[..., 3:]
        if blur > 1:
            plate = cv2.blur(plate, (blur, blur))
        matrix = cv2.getPerspectiveTransform(np.float32([[0, 0], [width, 0], [width, height], [0, height]]), np.float32(corners))
        layer = cv2.warpPerspective(plate, matrix, (WIDTH, HEIGHT))
        light = self.uni(0.8, 1.1)
        if bend > 0.3:
            bumps = self.noise(HEIGHT, WIDTH, self.uni(30, 120)) * bend
            rows, columns = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32)
            layer = cv2.remap(layer, columns + bumps * self.uni(0, 5), rows + np.roll(bumps, 40, 0) * self.uni(0, 8), cv2.INTER_LINEAR)
            light = light + cv2.Sobel(cv2.GaussianBlur(bumps, (0, 0), 2), cv2.CV_32F, 1, 0)[..., None] * self.uni(0, 4)
        return image * (1 - layer[..., 3:]) + np.clip(layer[..., :3] * light, 0, 255)

    # ---- the photo

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
        unit = float(np.exp(self.uni(np.log(20), np.log(150))))
        k = min(1.0, unit / UNIT)
        small = cv2.resize(image, (int(WIDTH * k), int(HEIGHT * k)), interpolation=cv2.INTER_AREA) if k < 1 else image
        if self.chance(0.5):
            small = small + cv2.GaussianBlur(self.rng.normal(0, self.uni(1, 14), small.shape).astype(np.float32), (0, 0), self.uni(0.3, 0.8))
        small = np.clip(small, 0, 255).astype(np.uint8)
        if self.chance(0.3):
            soft = cv2.GaussianBlur(small, (0, 0), 1)
            small = cv2.addWeighted(small, 1 + self.uni(0.2, 1), soft, 0, 0) if self.chance(0.02) else np.clip(small + (small.astype(np.float32) - soft) * self.uni(0.2, 1.2), 0, 255).astype(np.uint8)
        if self.chance(0.75):
            small = cv2.imdecode(cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, int(self.rng.integers(30, 96))])[1], 1)
        enlarged = min(UNIT / (unit if k < 1 else UNIT), 4.0)
        size = (min(WIDTH, int(small.shape[1] * enlarged)), min(HEIGHT, int(small.shape[0] * enlarged)))
        return cv2.resize(small, size, interpolation=cv2.INTER_LINEAR) if k < 1 else small

    def clip(self, image):
        """What the photo's edges leave of the region, at the top left of a black canvas; and which sides are edges."""
        at_left = at_right = False
        if self.chance(0.1):
            image = image[:, int(self.uni(0.05, 0.6) * image.shape[1]):]
            at_left = True
        elif self.chance(0.1):
            image = image[:, :max(24, int(self.uni(0.4, 0.95) * image.shape[1]))]
            at_right = True
        if self.chance(0.25):
            image = image[:max(24, int(self.uni(0.3, 0.98) * image.shape[0]))]
        canvas = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        canvas[:image.shape[0], :image.shape[1]] = image
        return canvas, image.shape[:2], (at_left, at_right)

    def torso_canvas(self, scene=None):
        """One example: the canvas, rows and columns of it that the photo fills, and which sides are the photo's edges."""
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
            if self.chance(0.7):
                image = self.arms(image, front=False)
            image = self.torso(image)
        if self.chance(0.62 if scene is None else 0.25):
            image = self.bib(image, (self.rng.normal(0, 0.28), self.uni(1.4, 4.2)))
        if has_body and self.chance(0.35):
            image = self.arms(image, front=True)
        if self.chance(0.08):
            image = self.passer_by(image)
        return self.clip(self.finish(image))
