// The twin of downscale.wgsl, operation for operation.

struct Block {
    unsigned offset, stride, rows, columns, row_shift, column_shift, between, between_stride, out, out_stride, lines, unused;
};
struct Cell { unsigned first, weight, count; };

static __device__ __forceinline__ unsigned clamp_to_byte(int value) { return value < 0 ? 0 : value > 255 ? 255 : value; }

extern "C" __global__ void __launch_bounds__(64)
downscale_rows(const unsigned char *__restrict__ pixels, const Block *__restrict__ blocks, const Cell *__restrict__ cells,
               const int *__restrict__ weights, unsigned *__restrict__ between, unsigned *__restrict__) {
    const Block b = blocks[blockIdx.z];
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= b.between_stride || y >= b.lines) return;
    const Cell cell = cells[b.rows + y];
    unsigned word = 0;
    for (unsigned i = 0; i < 4; i++) {
        unsigned column = x * 4 + i;
        if (column < b.stride) {
            int sum = 1 << (b.row_shift - 1);
            for (unsigned j = 0; j < cell.count; j++) sum += pixels[b.offset + (cell.first + j) * b.stride + column] * weights[cell.weight + j];
            word |= clamp_to_byte(sum >> b.row_shift) << (i * 8);
        }
    }
    between[b.between + y * b.between_stride + x] = word;
}

extern "C" __global__ void __launch_bounds__(64)
downscale_columns(const unsigned char *__restrict__, const Block *__restrict__ blocks, const Cell *__restrict__ cells,
                  const int *__restrict__ weights, const unsigned *__restrict__ between, unsigned *__restrict__ out) {
    const Block b = blocks[blockIdx.z];
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= b.out_stride || y >= b.lines) return;
    const unsigned char *line = (const unsigned char *)(between + b.between + y * b.between_stride);
    unsigned word = 0;
    for (unsigned i = 0; i < 4; i++) {
        unsigned at = x * 4 + i;
        const Cell cell = cells[b.columns + at / 3];
        int sum = 1 << (b.column_shift - 1);
        for (unsigned j = 0; j < cell.count; j++) sum += line[(cell.first + j) * 3 + at % 3] * weights[cell.weight + j];
        word |= clamp_to_byte(sum >> b.column_shift) << (i * 8);
    }
    out[b.out + y * b.out_stride + x] = word;
}
