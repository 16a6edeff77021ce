// Exact sums of third and fourth powers, beside the partial that gpu.cu makes (kernels/reduce/powers.py).
//
//   powers          each thread adds the 32-bit digits of its samples' powers in registers
//   extend          a partial and these sums make a partial that has both
//   combine_powers  completes the combined partial of two
//
// A sample is an integer of up to 64 bits times a power of two: floats are shifted to the lowest exponent of a window
// that the thread keeps, of as many exponents as 64 bits leave room for. A number outside of the window moves it, after
// what the registers hold went to the digits of the block in shared memory; so nothing depends on the data but time.
// Digits are 64-bit counters, whose carries are resolved at the end.

#include "reduce/exact_sum.cuh"

constexpr int POWERS_THREADS = 256;
constexpr int POWERS = 8;                                                             // as in powers.py
constexpr int CUBE_BITS = 3 * SUM_BITS, CUBE_WORDS = 100, FOURTH_BITS = 4 * SUM_BITS, FOURTH_WORDS = 133;
constexpr int CUBE_PLACES = 2 * CUBE_WORDS, FOURTH_PLACES = 2 * FOURTH_WORDS;         // digits of 32 bits
constexpr int ASKED_AT = 1, MOMENTS_SIZE = 112;                                       // as in partial.py

// sign * size * 2^(place + LEAST); no number is a size of 0.
struct Scaled {
    u64 size;
    int place;
    bool negative;
};

// SPAN: exponents above the lowest one that a window takes.
template <typename T> struct Numbers {
    static constexpr int LEAST = 0, SPAN = 0;
    static __device__ Scaled scaled(T x) { return {x < 0 ? 0 - u64(x) : u64(x), 0, x < 0}; }
};

template <int FRACTION, int EXPONENT, int LEAST_> struct Floats {
    static constexpr int LEAST = LEAST_, SPAN = 63 - FRACTION;
    static __device__ Scaled scaled(u64 bits) {
        constexpr int INFINITE = (1 << EXPONENT) - 1;
        const int exponent = int(bits >> FRACTION) & INFINITE;
        const u64 fraction = bits & ((u64(1) << FRACTION) - 1);
        const u64 size = exponent == INFINITE ? 0 : exponent ? fraction | u64(1) << FRACTION : fraction;
        return {size, exponent ? exponent - 1 : 0, bool(bits >> (FRACTION + EXPONENT))};
    }
};
template <> struct Numbers<float16> : Floats<10, 5, -24> {
    static __device__ Scaled scaled(float16 x) { return Floats::scaled(x.bits); }
};
template <> struct Numbers<float> : Floats<23, 8, -149> {
    static __device__ Scaled scaled(float x) { return Floats::scaled(__float_as_uint(x)); }
};
template <> struct Numbers<double> : Floats<52, 11, -1074> {
    static __device__ Scaled scaled(double x) { return Floats::scaled(u64(__double_as_longlong(x))); }
};

// Adds digits of 32 bits with unresolved carries to those in shared memory, at a bit.
template <int N> __device__ void add_digits(const i64 (&digit)[N], int bit, u64* total) {
    const int shift = bit % 32;
    u64* const cell = total + bit / 32;
    i64 carry = 0;
    u64 above = 0;
#pragma unroll
    for (int k = 0; k < N; ++k) {
        const i64 sum = digit[k] + carry;
        carry = sum >> 32;
        const u64 shifted = u64(u32(sum)) << shift, value = above | u32(shifted);
        above = shifted >> 32;
        if (value) atomicAdd(cell + k, value);
    }
    const u64 value = above + (u64(carry) << shift);
    if (value) atomicAdd(cell + N, value);
}

