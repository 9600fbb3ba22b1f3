"""Reduces a PP-OCR text recogniser to the characters that occur on bibs.

usage: cut_recogniser.py RECOGNISER.onnx OUT.onnx

The published network distinguishes 6624 characters and a blank; a bib needs letters, digits and the hyphen. Its last
layer is one matrix with a bias and one column per character, so removing columns does not change the scores of the
others (the softmax after it then covers fewer). The file becomes a third smaller.

The characters stand in the file's metadata, key `character`, one a line, class 0 (the blank) not among them.
"""

import string
import sys

import numpy
import onnx
from onnx import numpy_helper

from onnx_graph import write

KEPT = set(string.digits + string.ascii_letters + "-")


def kept_classes(characters):
    """Returns the class numbers to keep, the blank first, in the order of the published file."""
    return [0] + [number for number, character in enumerate(characters, start=1) if character in KEPT]


def cut(tensor, classes, total):
    """Returns the tensor without the columns of dropped classes; None when it has no axis of classes."""
    values = numpy_helper.to_array(tensor)
    if values.ndim not in (1, 2) or total not in values.shape:
        return None
    return numpy_helper.from_array(
        numpy.ascontiguousarray(values.take(classes, axis=values.shape.index(total))), tensor.name
    )


def constants(graph):
    """Yields every constant tensor of the graph: exporters write them as initialisers or as nodes."""
    yield from graph.initializer
    for node in graph.node:
        if node.op_type == "Constant":
            yield from (attribute.t for attribute in node.attribute if attribute.name == "value")


def main(source, target):
    model = onnx.load(source)
    metadata = {entry.key: entry for entry in model.metadata_props}
    characters = metadata["character"].value.splitlines()
    total = len(characters) + 2  # the blank before them, a space after them
    classes = kept_classes(characters)

    changed = 0
    for tensor in constants(model.graph):
        smaller = cut(tensor, classes, total)
        if smaller is not None:
            tensor.CopyFrom(smaller)
            changed += 1
    if changed != 2:
        sys.exit(f"{source}: expected a matrix and a bias of {total} classes, found {changed} such tensors")

    model.graph.output[0].type.tensor_type.shape.dim[2].dim_value = len(classes)
    del model.graph.value_info[:]  # shapes inferred for the full alphabet
    metadata["character"].value = "\n".join(characters[number - 1] for number in classes[1:])
    write(model, target)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
