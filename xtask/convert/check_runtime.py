"""Loads the ONNX Runtime library of a folder, and OpenVINO where it is there; prints the runtime's version.

usage: check_runtime.py FOLDER

A library that needs a newer C library, or one that is missing, fails here with the loader's own words instead of later
in the service. ONNX Runtime's OpenVINO provider itself can only be loaded by ONNX Runtime; what it needs is loaded here.
"""

import ctypes
import glob
import os
import sys


class ApiBase(ctypes.Structure):
    """The C interface's entry: the getter of an API table, and of the version."""

    _fields_ = [("get_api", ctypes.c_void_p), ("get_version", ctypes.CFUNCTYPE(ctypes.c_char_p))]


def main(folder):
    library = ctypes.CDLL(glob.glob(os.path.join(folder, "libonnxruntime.so*"))[0])
    library.OrtGetApiBase.restype = ctypes.POINTER(ApiBase)
    for name in ("libopenvino.so.*", "libopenvino_onnx_frontend.so.*", "libopenvino_intel_cpu_plugin.so"):
        for path in glob.glob(os.path.join(folder, name)):
            ctypes.CDLL(path)
    print(library.OrtGetApiBase().contents.get_version().decode())


if __name__ == "__main__":
    main(sys.argv[1])
