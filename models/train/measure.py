"""Measures gates on photos with people: how many torsos a score skips, and how many accepted numbers that loses.

Use photos that the gate was not trained on. Nothing here trains.

usage: measure.py torsos OUT.npz PHOTOS BIBS.csv --models FOLDER [--jitters 3]
       measure.py gates TORSOS.npz GATE.onnx...
       measure.py set GATE.onnx SKIP_BELOW SECOND_PASS_FROM
"""

import argparse
import csv
from pathlib import Path

import cv2
import numpy as np

import onnx_file
from data import INPUT_HEIGHT, INPUT_WIDTH, cells
from patterns import HEIGHT, REACH, TOP, UNIT, WIDTH
from teacher import NUMBER_CONFIDENCE, Teacher, session

BOTTOM, MAX_ENLARGEMENT, MIN_UNIT = 5.06, 4.0, 20
FACE_SIDE, FACE_SCORE, FACE_IOU = 640, 0.6, 0.3
WORKING_SIDE = 2048
ACCEPTED = 0.9
SKIPS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.10, 0.15, 0.20, 0.30)


def scaled(image, width, height):
    smaller = width < image.shape[1]
    return cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA if smaller else cv2.INTER_LINEAR)


def find_faces(network, photo):
    """Boxes of YuNet: left, top, right, bottom (step 1)."""
    height, width = photo.shape[:2]
    zoom = min(1.0, FACE_SIDE / max(height, width))
    small = scaled(photo, round(width * zoom), round(height * zoom))
    canvas = np.zeros((-(-small.shape[0] // 32) * 32, -(-small.shape[1] // 32) * 32, 3), np.uint8)
    canvas[:small.shape[0], :small.shape[1]] = small
    names = [output.name for output in network.get_outputs()]
    outputs = dict(zip(names, network.run(None, {network.get_inputs()[0].name: canvas.transpose(2, 0, 1)[None].astype(np.float32)})))
    boxes, scores = [], []
    for stride in (8, 16, 32):
        score = np.sqrt(outputs[f"cls_{stride}"].ravel().clip(0, 1) * outputs[f"obj_{stride}"].ravel().clip(0, 1))
        box = outputs[f"bbox_{stride}"].reshape(-1, 4)
        for i in np.flatnonzero(score >= FACE_SCORE):
            x, y = i % (canvas.shape[1] // stride), i // (canvas.shape[1] // stride)
            w, h = np.exp(box[i, 2:]) * stride
            boxes.append([(x + box[i, 0]) * stride - w / 2, (y + box[i, 1]) * stride - h / 2, w, h])
            scores.append(float(score[i]))
    kept = cv2.dnn.NMSBoxes(boxes, scores, FACE_SCORE, FACE_IOU) if boxes else []
    return [np.array([b[0], b[1], b[0] + b[2], b[1] + b[3]]) / zoom for b in (boxes[i] for i in kept)]


def torso(photo, face, fitted):
    """The canvas of a face's torso, or None (steps 2, 4, 5); `fitted` is the size that one unit is scaled to."""
    height, width = photo.shape[:2]
    unit, middle, chin = max(face[2] - face[0], 0.8 * (face[3] - face[1])), (face[0] + face[2]) / 2, face[3]
    left, right = (int(np.clip(round(middle + s * REACH * unit), 0, width)) for s in (-1, 1))
    top, bottom = (int(np.clip(round(chin + s * unit), 0, height)) for s in (TOP, BOTTOM))
    if unit < MIN_UNIT or right - left < 16 or bottom - top < 10:
        return None
    zoom = min(UNIT / unit, MAX_ENLARGEMENT) * fitted
    part = scaled(photo[top:bottom, left:right], max(1, round((right - left) * zoom)), max(1, round((bottom - top) * zoom)))
    size = (round(HEIGHT * fitted), round(WIDTH * fitted))
    part = part[:size[0], :size[1]]
    canvas = np.zeros((*size, 3), np.uint8)
    canvas[:part.shape[0], :part.shape[1]] = part
    return canvas, part.shape[:2], (left == 0, right == width)


def jittered(face, rng):
    w, h = face[2] - face[0], face[3] - face[1]
    dx, dy, grow = rng.uniform(-0.04, 0.04) * w, rng.uniform(-0.04, 0.04) * h, rng.uniform(-0.05, 0.05) / 2
    return face + [dx - grow * w, dy - grow * h, dx + grow * w, dy + grow * h]


def write_torsos(arguments):
    cv2.setNumThreads(1)
    teacher, yunet = Teacher(arguments.models), session(arguments.models / "yunet_n_dynamic.onnx")
    images, texts, numbers, scores, best = [], [], [], [], []
    with open(arguments.labels, newline="") as file:
        names = [row["file"] for row in csv.DictReader(file)]
    for index, name in enumerate(names):
        photo = cv2.imread(str(arguments.photos / name))
        zoom = WORKING_SIDE / max(photo.shape[:2])
        if zoom < 1:
            photo = scaled(photo, round(photo.shape[1] * zoom), round(photo.shape[0] * zoom))
        rng = np.random.default_rng(index)
        for face in find_faces(yunet, photo):
            for jitter in range(arguments.jitters):
                box = jittered(face, rng) if jitter else face
                large = torso(photo, box, 1.0)
                if large is None:
                    continue
                text, number, count, confidence = teacher.label(*large)
                images.append(torso(photo, box, INPUT_WIDTH / WIDTH)[0])
                texts.append(cells(text).astype(np.float16))
                numbers.append(cells(number).astype(np.float16))
                scores.append((float(count > 0), float(confidence >= NUMBER_CONFIDENCE)))
                best.append(confidence)
    assert images[0].shape == (INPUT_HEIGHT, INPUT_WIDTH, 3)
    np.savez(arguments.out, image=np.stack(images), text=np.stack(texts), number=np.stack(numbers),
             score=np.float32(scores), best=np.float32(best))
    print(len(images), "torsos,", f"{np.mean(np.array(best) >= ACCEPTED):.2f} with an accepted number")


def compare_gates(arguments):
    data = np.load(arguments.torsos)
    accepted, with_text = data["best"] >= ACCEPTED, data["score"][:, 0] > 0
    print(len(accepted), "torsos,", f"{accepted.mean():.2f} with an accepted number, {with_text.mean():.2f} with text")
    for path in arguments.gates:
        network = session(path)
        runs = [network.run(["score", "map"], {"image": np.float32(i[None].transpose(0, 3, 1, 2))}) for i in data["image"]]
        score = np.stack([r[0][0, 1] for r in runs])
        in_map = np.stack([r[1][0, 1] for r in runs])
        print(path)
        if accepted.any() and not accepted.all():
            area = np.searchsorted(np.sort(score[~accepted]), score[accepted]).mean() / (~accepted).sum()
            limit = np.quantile(score[accepted], 0.01)
            print(f"  area under the curve {area:.3f}; .99 of accepted numbers score at least {limit:.3f}")
        for skip in SKIPS:
            kept = score >= skip
            rows = [window_rows(m, s) for m, s in zip(in_map[kept], score[kept])]
            line = f"  skip below {skip:.2f}: {(~kept).mean():.3f} skipped, {np.sum(rows) / (12 * len(kept)):.3f} of all rows read"
            if accepted.any():
                line += f"; kept {kept[accepted].mean():.3f} of accepted numbers, {kept[with_text].mean():.3f} of text"
            print(line)


def set_thresholds(arguments):
    names = ("skip_below", "second_pass_from", "small_from")
    values = {name: getattr(arguments, name) for name in names}
    arguments.gate.write_bytes(onnx_file.with_metadata(arguments.gate.read_bytes(), values))


def window_rows(probabilities, score, margin=2):
    """Rows of cells of the window: 6, 8 or all 12."""
    rows = np.flatnonzero((probabilities > min(0.05, score / 2)).any(1))
    span = min(rows[-1] + 1 + margin, 12) - max(rows[0] - margin, 0)
    return 6 if span <= 6 else 8 if span <= 8 else 12


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    torsos = commands.add_parser("torsos")
    torsos.add_argument("out", type=Path)
    torsos.add_argument("photos", type=Path)
    torsos.add_argument("labels", type=Path)
    torsos.add_argument("--models", type=Path, required=True)
    torsos.add_argument("--jitters", type=int, default=3)
    torsos.set_defaults(run=write_torsos)
    gates = commands.add_parser("gates")
    gates.add_argument("torsos", type=Path)
    gates.add_argument("gates", nargs="+")
    gates.set_defaults(run=compare_gates)
    setting = commands.add_parser("set")
    setting.add_argument("gate", type=Path)
    setting.add_argument("skip_below")
    setting.add_argument("second_pass_from")
    setting.add_argument("small_from")
    setting.set_defaults(run=set_thresholds)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
