// The twin of letterbox.wgsl, operation for operation.

enum Filter { COPY, BILINEAR, AREA };
struct Block {
    unsigned offset, stride, filter_kind, columns, rows, width, height, out, lines, skipped, unused0, unused1;
};
struct Cell { unsigned first, second, third; };
struct Canvas { unsigned width, blocks; float padding; unsigned is_bgr; float mean[4], scale[4]; };

static __device__ __forceinline__ float bilinear(const unsigned char *pixels, const Block &b, const Cell &column, const Cell &row, unsigned c) {
    unsigned low = b.offset + row.first * b.stride, high = b.offset + row.second * b.stride;
    float fx = __uint_as_float(column.third), fy = __uint_as_float(row.third);
    float upper_start = pixels[low + column.first * 3 + c];
    float upper = upper_start + (pixels[low + column.second * 3 + c] - upper_start) * fx;
    float lower_start = pixels[high + column.first * 3 + c];
    float lower = lower_start + (pixels[high + column.second * 3 + c] - lower_start) * fx;
    return upper + (lower - upper) * fy + 0.5f;
}

static __device__ __forceinline__ float area(const unsigned char *pixels, const float *weights, const Block &b, const Cell &column, const Cell &row, unsigned c) {
    float total = 0.5f;
    for (unsigned i = 0; i < column.third; i++) {
        unsigned at = b.offset + row.first * b.stride + (column.first + i) * 3 + c;
        float sum = pixels[at] * weights[row.second];
        for (unsigned j = 1; j < row.third; j++) sum += pixels[at + j * b.stride] * weights[row.second + j];
        total += sum * weights[column.second + i];
    }
    return total;
}

extern "C" __global__ void __launch_bounds__(256)
letterbox(const unsigned char *__restrict__ pixels, const Block *__restrict__ blocks, const Cell *__restrict__ cells,
          const float *__restrict__ weights, const Canvas *__restrict__ canvas, float *__restrict__ out) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z;
    if (z >= canvas->blocks || x >= canvas->width) return;
    const Block b = blocks[z];
    if (y >= b.lines) return;
    bool inside = x < b.width && y < b.height;
    unsigned plane = canvas->width * b.lines;
    float *to = out + b.out + y * canvas->width + x;
    for (unsigned i = 0; i < 3; i++) {
        unsigned c = canvas->is_bgr ? 2 - i : i;
        float value = canvas->padding;
        if (inside) {
            float level;
            if (b.filter_kind == COPY) level = pixels[b.offset + (y + b.skipped) * b.stride + x * 3 + c];
            else if (b.filter_kind == BILINEAR) level = floorf(bilinear(pixels, b, cells[b.columns + x], cells[b.rows + y], c));
            else level = floorf(area(pixels, weights, b, cells[b.columns + x], cells[b.rows + y], c));
            value = (level - canvas->mean[i]) * canvas->scale[i];
        }
        to[i * plane] = value;
    }
}
