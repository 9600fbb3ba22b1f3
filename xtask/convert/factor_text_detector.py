"""Rewrites PP-OCRv4's text detector so that it computes the same map in three quarters of the time.

usage: factor_text_detector.py DETECTOR.onnx OUT.onnx

Nearly half of its multiplications are two convolutions of 3 x 3 over 96 channels at a quarter of the input's size. Both
take sums or rows of maps that were enlarged from smaller ones, and convolutions are linear, so each part can be computed
at its own size:

- A convolution of a map whose every pixel was doubled is a transposed convolution of the map itself, 4 x 4 with stride 2:
  of the nine products of each output pixel four are left, because neighbours share their factor.
- The finest map of the neck is `s * (W x)`, x of 12 channels, W a matrix to 96, s a factor for each of the 96 that depends
  on the mean of W x, which is W times the mean of x. So the convolution of its 96 channels is one of the 12 of x, whose
  weights are the product of K, diag(s) and W, and the 96 channels are never made.
- The head enlarges twice by transposed convolutions of 2 x 2, which do not overlap: pixels of an output are channels of the
  input's pixels, until the end.

What differs is rounding: the map by less than 1e-4.
"""

import sys

import numpy
from onnx import helper
from onnx.reference import ReferenceEvaluator

from onnx_edit import Network, channel_factors, fold

# The finest map of the neck: x, W, s - 1, K and the result. Names are those of the published file, whose SHA-256 set-up
# checks.
FINE_INPUT = "conv2d_469.tmp_0"
FINE_EXPANSION = "conv2d_135.w_0"
FINE_MEAN = "p2o.GlobalAveragePool.11"
FINE_FACTORS = "hardsigmoid_9.tmp_0"
FINE_KERNEL = "conv2d_138.w_0"
FINE_OUTPUT = "conv2d_494.tmp_0"
# The map of the neck that is half as large and is added to it, doubled.
COARSER = "p2o.Add.251"

# The four maps of the head, the smallest first, its first kernel over all of them, and what follows it.
HEAD_MAPS = ["p2o.Add.259", "p2o.Add.265", "p2o.Add.271", "p2o.Add.277"]
HEAD_KERNEL = "conv2d_159.w_0"
HEAD_NORMALISATION = "batch_norm_0.tmp_3"

# The two transposed convolutions, the normalisation between them, and the network's output.
FIRST_ENLARGED = "p2o.ConvTranspose.1"
FIRST_ENLARGING = ["conv2d_transpose_0.w_0", "conv2d_transpose_0.b_0"]
SECOND_ENLARGING = ["conv2d_transpose_1.w_0", "conv2d_transpose_1.b_0"]
ENLARGED_NORMALISATION = "batch_norm_1.tmp_3"
OUTPUT = "sigmoid_0.tmp_0"

# What the new nodes take the place of.
REPLACED = {
    "conv2d_482.tmp_0",
    "p2o.Mul.163",
    "p2o.Add.247",
    "nearest_interp_v2_2.tmp_0",
    "p2o.Add.253",
    "nearest_interp_v2_3.tmp_0",
    "nearest_interp_v2_4.tmp_0",
    "nearest_interp_v2_5.tmp_0",
    "p2o.Concat.1",
    "conv2d_497.tmp_0",
    "p2o.Add.279",
    "batch_norm_1.tmp_3",
    "batch_norm_1.tmp_4",
    "p2o.ConvTranspose.3",
    "p2o.Add.281",
}

# The sides of the picture on which the two networks are compared, and how far their maps may be apart.
COMPARED_SIDES = (64, 96)
TOLERANCE = 1e-4


