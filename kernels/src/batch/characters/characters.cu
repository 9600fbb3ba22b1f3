// The twin of characters.wgsl, operation for operation.

#define COLUMNS 512
#define THREADS 64

struct Strips { unsigned columns, classes; };

extern "C" __global__ void __launch_bounds__(THREADS)
characters(const Strips *__restrict__ strips, const float *__restrict__ probabilities, unsigned *__restrict__ found) {
    __shared__ unsigned class_of[COLUMNS];
    __shared__ float probability_of[COLUMNS];
    unsigned columns = strips->columns, classes = strips->classes;
    const float *mine = probabilities + (unsigned long long)blockIdx.x * columns * classes;
    for (unsigned column = threadIdx.x; column < columns; column += THREADS) {
        unsigned class_best = 0;
        float best = -3.4028234e38f;
        for (unsigned c = 0; c < classes; c++) {
            float value = mine[column * classes + c];
            if (value > best) { best = value; class_best = c; }
        }
        class_of[column] = class_best;
        probability_of[column] = best;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned *to = found + blockIdx.x * (columns * 2 + 1), count = 0, last = 0;
        for (unsigned column = 0; column < columns; column++) {
            unsigned here = class_of[column];
            if (here != last && here != 0) {
                to[1 + count * 2] = here;
                to[2 + count * 2] = __float_as_uint(probability_of[column]);
                count++;
            }
            last = here;
        }
        to[0] = count;
    }
}
