// Kernels named after the one fault that each contains, and correct counterparts that must not be reported: for the
// tests of the emulator (test_emulator.py).

using u64 = unsigned long long;

// --- races ------------------------------------------------------------------------------------------------------------

__global__ void right_reverse(int* x, int n) {
    __shared__ int held[256];
    const int i = threadIdx.x;
    if (i < n) held[i] = x[i];
    __syncthreads();
    if (i < n) x[i] = held[n - 1 - i];
}

// Threads of a warp read what other lanes wrote, without a barrier.
__global__ void race_in_a_warp(int* x, int n) {
    __shared__ int held[32];
    held[threadIdx.x] = 0;
    __syncthreads();
    held[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = held[31 - threadIdx.x];
}

__global__ void right_in_a_warp(int* x, int n) {
    __shared__ int held[32];
    held[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    x[threadIdx.x] = held[31 - threadIdx.x];
}

// __syncwarp does not synchronise different warps.
__global__ void race_between_warps(int* x, int n) {
    __shared__ int held[64];
    held[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    x[threadIdx.x] = held[63 - threadIdx.x];
}

// A shuffle makes lanes wait, but does not order memory.
__global__ void race_after_a_shuffle(int* x, int n) {
    __shared__ int held[32];
    held[threadIdx.x] = __shfl_sync(~0u, x[threadIdx.x], 0);
    __shfl_sync(~0u, 0, 0);
    x[threadIdx.x] = held[31 - threadIdx.x];
}

// Overwritten before all threads have read it: the second barrier is missing.
__global__ void race_of_a_write_after_reads(int* x, int n) {
    __shared__ int held[64];
    held[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    const int other = held[63 - threadIdx.x];
    held[threadIdx.x] = other;
}

__global__ void race_between_blocks(int* x, int n) {
    if (threadIdx.x == 0) x[0] = blockIdx.x;
}

__global__ void race_of_an_atomic_and_a_store(int* x, int n) {
    if (threadIdx.x == 0) x[0] = 0;
    atomicAdd(x, 1);
}

__global__ void right_atomics(int* x, int n) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, 1);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(x, sum);
}

// --- memory -----------------------------------------------------------------------------------------------------------

__global__ void behind_the_end(int* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) x[i] = 1;
}
__global__ void before_the_start(const int* x, int* out, int n) {
    if (threadIdx.x < n) out[threadIdx.x] = x[int(threadIdx.x) - 1];
}
__global__ void behind_shared(int* x, int n) {
    __shared__ int first[8], second[8];
    first[threadIdx.x + 1] = second[threadIdx.x] = 0;
}
__global__ void behind_dynamic_shared(int* x, int n) {
    extern __shared__ int words[];
    words[threadIdx.x] = x[threadIdx.x];
}
__global__ void without_a_value(int* x, int n) {
    __shared__ int held[64];
    if (threadIdx.x) held[threadIdx.x] = 1;
    __syncthreads();
    x[threadIdx.x] = held[63 - threadIdx.x];
}
__global__ void output_as_input(int* out, int n) {
    if (threadIdx.x < n) out[threadIdx.x] += 1;
}
__global__ void leaves_one_out(int* out, int n) {
    if (threadIdx.x < n && threadIdx.x != 5) out[threadIdx.x] = 1;
}
__global__ void misaligned(int* x, int n) {
    __stcs(reinterpret_cast<uint4*>(x + threadIdx.x), make_uint4(0, 0, 0, 0));
}
__global__ void shifts(const int* x, int* out, int n) {
    if (threadIdx.x < n) out[threadIdx.x] = x[threadIdx.x];
}
__global__ void writes_const(const int* x, int n) { const_cast<int*>(x)[threadIdx.x] = 0; }

// --- waiting ----------------------------------------------------------------------------------------------------------

__global__ void some_wait(int* x, int n) {
    if (threadIdx.x < 40) __syncthreads();
    x[threadIdx.x] = 0;
}
__global__ void wait_at_two_barriers(int* x, int n) {
    if (threadIdx.x < 40) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}
__global__ void some_lanes_shuffle(int* x, int n) {
    if (threadIdx.x < 20) x[threadIdx.x] = __shfl_sync(~0u, x[threadIdx.x], 0);
    else __syncthreads();
}
__global__ void not_in_the_mask(int* x, int n) { __syncwarp(1); }
__global__ void never_ends(int* x, int n) {
    for (volatile int* cell = x; *cell != -1;) {}
}

// --- undefined in C++, for the sanitizers -----------------------------------------------------------------------------

__global__ void overflows(int* x, int n) { x[0] = n * 1000000; }
__global__ void shifts_too_far(int* x, int n) { x[0] = 1 << n; }
__global__ void loads_misaligned(int* x, int n) { x[0] = int(*reinterpret_cast<u64*>(x + 1)); }

// --- what a result shows ----------------------------------------------------------------------------------------------

// Correct only in the plain order of threads.
__global__ void order_matters(int* x, int n) { x[threadIdx.x] = atomicAdd(x + 100, 1); }
__global__ void warp_functions(int* x, int n) {
    const int lane = threadIdx.x % 32, value = x[threadIdx.x];
    const unsigned odd = __ballot_sync(~0u, value % 2);
    int sum = __reduce_add_sync(~0u, value) + __shfl_xor_sync(~0u, value, 1) + 1000 * __any_sync(~0u, value == 7);
    sum += __shfl_up_sync(~0u, value, 3, 8) + __shfl_down_sync(~0u, value, 3, 8) - __shfl_sync(~0u, value, 5, 8);
    x[threadIdx.x] = sum + __popc(odd) + 10000 * __syncthreads_count(lane < 3);
}
