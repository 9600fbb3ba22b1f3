"""What the programs have in common that draw: arguments, what draws, and the file of examples."""

import argparse
from pathlib import Path

import cv2
import numpy as np

import materials
from draw import Draw


def parser():
    """Arguments of all: OUT.npz COUNT SEED --materials FOLDER."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("out", type=Path)
    arguments.add_argument("count", type=int)
    arguments.add_argument("seed", type=int)
    arguments.add_argument("--materials", type=Path, required=True)
    return arguments


def prepare_drawing(arguments):
    """What draws, with this seed."""
    cv2.setNumThreads(1)
    packages = materials.fetch(arguments.materials)
    return Draw(arguments.seed, materials.fonts(packages), materials.pictures(packages))


def write(out, **arrays):
    """Writes the file, which has its name only when it is whole."""
    unfinished = out.with_suffix(".unfinished.npz")
    np.savez(unfinished, **arrays)
    unfinished.rename(out)
