"""Writes an ONNX file without the onnx package: protobuf is a few nested lengths. Field numbers are those of onnx.proto."""

import numpy as np

FLOAT = 1
ATTRIBUTE_INTS, ATTRIBUTE_INT = 7, 2


def varint(value):
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(encoded + bytes([value]))


def number(field, value):
    return varint(field << 3) + varint(value)


def block(field, content):
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def tensor(name, values):
    values = np.ascontiguousarray(values, np.float32)
    dims = b"".join(number(1, size) for size in values.shape)
    return dims + number(2, FLOAT) + block(8, name) + block(9, values.tobytes())


def value_info(name, shape):
    dims = b"".join(block(1, number(1, size)) for size in shape)
    return block(1, name) + block(2, block(1, number(1, FLOAT) + block(2, dims)))


def attribute(name, value):
    if isinstance(value, int):
        return block(1, name) + number(3, value) + number(20, ATTRIBUTE_INT)
    return block(1, name) + b"".join(number(8, v) for v in value) + number(20, ATTRIBUTE_INTS)


def node(operator, inputs, output, **attributes):
    content = b"".join(block(1, name) for name in inputs) + block(2, output) + block(4, operator)
    return content + b"".join(block(5, attribute(*item)) for item in attributes.items())


def read_varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def with_metadata(file, metadata):
    """The file with this metadata in place of its own. The outer level of a model has numbers and blocks only."""
    kept, at = b"", 0
    while at < len(file):
        start = at
        tag, at = read_varint(file, at)
        length, at = read_varint(file, at)
        at += length if tag & 7 == 2 else 0
        if tag >> 3 != 14:
            kept += file[start:at]
    return kept + b"".join(block(14, block(1, k) + block(2, v)) for k, v in metadata.items())


def model(nodes, tensors, inputs, outputs, metadata):
    """`tensors` is a dict of arrays; `inputs` and `outputs` are dicts of shapes; `metadata` is a dict of texts."""
    graph = b"".join(block(1, n) for n in nodes) + block(2, "bib_gate")
    graph += b"".join(block(5, tensor(*item)) for item in tensors.items())
    graph += b"".join(block(11, value_info(*item)) for item in inputs.items())
    graph += b"".join(block(12, value_info(*item)) for item in outputs.items())
    file = number(1, 8) + block(2, "photofinish") + block(7, graph) + block(8, number(2, 13))
    return with_metadata(file, metadata)