class Factoring:
    """Collects the nodes that take the place of others."""

    def __init__(self, network):
        self.network = network
        self.nodes = []

    def node(self, operator, inputs, output, **attributes):
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def constant(self, name, values):
        self.network.constants[name] = values
        return name

    def convolve_doubled(self, source, kernel, output):
        """The 3 x 3 convolution, padded by one, of a map whose every pixel was doubled in both directions."""
        kernel = numpy.ascontiguousarray(along_rows(along_rows(kernel).swapaxes(2, 3)).swapaxes(2, 3).swapaxes(0, 1))
        inputs = [source, self.constant(output + "_w", kernel)]
        return self.node(
            "ConvTranspose", inputs, output, kernel_shape=[4, 4], strides=[2, 2], pads=[1, 1, 1, 1]
        )

    def finest_mean(self):
        """The mean of W x is W times the mean of x."""
        self.node("GlobalAveragePool", [FINE_INPUT], "fine_mean")
        self.node("Conv", ["fine_mean", FINE_EXPANSION], FINE_MEAN)

    def finest_map(self):
        """K over `s * (W x)` plus K over the coarser map, doubled."""
        kernel = self.network.constants[FINE_KERNEL]
        outputs, channels = kernel.shape[:2]
        expansion = self.network.constants[FINE_EXPANSION].reshape(channels, -1)
        columns = kernel.transpose(0, 2, 3, 1).reshape(-1, channels)
        shape = numpy.array([outputs, 3, 3, expansion.shape[1]], numpy.int64)
        column = self.constant("fine_column", numpy.array([channels, 1], numpy.int64))
        self.node("Reshape", [FINE_FACTORS, column], "fine_factors")
        self.node("Add", ["fine_factors", self.constant("one", numpy.ones(1, numpy.float32))], "fine_scale")
        self.node("Mul", ["fine_scale", self.constant("fine_expansion", expansion)], "fine_scaled")
        self.node("MatMul", [self.constant("fine_kernel", columns), "fine_scaled"], "fine_product")
        self.node("Reshape", ["fine_product", self.constant("fine_shape", shape)], "fine_by_pixel")
        self.node("Transpose", ["fine_by_pixel"], "fine_weights", perm=[0, 3, 1, 2])
        self.node(
            "Conv", [FINE_INPUT, "fine_weights"], "fine_own", kernel_shape=[3, 3], pads=[1, 1, 1, 1]
        )
        self.convolve_doubled(COARSER, kernel, "fine_doubled")
        self.node("Add", ["fine_own", "fine_doubled"], FINE_OUTPUT)

    def head(self, normalisation):
        """The head's first convolution: of the finest map at its size, of the others at half of it."""
        factor, summand = channel_factors(self.network, normalisation)
        kernel = self.network.constants[HEAD_KERNEL] * factor.reshape(-1, 1, 1, 1)
        # The published order: the smallest map first.
        doubled = []
        for name, scale in zip(HEAD_MAPS[:2], (4, 2)):
            sizes = self.constant(f"times_{scale}", numpy.array([1, 1, scale, scale], numpy.float32))
            whole = self.constant("whole", numpy.zeros(0, numpy.float32))
            rule = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            doubled.append(self.node("Resize", [name, whole, sizes], f"head_times_{scale}", mode="nearest", **rule))
        self.node("Concat", [*doubled, HEAD_MAPS[2]], "head_coarser", axis=1)
        coarser = kernel.shape[1] * 3 // 4
        self.convolve_doubled("head_coarser", kernel[:, :coarser], "head_doubled")
        own = self.constant("head_own_w", numpy.ascontiguousarray(kernel[:, coarser:]))
        bias = self.constant("head_own_b", summand)
        self.node(
            "Conv", [HEAD_MAPS[3], own, bias], "head_own", kernel_shape=[3, 3], pads=[1, 1, 1, 1]
        )
        self.node("Add", ["head_own", "head_doubled"], HEAD_NORMALISATION)

    def enlarge(self, source, normalisation):
        """The two enlargements: first to four pixels in channels, then to sixteen, then as pixels."""
        first, first_bias = (self.network.constants[name] for name in FIRST_ENLARGING)
        second, second_bias = (self.network.constants[name] for name in SECOND_ENLARGING)
        channels = first.shape[1]
        factor, summand = channel_factors(self.network, normalisation)
        weights = (first * factor.reshape(1, -1, 1, 1)).transpose(2, 3, 1, 0).reshape(4 * channels, -1, 1, 1)
        bias = numpy.tile(first_bias.reshape(-1) * factor + summand, 4)
        to_pixels = numpy.zeros((4, 4, 4 * channels, 1, 1), numpy.float32)
        for row, column in numpy.ndindex(2, 2):
            own = slice((2 * row + column) * channels, (2 * row + column + 1) * channels)
            for below, right in numpy.ndindex(2, 2):
                to_pixels[2 * row + below, 2 * column + right, own, 0, 0] = second[:, 0, below, right]
        to_pixels = to_pixels.reshape(16, 4 * channels, 1, 1)
        inputs = [source, self.constant("enlarge_w", weights), self.constant("enlarge_b", bias)]
        self.node("Conv", inputs, "enlarged")
        self.node("Relu", ["enlarged"], "enlarged_positive")
        biases = self.constant("pixels_b", numpy.repeat(second_bias.reshape(-1), 16))
        self.node("Conv", ["enlarged_positive", self.constant("pixels_w", to_pixels), biases], "pixels")
        self.node("Sigmoid", ["pixels"], "pixel_probabilities")
        self.node("DepthToSpace", ["pixel_probabilities"], OUTPUT, blocksize=4, mode="DCR")


def along_rows(kernel):
    """The rows of a transposed convolution of stride 2 that equals a convolution of doubled rows. An output row 2y sees the
    rows y - 1, y, y, and one 2y + 1 the rows y, y, y + 1; it gets the kernel's row t from the input row (r + 1 - t) / 2."""
    before, middle, after = (kernel[:, :, row] for row in range(3))
    return numpy.stack([after, middle + after, before + middle, before], axis=2)


def factor_network(network):
    """Replaces the finest map of the neck, the head's first convolution and the enlargements."""
    producers = {node.output[0]: node for node in network.nodes}
    factoring = Factoring(network)
    for node in network.nodes:
        output = node.output[0]
        if output == FINE_MEAN:
            factoring.finest_mean()
        elif output == FINE_OUTPUT:
            factoring.finest_map()
        elif output == HEAD_NORMALISATION:
            factoring.head(node)
        elif output == FIRST_ENLARGED:
            factoring.enlarge(node.input[0], producers[ENLARGED_NORMALISATION])
        elif output not in REPLACED and output != OUTPUT:
            factoring.nodes.append(node)
    network.nodes = factoring.nodes


def check_equal(source, target):
    """Ends the conversion if the maps of a random picture differ by more than rounding."""
    picture = numpy.random.default_rng(1).uniform(-1, 1, (1, 3, *COMPARED_SIDES)).astype(numpy.float32)
    published, factored = (ReferenceEvaluator(path).run(None, {"x": picture})[0] for path in (source, target))
    difference = float(numpy.abs(published - factored).max())
    if published.shape != factored.shape or difference > TOLERANCE:
        sys.exit(f"{target}: the map of {factored.shape} differs by {difference} from that of {published.shape}")


def main(source, target):
    network = Network(source)
    factor_network(network)
    fold(network)
    network.save(target)
    check_equal(source, target)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
