"""What `gpu_peer.py` does to a photo on the CPU: decoding and sizes, and, once the networks have detected, cutting out faces
and lines of text. Runs in many processes, which share the memory of photos.
"""

from __future__ import annotations

import mmap
import os
import pathlib
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier

import cv2
import numpy as np

FRAME, SMALL = 1280, 640
FACE_SCORE, FACE_OVERLAP = 0.6, 0.3
TEXT_PIXEL, TEXT_SCORE, TEXT_GROWTH = 0.3, 0.5, 1.6
LINE_HEIGHT, WIDEST_LINE = 48, 640
CROP = 128
TEMPLATE = CROP * np.array(
    [(0.31556875, 0.46157411), (0.68262292, 0.46157411), (0.5002625, 0.64050536),
     (0.34947187, 0.82469196), (0.65343646, 0.82469196)])
# Faces and lines of a photo, for the main process. Pages that are not written take no memory.
CUTOUT_BYTES = 32 << 20
SLOT_BYTES = FRAME * FRAME * 3 + SMALL * SMALL * 3 + FRAME * FRAME * 4 + CUTOUT_BYTES


@dataclass(frozen=True)
class Photo:
    """A decoded photo in a slot. Frames are at the top left of canvases whose sides are multiples of 32."""

    file: str
    slot: int
    frame: tuple[int, int]
    small: tuple[int, int]
    scale: float  # of the small frame, against the frame

    @property
    def shape(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return self.frame, self.small


class Slots:
    """Shared memory with a place for each photo in work; a process opens it by its path, whatever the size of /dev/shm."""

    def __init__(self, path: str, count: int) -> None:
        self.file = os.open(path, os.O_RDWR)
        self.memory = np.frombuffer(mmap.mmap(self.file, count * SLOT_BYTES), np.uint8).reshape(count, SLOT_BYTES)

    @staticmethod
    def create(count: int) -> tuple["Slots", str]:
        memory = os.memfd_create("frames")
        os.ftruncate(memory, count * SLOT_BYTES)
        path = f"/proc/{os.getpid()}/fd/{memory}"
        return Slots(path, count), path

    def frame(self, slot: int, shape: tuple[int, int]) -> np.ndarray:
        return self.memory[slot, : shape[0] * shape[1] * 3].reshape(*shape, 3)

    def small(self, slot: int, shape: tuple[int, int]) -> np.ndarray:
        start = FRAME * FRAME * 3
        return self.memory[slot, start : start + shape[0] * shape[1] * 3].reshape(*shape, 3)

    def text_map(self, slot: int, shape: tuple[int, int]) -> np.ndarray:
        start = (FRAME * FRAME + SMALL * SMALL) * 3
        return self.memory[slot, start : start + shape[0] * shape[1] * 4].view(np.float32).reshape(shape)

    def cutouts(self, slot: int) -> np.ndarray:
        return self.memory[slot, -CUTOUT_BYTES:]


slots: Slots


def start_process(path: str, count: int, started: Barrier) -> None:
    """Prepares a process; none works before all can."""
    global slots
    cv2.setNumThreads(1)
    slots = Slots(path, count)
    started.wait()


def read_long_side(jpeg: bytes) -> int:
    """The long side as the header has it; 0 where it has none."""
    at = 2
    while at + 9 < len(jpeg):
        marker, length = jpeg[at + 1], int.from_bytes(jpeg[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return max(int.from_bytes(jpeg[at + 5 : at + 7], "big"), int.from_bytes(jpeg[at + 7 : at + 9], "big"))
        at += 2 + length
    return 0


def place(image: np.ndarray, canvas: np.ndarray) -> None:
    height, width = image.shape[:2]
    canvas[:height, :width] = image
    canvas[height:], canvas[:, width:] = 0, 0


def shrink(image: np.ndarray, side: int) -> tuple[np.ndarray, float]:
    scale = min(1.0, side / max(image.shape[:2]))
    if scale == 1.0:
        return image, scale
    size = [max(1, round(length * scale)) for length in image.shape[1::-1]]
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA), scale


def decode(file: str, slot: int) -> Photo:
    jpeg = pathlib.Path(file).read_bytes()
    reduced = {8: cv2.IMREAD_REDUCED_COLOR_8, 4: cv2.IMREAD_REDUCED_COLOR_4, 2: cv2.IMREAD_REDUCED_COLOR_2}
    side = read_long_side(jpeg)
    flag = next((flag for part, flag in reduced.items() if side >= part * FRAME), cv2.IMREAD_COLOR)
    image = cv2.imdecode(np.frombuffer(jpeg, np.uint8), flag)
    if image is None:
        raise ValueError(f"{file} is no photo")
    frame, _ = shrink(image, FRAME)
    small, scale = shrink(frame, SMALL)
    shapes = [tuple(-(-length // 32) * 32 for length in picture.shape[:2]) for picture in (frame, small)]
    place(frame, slots.frame(slot, shapes[0]))
    place(small, slots.small(slot, shapes[1]))
    return Photo(file, slot, shapes[0], shapes[1], scale)


def align(frame: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Cuts out a face by the least-squares similarity of its five points and the template."""
    source, target = points - points.mean(0), TEMPLATE - TEMPLATE.mean(0)
    size = (source**2).sum()
    a = (source * target).sum() / size
    b = (source[:, 0] * target[:, 1] - source[:, 1] * target[:, 0]).sum() / size
    turn = np.array([[a, -b], [b, a]])
    shift = TEMPLATE.mean(0) - turn @ points.mean(0)
    return cv2.warpAffine(frame, np.column_stack([turn, shift]), (CROP, CROP))


def cut_line(frame: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Cuts out a line of text, whose corners go round; lines that stand are turned."""
    by_x = corners[np.argsort(corners[:, 0])]
    left, right = by_x[:2][np.argsort(by_x[:2, 1])], by_x[2:][np.argsort(by_x[2:, 1])]
    corners = np.array([left[0], right[0], right[1], left[1]], np.float32)
    width, height = np.linalg.norm(corners[1] - corners[0]), np.linalg.norm(corners[3] - corners[0])
    if height >= 1.5 * width:
        corners, width, height = corners[[1, 2, 3, 0]], height, width
    columns = int(min(WIDEST_LINE, max(1, np.ceil(LINE_HEIGHT * width / max(height, 1)))))
    target = np.array([(0, 0), (columns, 0), (columns, LINE_HEIGHT), (0, LINE_HEIGHT)], np.float32)
    transform = cv2.getPerspectiveTransform(corners, target)
    return cv2.warpPerspective(frame, transform, (columns, LINE_HEIGHT), borderMode=cv2.BORDER_REPLICATE)


def find_lines(text_map: np.ndarray) -> list[np.ndarray]:
    mask = cv2.dilate((text_map > TEXT_PIXEL).astype(np.uint8), np.ones((2, 2), np.uint8))
    lines = []
    for contour in cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)[0]:
        centre, (width, height), angle = cv2.minAreaRect(contour)
        if min(width, height) < 3:
            continue
        corners = cv2.boxPoints((centre, (width, height), angle))
        x0, y0 = np.maximum(np.floor(corners.min(0)), 0).astype(int)
        x1, y1 = np.ceil(corners.max(0)).astype(int) + 1
        part = np.ascontiguousarray(text_map[y0:y1, x0:x1])
        inside = np.zeros(part.shape, np.uint8)
        cv2.fillPoly(inside, [(corners - (x0, y0)).astype(np.int32)], 1)
        grow = width * height * TEXT_GROWTH / (width + height)  # both sides together
        if cv2.mean(part, inside)[0] >= TEXT_SCORE and min(width, height) + grow >= 5:
            lines.append(cv2.boxPoints((centre, (width + grow, height + grow), angle)))
    return lines


def cut_out(photo: Photo, candidates: np.ndarray) -> tuple[int, list[int]]:
    """Writes the photo's faces and lines into its slot; returns the number of faces and the widths of lines.

    A candidate is a score, a box (x, y, width, height) and five points, in pixels of the small frame.
    """
    frame = slots.frame(photo.slot, photo.frame)
    kept = cv2.dnn.NMSBoxes(candidates[:, 1:5].tolist(), candidates[:, 0].tolist(), FACE_SCORE, FACE_OVERLAP)
    points = candidates[np.array(kept, int).ravel(), 5:].reshape(-1, 5, 2) / photo.scale
    faces = [align(frame, face) for face in points]
    lines = [cut_line(frame, line) for line in find_lines(slots.text_map(photo.slot, photo.frame))]
    out, at = slots.cutouts(photo.slot), 0
    for picture in faces + lines:
        out[at : at + picture.size] = picture.ravel()
        at += picture.size
    return len(faces), [line.shape[1] for line in lines]
