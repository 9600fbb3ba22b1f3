// Runs a .cu file on the CPU, for tests: just enough of CUDA for g++ or clang++ to take our kernels as they are. Blocks
// run one after the other; the threads of a block are fibers that run to the next barrier in turn, so barriers and
// shared memory work, races do not show, and every run is the same. (Races: `compute-sanitizer` on a real device.)
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>
#include <ucontext.h>

struct dim3 { unsigned x = 1, y = 1, z = 1; };

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __ldg(p) (*(p))

static dim3 gridDim, blockDim, blockIdx, threadIdx;
using std::max;
using std::min;

static inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 32; i += 8) c += (int)(int8_t)(a >> i) * (int)(int8_t)(b >> i);
    return c;
}
static inline unsigned __float_as_uint(float f) { unsigned u; std::memcpy(&u, &f, 4); return u; }
static inline float __uint_as_float(unsigned u) { float f; std::memcpy(&f, &u, 4); return f; }
template <class T> static inline T atomicAdd(T *at, T value) { T old = *at; *at += value; return old; }
template <class T> static inline T atomicMax(T *at, T value) { T old = *at; *at = old > value ? old : value; return old; }

namespace cuda_on_cpu {

struct Fiber { ucontext_t context; std::unique_ptr<char[]> stack; dim3 index; bool done; };
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static Fiber *current;
static void (*body)(void *);
static void *body_data;

static void enter() {
    body(body_data);
    current->done = true;
    swapcontext(&current->context, &scheduler);
}

static void run_block(void (*f)(void *), void *data) {
    const size_t STACK = 64 << 10;
    body = f;
    body_data = data;
    fibers.resize(blockDim.x * blockDim.y * blockDim.z);
    for (size_t i = 0; i < fibers.size(); i++) {
        Fiber &fiber = fibers[i];
        if (!fiber.stack) fiber.stack.reset(new char[STACK]);
        fiber.done = false;
        fiber.index = {(unsigned)i % blockDim.x, (unsigned)i / blockDim.x % blockDim.y, (unsigned)i / blockDim.x / blockDim.y};
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = STACK;
        makecontext(&fiber.context, enter, 0);
    }
    for (bool alive = true; alive;) {
        alive = false;
        for (Fiber &fiber : fibers) {
            if (fiber.done) continue;
            current = &fiber;
            threadIdx = fiber.index;
            swapcontext(&scheduler, &fiber.context);
            alive |= !fiber.done;
        }
    }
}

// `arguments` as for cuLaunchKernel: a pointer to each argument.
template <class... A, size_t... I>
static void launch(void (*kernel)(A...), const unsigned grid[3], const unsigned block[3], void **arguments, std::index_sequence<I...>) {
    auto call = [&] { kernel(*(std::remove_reference_t<A> *)arguments[I]...); };
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    for (unsigned z = 0; z < grid[2]; z++) for (unsigned y = 0; y < grid[1]; y++) for (unsigned x = 0; x < grid[0]; x++) {
        blockIdx = {x, y, z};
        run_block([](void *c) { (*(decltype(call) *)c)(); }, &call);
    }
}
template <class... A>
static void launch(void (*kernel)(A...), const unsigned grid[3], const unsigned block[3], void **arguments) {
    launch(kernel, grid, block, arguments, std::index_sequence_for<A...>{});
}

} // namespace cuda_on_cpu

static inline void __syncthreads() {
    using namespace cuda_on_cpu;
    Fiber *self = current;
    swapcontext(&self->context, &scheduler);
}

// One exported function a kernel: the test calls it where the product calls cuLaunchKernel.
#define CUDA_ON_CPU(kernel) \
    extern "C" void kernel##_on_cpu(const unsigned *grid, const unsigned *block, void **arguments) { \
        cuda_on_cpu::launch(kernel, grid, block, arguments); \
    }
