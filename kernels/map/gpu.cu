// Elementwise: out[i] = a[i] + b[i], and the other operations of two or three arrays, with the bits that NumPy gives.
//
// Variants, each with the same result (`product` multiplies):
//   one_thread    one thread adds all elements, one after the other
//   one_block     one block: thread i adds elements i, i + blockDim, ...
//   grid          many blocks: one element per thread
//   matrix_2d     blocks and grid in two dimensions: thread (x, y) adds element (row y, column x)
//   product       element by element product in one block with as many threads as elements
//   production    any operation; 16-byte loads and stores, one of each array per thread
//   no_index      one_block without an index; broken: every thread adds every element, in place, over the others
//   past_the_end  grid without its guard; broken: threads beyond the last element write into what lies behind it
//
// From the courses: 1 and 256 threads in one block; blocks of 1024 threads, one per element; blocks of 32 x 32 threads
// for matrices (all the `block` of the wrapper); one block of 400 threads for the product of 400 elements.
//
// Integers wrap. Floating-point results are rounded once per operation: multiply-add twice, as in NumPy's a * b + c.
// Minimum and maximum give NaN where an operand is NaN, and -0.0 counts as less than 0.0. Where NumPy has a NaN so has
// the result; machines differ in its sign and payload, so the production kernel always gives the same one.

#include "common/types.cuh"

// Where arithmetic is done: in C++ signed integers must not overflow, unsigned ones wrap.
template <typename T> struct Ring { using type = T; };
template <> struct Ring<i8> { using type = u32; };
template <> struct Ring<u8> { using type = u32; };
template <> struct Ring<i16> { using type = u32; };
template <> struct Ring<u16> { using type = u32; };  // which alone would become int
template <> struct Ring<int> { using type = u32; };
template <> struct Ring<i64> { using type = u64; };

struct Add {
    static constexpr int OPERANDS = 2;
    template <typename T> static __device__ T of(T a, T b, T) {
        using R = typename Ring<T>::type;
        return T(R(a) + R(b));
    }
};
struct Subtract {
    static constexpr int OPERANDS = 2;
    template <typename T> static __device__ T of(T a, T b, T) {
        using R = typename Ring<T>::type;
        return T(R(a) - R(b));
    }
};
struct Multiply {
    static constexpr int OPERANDS = 2;
    template <typename T> static __device__ T of(T a, T b, T) {
        using R = typename Ring<T>::type;
        return T(R(a) * R(b));
    }
};
struct MultiplyAdd {
    static constexpr int OPERANDS = 3;
    template <typename T> static __device__ T of(T a, T b, T c) { return Add::of(Multiply::of(a, b, c), c, c); }
};

template <typename T> __device__ bool is_negative(T) { return false; }  // of two equal integers either will do
__device__ bool is_negative(float x) { return __float_as_int(x) < 0; }  // also of -0.0
__device__ bool is_negative(double x) { return __double_as_longlong(x) < 0; }

template <typename T> __device__ T one_nan(T x) { return x; }
__device__ float one_nan(float x) { return x != x ? __int_as_float(0x7fc00000) : x; }
__device__ double one_nan(double x) { return x != x ? __longlong_as_double(0x7ff8000000000000) : x; }

// The first operand where it is less, where it is NaN, and of two zeros where it is the negative one. `|` and `&`
// evaluate both sides: no branch.
struct Minimum {
    static constexpr int OPERANDS = 2;
    template <typename T> static __device__ T of(T a, T b, T) {
        return (a < b) | ((a == b) & is_negative(a)) | (a != a) ? a : b;
    }
};
struct Maximum {
    static constexpr int OPERANDS = 2;
    template <typename T> static __device__ T of(T a, T b, T) {
        return (a > b) | ((a == b) & !is_negative(a)) | (a != a) ? a : b;
    }
};

template <typename T>
__global__ void one_thread(const T* a, const T* b, T* out, i64 n) {
    for (i64 i = 0; i < n; ++i) out[i] = Add::of(a[i], b[i], T());
}

template <typename T>
__global__ void one_block(const T* a, const T* b, T* out, i64 n) {
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) out[i] = Add::of(a[i], b[i], T());
}

template <typename T>
__global__ void grid(const T* a, const T* b, T* out, i64 n) {
    const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) out[i] = Add::of(a[i], b[i], T());
}

template <typename T>
__global__ void matrix_2d(const T* a, const T* b, T* out, i64 rows, i64 columns) {
    const i64 column = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    const i64 row = i64(blockIdx.y) * blockDim.y + threadIdx.y;
    const i64 i = row * columns + column;
    if (row < rows && column < columns) out[i] = Add::of(a[i], b[i], T());
}

template <typename T>
__global__ void product(const T* a, const T* b, T* out, i64 n) {
    const i64 i = threadIdx.x;
    if (i < n) out[i] = Multiply::of(a[i], b[i], T());
}

constexpr int THREADS = 256;  // of the production kernel

// head: elements before the first that lies on 16 bytes in every array; n where the arrays never do together.
// Whole tiles go by 16-byte loads, one to a thread and one tile to a block: many threads that come and go keep the memory
// busier than few with several loads each. On an H200 loads that are not meant to stay in the cache (__ldcs) took 6 %
// longer. What is before and after the tiles goes element by element.
// c is not read where the operation has two operands.
template <typename T, typename Op>
__global__ void __launch_bounds__(THREADS)
production(const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c, T* __restrict__ out, i64 n,
           i64 head) {
    constexpr int PER_PACK = 16 / sizeof(T);
    constexpr i64 TILE = THREADS * PER_PACK;
    union Pack {
        uint4 bits;
        T item[PER_PACK];
    };
    const i64 tiles = (n - head) / TILE;
    if (blockIdx.x < tiles) {
        const i64 at = head + blockIdx.x * TILE + threadIdx.x * PER_PACK;
        Pack x, y, z;
        x.bits = __ldg(reinterpret_cast<const uint4*>(a + at));
        y.bits = __ldg(reinterpret_cast<const uint4*>(b + at));
        if constexpr (Op::OPERANDS == 3) z.bits = __ldg(reinterpret_cast<const uint4*>(c + at));
#pragma unroll
        for (int j = 0; j < PER_PACK; ++j) {
            T third{};
            if constexpr (Op::OPERANDS == 3) third = z.item[j];
            x.item[j] = one_nan(Op::of(x.item[j], y.item[j], third));
        }
        *reinterpret_cast<uint4*>(out + at) = x.bits;
    }

    const i64 single = n - tiles * TILE;
    for (i64 s = i64(blockIdx.x) * THREADS + threadIdx.x; s < single; s += i64(gridDim.x) * THREADS) {
        const i64 i = s < head ? s : s + tiles * TILE;
        T third{};
        if constexpr (Op::OPERANDS == 3) third = c[i];
        out[i] = one_nan(Op::of(a[i], b[i], third));
    }
}

template <typename T>
__global__ void no_index(const T* a, T* b, i64 n) {
    for (i64 i = 0; i < n; ++i) b[i] = Add::of(a[i], b[i], T());
}

template <typename T>
__global__ void past_the_end(const T* a, const T* b, T* out) {
    const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    out[i] = Add::of(a[i], b[i], T());
}
