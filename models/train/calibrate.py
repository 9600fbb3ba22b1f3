"""Calibrates a network for 8-bit integers: the range of each convolution's input, and what its bias needs so that the mean of
its output stays what it was. The text networks are measured on drawn torsos, as the gate is trained, the face embedder on
portraits in the public domain, each changed in many ways; no photo of a race is used.

usage: calibrate.py detector|light|recogniser|embedder OUT.json --models FOLDER --materials FOLDER [--portraits FOLDER]
                    [--pictures 400] [--seed 77]
"""

import argparse
import json
import sys
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnxruntime
from onnx import helper

import examples
from light_data import halved
from measure import find_faces, scaled
from teacher import Teacher, canvas_tensor, planes, session, strip

sys.path.insert(0, str(Path(__file__).parents[2] / "xtask" / "convert"))
import quantise  # noqa: E402
from onnx_edit import Network  # noqa: E402

NETWORKS = {
    "detector": "pp_ocrv4_det_factored.onnx",
    "light": "light_text_detector.onnx",
    "recogniser": "rec_v4_alnum.onnx",
    "embedder": "omz_face_reid_0095_fused.onnx",
}

# The folder of the networks that are trained here.
TRAINED = Path(__file__).parents[1] / "trained"

# Layers that stay in f32, by what `quantise.py` calls their outputs: these lower the cosine of the network's output by more
# than .0014 when they alone are quantised, or gain little. One of the recogniser's larger layers that lowers it by .0023 is
# quantised all the same. Depthwise convolutions stay in f32 too: their channels differ in range.
KEPT = {
    "detector": {"conv_3", "conv_12", "conv_21"},
    "light": set(),
    "recogniser": {"conv_0", "conv_3", "conv_8", "conv_89", "conv_93", "conv_239", "conv_244", "conv_248"},
    "embedder": {"conv_2"},
}

# The embedder's input, and where its template has the middle of a face and how wide a face is in it, about.
FACE_SIDE, FACE_CENTRE, FACE_WIDTH = 128, (64, 80), 112
# Sides, in pixels, of the faces that are enlarged to the input.
FACE_SIZES = (20, 128)

# Every so many values of a tensor are looked at, at most.
VALUES_A_TENSOR = 6000
# Parts of the largest values that a range may end at. Larger values are clipped, so that the others are finer.
RANGE_PARTS = np.linspace(1.0, 0.3, 29)
# Significant digits of the figures that are written.
DIGITS = 4


def draw_torsos(arguments):
    """Inputs of the text networks: canvases, the same at half the scale, and the strips of the boxes that may be bibs."""
    draw, teacher = examples.prepare_drawing(arguments), Teacher(arguments.models)
    canvases, halves, strips = [], [], []
    for _ in range(arguments.pictures):
        canvas, filled, edges = draw.torso_canvas()
        canvases.append(canvas_tensor(canvas, filled))
        halves.append(planes(halved(canvas))[None])
        visible = canvas[:filled[0], :filled[1]]
        boxes = teacher.boxes(teacher.run(teacher.detector, canvases[-1])[0, 0])
        strips += [strip(visible, box) for box in boxes if teacher.may_be_bib(box, filled[1], edges)]
    return {"detector": canvases, "light": halves, "recogniser": strips}


def change_faces(arguments):
    """Inputs of the embedder: faces of the portraits in other sizes, positions, colours and light, with noise, as JPEG."""
    network = session(arguments.models / "yunet_n_dynamic.onnx")
    portraits = []
    for file in sorted(arguments.portraits.iterdir()):
        picture = cv2.imread(str(file))
        zoom = min(1.0, 1024 / max(picture.shape[:2]))
        picture = scaled(picture, round(picture.shape[1] * zoom), round(picture.shape[0] * zoom))
        portraits.append((picture, max(find_faces(network, picture), key=lambda face: face[2] - face[0])))
    rng = np.random.default_rng(arguments.seed)
    faces = [change_face(*portraits[i % len(portraits)], rng) for i in range(arguments.pictures)]
    return [face.transpose(2, 0, 1)[None].astype(np.float32) for face in faces]


def change_face(picture, face, rng):
    """One changed face of a picture."""
    zoom = FACE_WIDTH / max(face[2] - face[0], face[3] - face[1]) * rng.uniform(0.87, 1.11)
    angle, mirrored = rng.normal(0, 8) * np.pi / 180, rng.choice([-1, 1])
    cosine, sine = np.cos(angle) * zoom, np.sin(angle) * zoom
    matrix = np.array([[cosine * mirrored, -sine, 0], [sine * mirrored, cosine, 0]])
    centre = np.array([face[0] + face[2], face[1] + face[3]]) / 2
    matrix[:, 2] = FACE_CENTRE + rng.normal(0, 4, 2) - matrix[:, :2] @ centre
    image = cv2.warpAffine(picture, matrix, (FACE_SIDE, FACE_SIDE))
    if rng.random() < 0.7:
        side = int(rng.uniform(*FACE_SIZES))
        image = scaled(scaled(image, side, side), FACE_SIDE, FACE_SIDE)
    light = np.clip(image * rng.uniform(0.4, 1.6) + rng.uniform(-30, 30), 0, 255)
    image = 255 * (light / 255) ** rng.uniform(0.6, 1.6) * rng.uniform(0.75, 1.25, 3)
    if rng.random() < 0.4:
        ramp = np.linspace(*rng.uniform(0.4, 1.3, 2), FACE_SIDE)
        image = image * (ramp[None, :, None] if rng.random() < 0.5 else ramp[:, None, None])
    if rng.random() < 0.4:
        image = image + rng.normal(0, rng.uniform(1, 12), image.shape)
    image = np.clip(image, 0, 255).astype(np.uint8)
    if rng.random() < 0.5:
        quality = int(rng.integers(40, 95))
        image = cv2.imdecode(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], 1)
    return image


