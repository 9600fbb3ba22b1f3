// The twin of text_map.wgsl, operation for operation.

struct Map { unsigned values, width, height, bits, from, to; float threshold; unsigned unused; };
struct Span { unsigned first, count; };

extern "C" __global__ void __launch_bounds__(128)
text_bits(const float *__restrict__ values, const Map *__restrict__ maps, unsigned *__restrict__ bits, unsigned *__restrict__ highest) {
    const Map m = maps[blockIdx.z];
    unsigned word_x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, words = (m.width + 31) / 32;
    if (word_x >= words || y >= m.height) return;
    unsigned word = 0;
    float high = 0.0f;
    const float *row = values + m.values + y * m.width;
    for (unsigned i = 0; i < 32; i++) {
        unsigned x = word_x * 32 + i;
        if (x >= m.width) break;
        float value = row[x];
        if (x >= m.from && x < m.to) high = fmaxf(high, value);
        bool is_text = value > m.threshold;
        if (x > 0) is_text = is_text || row[x - 1] > m.threshold;
        if (y > 0) {
            const float *above = row - m.width;
            is_text = is_text || above[x] > m.threshold;
            if (x > 0) is_text = is_text || above[x - 1] > m.threshold;
        }
        if (is_text) word |= 1u << i;
    }
    bits[m.bits + y * words + word_x] = word;
    atomicMax(&highest[blockIdx.z], __float_as_uint(high));
}

extern "C" __global__ void __launch_bounds__(64)
text_scores(const float *__restrict__ values, const Span *__restrict__ rows, const Span *__restrict__ boxes, float *__restrict__ sums) {
    __shared__ float partial[64];
    const Span box = boxes[blockIdx.x];
    unsigned t = threadIdx.x;
    float sum = 0.0f;
    for (unsigned i = t; i < box.count; i += 64) {
        const Span row = rows[box.first + i];
        for (unsigned j = 0; j < row.count; j++) sum += values[row.first + j];
    }
    partial[t] = sum;
    __syncthreads();
    for (unsigned half = 32; half > 0; half /= 2) {
        if (t < half) partial[t] += partial[t + half];
        __syncthreads();
    }
    if (t == 0) sums[blockIdx.x] = partial[0];
}
