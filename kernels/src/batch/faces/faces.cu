// The twin of faces.wgsl, operation for operation.

#define CAPACITY 1024
#define RECORD 16
#define THREADS 256

struct Level { float stride; unsigned columns, cells, photos; float min_score, max_iou; unsigned first_cell, unused; };

static __device__ __forceinline__ float to_unit(float value) { return fminf(fmaxf(value, 0.0f), 1.0f); }

extern "C" __global__ void __launch_bounds__(THREADS)
faces_decode(const Level *__restrict__ level, const float *__restrict__ scales, float *__restrict__ candidates, unsigned *__restrict__ counts,
             const float *__restrict__ classes, const float *__restrict__ objects, const float *__restrict__ boxes, const float *__restrict__ points) {
    unsigned cell = blockIdx.x * blockDim.x + threadIdx.x, photo = blockIdx.y;
    if (cell >= level->cells || photo >= level->photos) return;
    unsigned i = photo * level->cells + cell;
    float score = sqrtf(to_unit(classes[i]) * to_unit(objects[i]));
    if (!(score >= level->min_score)) return;
    unsigned slot = atomicAdd(&counts[photo], 1u);
    if (slot >= CAPACITY) return;
    float *to = candidates + (photo * CAPACITY + slot) * RECORD;
    float x = (float)(cell % level->columns), y = (float)(cell / level->columns);
    const float *box = boxes + i * 4;
    float half_x = expf(box[2]) / 2.0f, half_y = expf(box[3]) / 2.0f;
    float middle_x = x + box[0], middle_y = y + box[1], scale_x = scales[photo * 2], scale_y = scales[photo * 2 + 1];
    to[0] = (middle_x - half_x) * level->stride * scale_x;
    to[1] = (middle_y - half_y) * level->stride * scale_y;
    to[2] = (middle_x + half_x) * level->stride * scale_x;
    to[3] = (middle_y + half_y) * level->stride * scale_y;
    for (unsigned p = 0; p < 5; p++) {
        to[4 + p * 2] = (x + points[i * 10 + p * 2]) * level->stride * scale_x;
        to[5 + p * 2] = (y + points[i * 10 + p * 2 + 1]) * level->stride * scale_y;
    }
    to[14] = score;
    to[15] = (float)(level->first_cell + cell);
}

static __device__ __forceinline__ bool is_better(const float *a, const float *b) {
    return a[14] > b[14] || (a[14] == b[14] && a[15] < b[15]);
}

static __device__ __forceinline__ float area(float left, float top, float right, float bottom) {
    return fmaxf(right - left, 0.0f) * fmaxf(bottom - top, 0.0f);
}

static __device__ __forceinline__ float iou(const float *a, const float *b) {
    float common = area(fmaxf(a[0], b[0]), fmaxf(a[1], b[1]), fminf(a[2], b[2]), fminf(a[3], b[3]));
    float union_area = area(a[0], a[1], a[2], a[3]) + area(b[0], b[1], b[2], b[3]) - common;
    return union_area > 0.0f ? common / union_area : 0.0f;
}

extern "C" __global__ void __launch_bounds__(THREADS)
faces_suppress(const Level *__restrict__ level, const float *__restrict__, const float *__restrict__ candidates,
               const unsigned *__restrict__ counts, unsigned *__restrict__ kept) {
    __shared__ unsigned order[CAPACITY];
    __shared__ unsigned dropped[CAPACITY];
    unsigned photo = blockIdx.x, t = threadIdx.x, found = counts[photo];
    unsigned count = found < CAPACITY ? found : CAPACITY;
    const float *mine = candidates + photo * CAPACITY * RECORD;
    for (unsigned i = t; i < count; i += THREADS) {
        unsigned rank = 0;
        for (unsigned j = 0; j < count; j++) rank += is_better(mine + j * RECORD, mine + i * RECORD);
        order[rank] = i;
        dropped[i] = 0;
    }
    __syncthreads();
    for (unsigned i = 0; i < count; i++) {
        if (!dropped[i])
            for (unsigned j = i + 1 + t; j < count; j += THREADS)
                if (!dropped[j] && !(iou(mine + order[i] * RECORD, mine + order[j] * RECORD) <= level->max_iou)) dropped[j] = 1;
        __syncthreads();
    }
    if (t == 0) {
        unsigned *to = kept + photo * (CAPACITY + 2), n = 0;
        for (unsigned i = 0; i < count; i++)
            if (!dropped[i]) to[2 + n++] = order[i];
        to[0] = found;
        to[1] = n;
    }
}
