// The twin of warp.wgsl, operation for operation.

struct Item {
    unsigned offset, width, height, is_nearest, oversampling, columns, out, is_blank;
    float x[3], wx, y[3], wy;
};
struct Canvas { unsigned width, height; float padding; unsigned is_bgr; float mean[4], scale[4]; };
struct Rgb { float c[3]; };

static __device__ __forceinline__ Rgb pixel_or_border(const unsigned char *pixels, const Item &t, int x, int y) {
    int inside_x = min(max(x, 0), (int)t.width - 1), inside_y = min(max(y, 0), (int)t.height - 1);
    if (!t.is_nearest && (inside_x != x || inside_y != y)) return Rgb{{0.0f, 0.0f, 0.0f}};
    unsigned at = t.offset + ((unsigned)inside_y * t.width + (unsigned)inside_x) * 3;
    return Rgb{{(float)pixels[at], (float)pixels[at + 1], (float)pixels[at + 2]}};
}

static __device__ __forceinline__ Rgb sample(const unsigned char *pixels, const Item &t, unsigned column, unsigned row) {
    float u = column, v = row;
    float sx = t.x[0] * u + (t.x[1] * v + t.x[2]), sy = t.y[0] * u + (t.y[1] * v + t.y[2]);
    if (t.wx != 0.0f || t.wy != 0.0f) {
        float w = t.wx * u + (t.wy * v + 1.0f);
        sx = sx / w;
        sy = sy / w;
    }
    sx = fminf(fmaxf(sx, -2.0f), (float)t.width + 1.0f);
    sy = fminf(fmaxf(sy, -2.0f), (float)t.height + 1.0f);
    float fx = sx - floorf(sx), fy = sy - floorf(sy);
    int left = (int)floorf(sx), top = (int)floorf(sy);
    Rgb tl = pixel_or_border(pixels, t, left, top), tr = pixel_or_border(pixels, t, left + 1, top);
    Rgb bl = pixel_or_border(pixels, t, left, top + 1), br = pixel_or_border(pixels, t, left + 1, top + 1);
    Rgb result;
    for (int i = 0; i < 3; i++) {
        float upper = tl.c[i] + (tr.c[i] - tl.c[i]) * fx, lower = bl.c[i] + (br.c[i] - bl.c[i]) * fx;
        result.c[i] = floorf(upper + (lower - upper) * fy + 0.5f);
    }
    return result;
}

extern "C" __global__ void __launch_bounds__(256)
warp(const unsigned char *__restrict__ pixels, const Item *__restrict__ items, const Canvas *__restrict__ canvas, float *__restrict__ out) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= canvas->width || y >= canvas->height) return;
    const Item t = items[blockIdx.z];
    bool inside = x < t.columns;
    Rgb rgb = {{0.0f, 0.0f, 0.0f}};
    if (inside && !t.is_blank) {
        if (t.oversampling == 1) {
            rgb = sample(pixels, t, x, y);
        } else {
            float weight = 1.0f / (float)t.oversampling;
            Rgb total = {{0.5f, 0.5f, 0.5f}};
            for (unsigned i = 0; i < t.oversampling; i++) {
                Rgb sum = {{0.0f, 0.0f, 0.0f}};
                for (unsigned j = 0; j < t.oversampling; j++) {
                    Rgb s = sample(pixels, t, x * t.oversampling + i, y * t.oversampling + j);
                    for (int c = 0; c < 3; c++) sum.c[c] += s.c[c] * weight;
                }
                for (int c = 0; c < 3; c++) total.c[c] += sum.c[c] * weight;
            }
            for (int c = 0; c < 3; c++) rgb.c[c] = floorf(total.c[c]);
        }
    }
    unsigned plane = canvas->width * canvas->height;
    float *to = out + t.out + y * canvas->width + x;
    for (unsigned i = 0; i < 3; i++)
        to[i * plane] = inside ? (rgb.c[canvas->is_bgr ? 2 - i : i] - canvas->mean[i]) * canvas->scale[i] : canvas->padding;
}
