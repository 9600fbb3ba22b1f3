"""Loads the ONNX Runtime library of a folder, and OpenVINO if the folder has it; prints the runtime's version.

usage: check_runtime.py FOLDER

A missing library, or one that needs a newer C library, fails here with the loader's message instead of later in the
service. Only ONNX Runtime can load its OpenVINO provider; this script loads the libraries that the provider depends on.
"""

import ctypes
import glob
import os
import sys


class ApiBase(ctypes.Structure):
    """Entry of the C interface: getters of the API table and of the version."""

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