template <typename T> struct PowerSums {
    using Type = Numbers<T>;
    i64 cube[6] = {}, fourth[8] = {};
    int base = 0;

    __device__ void add(T x, u64* cubes, u64* fourths) {
        Scaled number = Type::scaled(x);
        if (!number.size) return;
        if (u32(number.place - base) > u32(Type::SPAN)) {
            flush(cubes, fourths);
            base = max(number.place - Type::SPAN / 2, 0);
        }
        const u64 m = number.size << (number.place - base);
        const u64 low = m * m, high = __umul64hi(m, m);
        const i64 minus = -i64(number.negative);

        const u64 passed = __umul64hi(low, m), second = high * m + passed;
        const u64 third[3] = {low * m, second, __umul64hi(high, m) + (second < passed)};
#pragma unroll
        for (int k = 0; k < 3; ++k) {
            cube[2 * k] += (i64(u32(third[k])) ^ minus) - minus;
            cube[2 * k + 1] += (i64(third[k] >> 32) ^ minus) - minus;
        }
        // The middle product counts twice: its digits are added twice.
        const u64 middle = low * high, over = __umul64hi(low, high);
        add_word<0>(low * low);
        add_word<1>(__umul64hi(low, low));
        add_word<1>(middle), add_word<1>(middle);
        add_word<2>(over), add_word<2>(over);
        add_word<2>(high * high);
        add_word<3>(__umul64hi(high, high));
    }

    // What the registers hold goes to the digits of the block.
    __device__ void flush(u64* cubes, u64* fourths) {
        add_digits(cube, CUBE_BITS + 3 * (base + Type::LEAST), cubes);
        add_digits(fourth, FOURTH_BITS + 4 * (base + Type::LEAST), fourths);
#pragma unroll
        for (i64& digit : cube) digit = 0;
#pragma unroll
        for (i64& digit : fourth) digit = 0;
    }

  private:
    template <int K> __device__ void add_word(u64 word) {
        fourth[2 * K] += u32(word);
        fourth[2 * K + 1] += i64(word >> 32);
    }
};

// At most 2^28 samples, so that no digit of a block overflows. `totals` are the digits of all blocks, of cubes and then of
// fourth powers; they may hold sums of other samples.
template <typename T>
__global__ void __launch_bounds__(POWERS_THREADS) powers(const T* samples, i64 n, u64* totals) {
    constexpr int PLACES = CUBE_PLACES + FOURTH_PLACES;
    __shared__ u64 digits[PLACES];
    for (int i = threadIdx.x; i < PLACES; i += POWERS_THREADS) digits[i] = 0;
    __syncthreads();

    PowerSums<T> sums;
    const i64 stride = i64(gridDim.x) * POWERS_THREADS, first = i64(blockIdx.x) * POWERS_THREADS + threadIdx.x;
    T next = samples[min(first, n - 1)];
#pragma unroll 1
    for (i64 i = first; i < n; i += stride) {
        const T sample = next;
        next = samples[min(i + stride, n - 1)];  // in flight while this one is multiplied
        sums.add(sample, digits, digits + CUBE_PLACES);
    }
    sums.flush(digits, digits + CUBE_PLACES);
    __syncthreads();

    // A digit's upper half goes to the next place, so that the totals of all blocks do not overflow. The last place of
    // either sum has none: no sample is added there.
    for (int k = threadIdx.x; k < PLACES; k += POWERS_THREADS) {
        const u64 digit = digits[k];
        const i64 upper = i64(digit) >> 32;
        if (u32(digit)) atomicAdd(totals + k, u64(u32(digit)));
        if (upper) atomicAdd(totals + k + 1, u64(upper));
    }
}

// Two's complement of digits with unresolved carries; one thread.
__device__ void resolve(const u64* digits, u64* words, int size) {
    i64 carry = 0;
    for (int i = 0; i < size; ++i) {
        const i64 low = i64(digits[2 * i]) + carry, high = i64(digits[2 * i + 1]) + (low >> 32);
        words[i] = u64(high) << 32 | u32(low);
        carry = high >> 32;
    }
}

// Launched with two warps, like `combine_powers`.
__global__ void extend(const i64* moments, const u64* totals, i64* partial) {
    for (int i = threadIdx.x; i < MOMENTS_SIZE; i += blockDim.x)
        partial[i] = i == ASKED_AT ? moments[i] | POWERS : moments[i];
    u64* const words = reinterpret_cast<u64*>(partial) + MOMENTS_SIZE;
    if (threadIdx.x == 0) resolve(totals, words, CUBE_WORDS);
    if (threadIdx.x == 32) resolve(totals + CUBE_PLACES, words + CUBE_WORDS, FOURTH_WORDS);
}

// `combined` is what gpu.cu's `combine` made of two partials.
__global__ void combine_powers(const i64* a, const i64* b, const i64* combined, i64* partial) {
    for (int i = threadIdx.x; i < MOMENTS_SIZE; i += blockDim.x) partial[i] = combined[i];
    const auto words = [](const i64* of) { return reinterpret_cast<const u64*>(of) + MOMENTS_SIZE; };
    u64* const sums = reinterpret_cast<u64*>(partial) + MOMENTS_SIZE;
    if (threadIdx.x == 0) add_words(words(a), words(b), sums, CUBE_WORDS);
    if (threadIdx.x == 32)
        add_words(words(a) + CUBE_WORDS, words(b) + CUBE_WORDS, sums + CUBE_WORDS, FOURTH_WORDS);
}