class Probe:
    """Runs a network and yields tensors inside of it."""

    def __init__(self, path, names):
        model = onnx.load(path)
        self.source = model.graph.input[0].name
        known = {output.name for output in model.graph.output} | {self.source}
        self.names = [name for name in names if name != self.source]
        for name in self.names:
            if name not in known:
                model.graph.output.append(helper.make_empty_tensor_value_info(name))
        self.network = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        self.asked = names

    def run(self, tensor):
        found = dict(zip(self.names, self.network.run(self.names, {self.source: tensor})), **{self.source: tensor})
        return {name: found[name] for name in self.asked}


def best_range(values):
    """The range, around 0, whose 256 steps give the values back with the least squared error."""
    best = (np.inf, 0.0, 0.0)
    lowest, highest = min(0.0, float(values.min())), max(0.0, float(values.max()))
    for part in RANGE_PARTS:
        for low in {lowest, lowest * part}:
            scale = (highest * part - low) / quantise.INPUT_STEPS or 1e-8
            zero = round(-low / scale)
            steps = np.clip(np.rint(values / scale) + zero, 0, quantise.INPUT_STEPS)
            error = float(np.square((steps - zero) * scale - values).mean())
            best = min(best, (error, low, highest * part))
    return best[1:]


def find_ranges(path, names, inputs):
    """The best range of each tensor."""
    probe, seen = Probe(path, names), {name: [] for name in names}
    for tensor in inputs:
        for name, values in probe.run(tensor).items():
            step = max(1, values.size // VALUES_A_TENSOR)
            seen[name] += [values.ravel()[::step], [values.min(), values.max()]]
    return {name: best_range(np.concatenate(values)) for name, values in seen.items()}


def channel_means(path, names, inputs):
    """The mean of each channel of these tensors."""
    probe = Probe(path, names)
    runs = [probe.run(tensor) for tensor in inputs]
    return {name: np.mean([run[name].mean(axis=(0, 2, 3)) for run in runs], axis=0) for name in names}


def group_of(node):
    return next((attribute.i for attribute in node.attribute if attribute.name == "group"), 1)


def choose_layers(network, path, kept, tensor):
    """The convolutions to quantise: their weights are constant, they are not depthwise, and their input is a map and not one
    pixel."""
    found = [
        node for node in network.nodes
        if node.op_type == "Conv" and node.input[1] in network.constants and group_of(node) == 1
        and node.output[0] not in kept
    ]
    values = Probe(path, sorted({node.input[0] for node in found})).run(tensor)
    return [node for node in found if values[node.input[0]][0, 0].size > 1]


def calibrate(arguments, inputs):
    folder = TRAINED if arguments.network == "light" else arguments.models
    source = folder / NETWORKS[arguments.network]
    work = arguments.materials / "calibration.onnx"

    def rebuilt(layers):
        network = Network(source)
        quantise.prepare(network)
        quantise.quantise(network, layers)
        network.save(str(work))
        return network

    network = rebuilt({})
    chosen = choose_layers(network, work, KEPT[arguments.network], inputs[0])
    ranges = find_ranges(work, sorted({node.input[0] for node in chosen}), inputs)
    few = inputs[:: max(1, len(inputs) // 100)]
    wanted = channel_means(work, [node.output[0] for node in chosen], few)
    rounded = {node.output[0]: [float(f"{end:.{DIGITS}g}") for end in ranges[node.input[0]]] for node in chosen}
    layers = {name: {"input": ends, "bias": [0.0] * len(wanted[name])} for name, ends in rounded.items()}
    # In the network's order: what a layer gets is what the corrected ones before it give.
    for name in layers:
        rebuilt(layers)
        difference = wanted[name] - channel_means(work, [name], few)[name]
        layers[name]["bias"] = [float(f"{value:.{DIGITS}g}") for value in difference]
        print(name, layers[name]["input"], f"bias up to {np.abs(difference).max():.3g}", flush=True)
    work.unlink()
    return layers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--materials", type=Path, required=True)
    parser.add_argument("--portraits", type=Path)
    parser.add_argument("--pictures", type=int, default=400)
    parser.add_argument("--seed", type=int, default=77)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    is_embedder = arguments.network == "embedder"
    inputs = change_faces(arguments) if is_embedder else draw_torsos(arguments)[arguments.network]
    layers = calibrate(arguments, inputs)
    lines = [f"  {json.dumps(name)}: {json.dumps(layer)}" for name, layer in layers.items()]
    arguments.out.write_text('{"layers": {\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    main()
