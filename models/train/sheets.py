"""Draws letters, bibs and other sheets, and puts them on cloth in perspective."""

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from patterns import HEIGHT, WIDTH, Patterns

WORDS = (
    "RUN TEAM CITY CLUB SPORT RACE ACTIVE FINISHER MARATHON TRAIL ROAD COACH ATHLETIC PACER VOLUNTEER MEDIC PRESS EVENT "
    "HALF START ELITE POWER ENERGY WATER FOREST LAKE NORTH SOUTH COAST VALLEY RIVER SUMMER WINTER SPRING FIT FAST STRONG "
    "GO PRO MAX AIR DRY LIGHT FUN JOY HOPE CARE HEART LOVE PEACE SMILE DREAM FLY JUMP BIKE SWIM TRI UNION BANK MEDIA "
    "RADIO FOODS MARKET HOTEL CLINIC SCHOOL COLLEGE UNIVERSITY TIGERS LIONS EAGLES WOLVES ROCKETS ANNA MAX LEO MIA TOM EVA"
).split()


# A map of text shows the middle of each: what is farther from its outline than area / outline * SHRINK, which is how the text
# detector was trained (Liao et al. 2020, with a ratio of .4).
SHRINK = 1 - 0.4**2
# How much of a number others may cover, and how high its digits are at least in the photo, in pixels: below that nobody reads it.
LEAST_VISIBLE, LEAST_HEIGHT = 0.5, 7.0


class Number:
    """Where a number was drawn: the part that a map of text shows, what is visible of it, and the height of its digits in u."""

    def __init__(self, middle, height):
        self.middle, self.visible, self.height = middle, middle.copy(), height


class Sheets(Patterns):
    """Bibs, words and sheets without a number."""

    # Those of this picture.
    numbers = ()

    def hide_numbers(self, mask):
        """Something is put in front of the numbers."""
        for number in self.numbers:
            number.visible *= 1 - mask[..., 0]

    def number_map(self, least_height):
        """Where numbers can be read, 0 to 1, whose digits are `least_height` u high or more."""
        shown = np.zeros((HEIGHT, WIDTH), np.float32)
        for number in self.numbers:
            if number.height >= least_height and number.visible.sum() >= LEAST_VISIBLE * number.middle.sum():
                shown = np.maximum(shown, number.visible)
        return shown

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
        """A flat bib as colour and coverage, and where its number is: columns and rows, from and to."""
        stencil = self.stencil(number).astype(np.float32)[..., None] / 255
        rows, columns = stencil.shape[:2]
        side, above, below = int(self.uni(0.1, 0.9) * rows), int(self.uni(0.06, 0.9) * rows), int(self.uni(0.06, 0.7) * rows)
        height, width = rows + above + below, columns + 2 * side
        paper = self.color(205, 255) if self.chance(0.62) else self.cloth_color()
        kind = self.rng.random()
        if kind < 0.6:
            ink = self.color(0, 80) if paper.mean() > 130 else self.color(190, 255)
        elif kind < 0.8:
            ink = self.bright_color()
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
        return plate, (side, above, side + columns, above + rows)

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
        plate, digits = self.sheet(self.number())
        height = float(np.clip(self.rng.normal(0.52, 0.14), 0.25, 0.95)) * size
        return self.place(image, plate, centre, height / (digits[3] - digits[1]), bend=self.uni(0, 1), digits=digits)

    def sheet_without_number(self, image):
        """A name badge, a sign, a towel, a blank bib."""
        height, width = int(self.rng.integers(30, 120)), int(self.rng.integers(40, 140))
        plate = np.ones((height, width, 4), np.float32)
        plate[..., :3] = self.texture(height, width) if self.chance(0.4) else self.color(190, 255)
        if self.chance(0.6):
            self.print_on(plate, self.word(), (0, height // 2), plate[0, 0, :3])
        return self.place(image, plate, (self.uni(-0.7, 0.7), self.uni(1.2, 4.2)), self.uni(0.008, 0.02), bend=self.uni(0, 1))

    def place(self, image, plate, centre, zoom, bend, digits=None):
        """Puts a sheet on the picture, `zoom` u per pixel of it: turned, in perspective, bent and folded like cloth. `digits`
        is where its number is, if it is a bib."""
        height_of_digits = zoom * (digits[3] - digits[1]) if digits else 0
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
        box = self.outline(matrix, digits) if digits else None
        light = self.uni(0.8, 1.1)
        if bend > 0.3:
            bumps = self.noise(HEIGHT, WIDTH, self.uni(30, 120)) * bend
            rows, columns = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32)
            columns, rows = columns + bumps * self.uni(0, 5), rows + np.roll(bumps, 40, 0) * self.uni(0, 8)
            layer = cv2.remap(layer, columns, rows, cv2.INTER_LINEAR)
            box = cv2.remap(box, columns, rows, cv2.INTER_NEAREST) if digits else None
            light = light + cv2.Sobel(cv2.GaussianBlur(bumps, (0, 0), 2), cv2.CV_32F, 1, 0)[..., None] * self.uni(0, 4)
        self.hide_numbers(layer[..., 3:])
        if digits:
            self.numbers.append(Number(self.middle(box), height_of_digits))
        return image * (1 - layer[..., 3:]) + np.clip(layer[..., :3] * light, 0, 255)

    @staticmethod
    def outline(matrix, digits):
        """The box of a number on the picture, 0 or 1."""
        left, top, right, bottom = digits
        corners = np.float32([[[left, top], [right, top], [right, bottom], [left, bottom]]])
        box = np.zeros((HEIGHT, WIDTH), np.uint8)
        cv2.fillPoly(box, [np.round(cv2.perspectiveTransform(corners, matrix)[0] * 16).astype(np.int32)], 1, cv2.LINE_8, 4)
        return box

    @staticmethod
    def middle(box):
        """What a map of text shows of a box."""
        edges = cv2.findContours(box, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)[0]
        outline = sum(cv2.arcLength(edge, True) for edge in edges)
        # The picture's edge cuts a box off, which is none of its own edges.
        inside = cv2.distanceTransform(cv2.copyMakeBorder(box, 1, 1, 1, 1, cv2.BORDER_CONSTANT), cv2.DIST_L2, 5)[1:-1, 1:-1]
        return (inside >= SHRINK * box.sum() / max(outline, 1)).astype(np.float32) * box
