"""Labels of a canvas: the text detector's map and the recogniser's readings, by the steps of docs/READING.md."""

import re

import cv2
import numpy as np
import onnxruntime

from patterns import HEIGHT, UNIT, WIDTH

# Step 6.
BIN_THRESH, BOX_THRESH, UNCLIP_RATIO, MIN_SIDE, MIN_UNCLIPPED_SIDE = 0.3, 0.5, 1.6, 3, 5
# Step 7.
EDGE_MARGIN, BIB_HEIGHTS = 0.01, (0.25, 1.2)
# Step 9.
STRIP_ROWS, STRIP_COLUMNS, LENGTHENED = 48, 160, 0.10
# Step 11: the default pattern of an album; a reading at this confidence is a number to the gate.
PATTERN = re.compile(r"[A-Z]{0,2}[0-9]{2,5}[A-Z]?")
NUMBER_CONFIDENCE = 0.7
# The classes of the recogniser after the blank, in order: as in models/models.toml.
CHARACTERS = "208-713H546su9SYFDAPTrqJlxzetbLwihIBNMZCoEfUapyngQOkcvWRGdKXmVj"


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def planes(image):
    """Pixels from -1 to 1, one plane per colour, as PP-OCR takes them."""
    return (image.astype(np.float32) * (2 / 255) - 1).transpose(2, 0, 1)


def order_corners(points):
    """Top left, top right, bottom right, bottom left."""
    points = points[np.argsort(points[:, 0])]
    left, right = points[:2][np.argsort(points[:2, 1])], points[2:][np.argsort(points[2:, 1])]
    return np.float32([left[0], right[0], right[1], left[1]])


def sides(quad):
    return np.linalg.norm(quad[1] - quad[0]), np.linalg.norm(quad[3] - quad[0])


def strip(canvas, quad):
    """The recogniser's input for a box (step 9)."""
    width, height = sides(quad)
    if width >= height:
        quad = quad + np.float32([[-1], [1], [1], [-1]]) * (quad[1] - quad[0]) / max(width, 1e-6) * height * LENGTHENED
        width, height = sides(quad)
    if height / max(width, 1e-6) >= 1.5:
        quad, width, height = quad[[1, 2, 3, 0]], height, width
    columns = int(np.clip(np.ceil(STRIP_ROWS * width / max(height, 1)), 1, STRIP_COLUMNS))
    corners = np.float32([[0, 0], [columns, 0], [columns, STRIP_ROWS], [0, STRIP_ROWS]])
    matrix = cv2.getPerspectiveTransform(np.float32(quad), corners)
    pixels = cv2.warpPerspective(canvas, matrix, (columns, STRIP_ROWS), borderMode=cv2.BORDER_REPLICATE)
    tensor = np.zeros((1, 3, STRIP_ROWS, STRIP_COLUMNS), np.float32)
    tensor[0, :, :, :columns] = planes(pixels)
    return tensor


def canvas_tensor(canvas, filled):
    """The text detector's input for the part `filled` (rows, columns) of a canvas."""
    rows, columns = filled
    tensor = np.full((1, 3, HEIGHT, WIDTH), -1, np.float32)
    tensor[0, :, :rows, :columns] = planes(canvas[:rows, :columns])
    return tensor


class Teacher:
    """The networks that the gate learns from."""

    def __init__(self, models):
        self.detector = session(models / "ch_PP-OCRv4_det_infer.onnx")
        self.recogniser = session(models / "rec_v4_alnum.onnx")

    @staticmethod
    def run(network, tensor):
        return network.run(None, {network.get_inputs()[0].name: tensor})[0]

    def boxes(self, probability):
        """Rotated boxes of the probability map (step 6)."""
        binary = cv2.dilate((probability > BIN_THRESH).astype(np.uint8), np.ones((2, 2), np.uint8))
        for contour in cv2.findContours(binary, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)[0]:
            centre, (width, height), angle = cv2.minAreaRect(contour)
            if min(width, height) < MIN_SIDE:
                continue
            inside = np.zeros(probability.shape, np.uint8)
            cv2.fillPoly(inside, [cv2.boxPoints((centre, (width, height), angle)).astype(np.int32)], 1)
            grown = UNCLIP_RATIO * width * height / (width + height)
            if cv2.mean(probability, inside)[0] < BOX_THRESH or min(width, height) + grown < MIN_UNCLIPPED_SIDE:
                continue
            yield order_corners(cv2.boxPoints((centre, (width + grown, height + grown), angle)))

    def read(self, canvas, quad):
        """Text and confidence of a box (step 10, without the second reading)."""
        classes = self.run(self.recogniser, strip(canvas, quad))[0]
        best, certainty = classes.argmax(-1), classes.max(-1)
        keep = (best != 0) & np.concatenate([[True], best[1:] != best[:-1]])
        text = "".join(CHARACTERS[i - 1] if i <= len(CHARACTERS) else "" for i in best[keep])
        return re.sub("[^A-Za-z0-9]", "", text), float(certainty[keep].mean()) if keep.any() else 0.0

    def label(self, canvas, filled, edges):
        """Labels of the part `filled` (rows, columns) of a canvas; `edges` says which of its sides are the photo's edges.

        Returns the map of text that may be a bib, the map of numbers (both 0 to 1, per pixel), how many boxes may be bibs,
        and the best confidence of a number.
        """
        rows, columns = filled
        probability = self.run(self.detector, canvas_tensor(canvas, filled))[0, 0]
        text, number = np.zeros_like(probability), np.zeros_like(probability)
        count, best = 0, 0.0
        for quad in self.boxes(probability):
            if not self.may_be_bib(quad, columns, edges):
                continue
            count += 1
            inside = np.zeros(probability.shape, np.uint8)
            cv2.fillPoly(inside, [quad.astype(np.int32)], 1)
            text = np.maximum(text, probability * inside)
            reading, confidence = self.read(canvas[:rows, :columns], quad)
            if PATTERN.fullmatch(reading):
                best = max(best, confidence)
                if confidence >= NUMBER_CONFIDENCE:
                    number = np.maximum(number, probability * inside)
        return text, number, count, best

    @staticmethod
    def may_be_bib(quad, columns, edges):
        """Not cut off by a side, and as high as the digits of a bib (step 7)."""
        margin = EDGE_MARGIN * columns
        if (not edges[0] and quad[:, 0].min() < margin) or (not edges[1] and quad[:, 0].max() > columns - margin):
            return False
        width, height = sides(quad)
        height = width if width / max(height, 1e-6) < 1 / 1.5 else height
        return BIB_HEIGHTS[0] <= height / UNIT <= BIB_HEIGHTS[1]
