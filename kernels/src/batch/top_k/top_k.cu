// The twin of top_k.wgsl, operation for operation.

#define CHUNK 1024
#define THREADS 256
#define PROBES 4
#define NONE (-3.0e38f)

struct Search { unsigned rows, words, k, probes; };
struct Found { unsigned row; float score; };

// A number of 16 bits, exactly; albums hold no infinities.
static __device__ __forceinline__ float half_to_float(unsigned half) {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)half));
    return value;
#else
    // Moves exponent and fraction to where those of 32 bits are, and multiplies away the difference of the biases, 112.
    float magnitude = __uint_as_float((half & 0x7fff) << 13) * 5.192296858534828e33f;
    return half & 0x8000 ? -magnitude : magnitude;
#endif
}

static __device__ void select_best(float *scores, float *best, unsigned *best_at, const Search &s, Found *found) {
    unsigned t = threadIdx.x;
    for (unsigned p = 0; p < PROBES; p++) {
        unsigned probe = blockIdx.y * PROBES + p;
        float *mine = scores + p * CHUNK;
        for (unsigned n = 0; n < s.k; n++) {
            float top = NONE;
            unsigned at = t;
            for (unsigned i = t; i < CHUNK; i += THREADS)
                if (mine[i] > top) { top = mine[i]; at = i; }
            best[t] = top;
            best_at[t] = at;
            __syncthreads();
            for (unsigned half = THREADS / 2; half > 0; half /= 2) {
                if (t < half) {
                    unsigned o = t + half;
                    if (best[o] > best[t] || (best[o] == best[t] && best_at[o] < best_at[t])) { best[t] = best[o]; best_at[t] = best_at[o]; }
                }
                __syncthreads();
            }
            if (t == 0) {
                if (probe < s.probes) found[(probe * gridDim.x + blockIdx.x) * s.k + n] = Found{blockIdx.x * CHUNK + best_at[0], best[0]};
                mine[best_at[0]] = NONE;
            }
            __syncthreads();
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
top_k_i8(const Search *__restrict__ search, const unsigned *__restrict__ album, const float *__restrict__ factors,
         const unsigned *__restrict__ probes, const float *__restrict__ probe_factors, Found *__restrict__ found) {
    __shared__ float scores[CHUNK * PROBES];
    __shared__ float best[THREADS];
    __shared__ unsigned best_at[THREADS];
    const Search s = *search;
    const unsigned *mine = probes + blockIdx.y * PROBES * s.words;
    for (unsigned i = threadIdx.x; i < CHUNK; i += THREADS) {
        unsigned row = blockIdx.x * CHUNK + i;
        int dots[PROBES] = {};
        if (row < s.rows) {
            const unsigned *at = album + (unsigned long long)(row / 32) * s.words * 32 + row % 32;
            for (unsigned w = 0; w < s.words; w++) {
                int word = (int)at[w * 32];
                for (unsigned p = 0; p < PROBES; p++) dots[p] = __dp4a(word, (int)mine[p * s.words + w], dots[p]);
            }
        }
        for (unsigned p = 0; p < PROBES; p++)
            scores[p * CHUNK + i] = row < s.rows ? (float)dots[p] * (factors[row] * probe_factors[blockIdx.y * PROBES + p]) : NONE;
    }
    __syncthreads();
    select_best(scores, best, best_at, s, found);
}

extern "C" __global__ void __launch_bounds__(THREADS)
top_k_f16(const Search *__restrict__ search, const unsigned *__restrict__ album, const float *__restrict__ factors,
          const unsigned *__restrict__ probes, const float *__restrict__ probe_factors, Found *__restrict__ found) {
    __shared__ float scores[CHUNK * PROBES];
    __shared__ float best[THREADS];
    __shared__ unsigned best_at[THREADS];
    const Search s = *search;
    const unsigned *mine = probes + blockIdx.y * PROBES * s.words;
    for (unsigned i = threadIdx.x; i < CHUNK; i += THREADS) {
        unsigned row = blockIdx.x * CHUNK + i;
        float dots[PROBES] = {};
        if (row < s.rows) {
            const unsigned *at = album + (unsigned long long)(row / 32) * s.words * 32 + row % 32;
            for (unsigned w = 0; w < s.words; w++) {
                unsigned word = at[w * 32];
                float low = half_to_float(word & 0xffff), high = half_to_float(word >> 16);
                for (unsigned p = 0; p < PROBES; p++) {
                    unsigned other = mine[p * s.words + w];
                    dots[p] += low * half_to_float(other & 0xffff);
                    dots[p] += high * half_to_float(other >> 16);
                }
            }
        }
        for (unsigned p = 0; p < PROBES; p++)
            scores[p * CHUNK + i] = row < s.rows ? dots[p] * (factors[row] * probe_factors[blockIdx.y * PROBES + p]) : NONE;
    }
    __syncthreads();
    select_best(scores, best, best_at, s, found);
}
