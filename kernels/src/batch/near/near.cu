// The twin of near.wgsl, operation for operation.

#define THREADS 256
#define PROBES 16

struct Search { unsigned probes, words, first, stride; };
struct alignas(16) Words { int a, b, c, d; };
struct alignas(16) Bound { float scale, norm, margin, min_score; };

static __device__ __forceinline__ bool is_no_number(unsigned value) {
    return (value & 0x7f800000u) == 0x7f800000u;
}

extern "C" __global__ void __launch_bounds__(THREADS)
near_rows(const Search *__restrict__ search, const unsigned *__restrict__ rows, const Words *__restrict__ probes,
          const Bound *__restrict__ bounds, unsigned *__restrict__ bits) {
    __shared__ unsigned masks[THREADS + THREADS / 32];
    const Search s = *search;
    unsigned local = threadIdx.x, row = blockIdx.x * THREADS + local;
    unsigned list = rows[0] - s.first, count = rows[1];
    unsigned mask = 0;
    if (row < count) {
        const unsigned *at = rows + 16 + row / 16 * s.words * 16 + row % 16;
        const Words *others = probes + blockIdx.y * s.words * 4;
        int dots[PROBES] = {};
        // Four would take more registers than 64.
        #pragma unroll 2
        for (unsigned w = 0; w < s.words; w++) {
            int word = (int)(at[w * 16] ^ 0x80808080u);
            for (unsigned q = 0; q < PROBES / 4; q++) {
                Words other = others[w * 4 + q];
                dots[q * 4] = __dp4a(word, other.a, dots[q * 4]);
                dots[q * 4 + 1] = __dp4a(word, other.b, dots[q * 4 + 1]);
                dots[q * 4 + 2] = __dp4a(word, other.c, dots[q * 4 + 2]);
                dots[q * 4 + 3] = __dp4a(word, other.d, dots[q * 4 + 3]);
            }
        }
        const unsigned *factors = rows + 16 + (count + 15) / 16 * s.words * 16 + row / 16 * 32 + row % 16;
        unsigned scale = factors[0], error = factors[16];
        if (is_no_number(scale) || is_no_number(error)) {
            mask = 0xffff;
        } else {
            const Bound *mine = bounds + (list * gridDim.y + blockIdx.y) * PROBES;
            for (unsigned p = 0; p < PROBES; p++) {
                Bound bound = mine[p];
                float score = (float)dots[p] * (bound.scale * __uint_as_float(scale));
                float upper = score + (bound.norm * __uint_as_float(error) + bound.margin);
                if (upper >= bound.min_score) mask |= 1u << p;
            }
        }
    }
    masks[local + local / 32] = mask;
    __syncthreads();
    if (local < PROBES * 8) {
        unsigned p = local / 8, word = local % 8, probe = blockIdx.y * PROBES + p;
        unsigned gathered = 0;
        for (unsigned i = 0; i < 32; i++) gathered |= (masks[word * 33 + i] >> p & 1) << i;
        if (probe < s.probes) bits[(list * s.probes + probe) * s.stride + blockIdx.x * 8 + word] = gathered;
    }
}
