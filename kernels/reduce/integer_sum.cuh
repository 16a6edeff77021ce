// Sums of integers and of their squares, in as many bits as they can need.
#pragma once

#include "reduce/tile_range.cuh"

// 96 bits in two's complement: enough for 2^31 products of 64 bits.
struct Long {
    u32 word[3] = {};

    // Adds a * b. The first two instructions are fused into one multiply-add with carry.
    __device__ void add_product(u32 a, u32 b) {
#if ON_GPU
        asm("mad.lo.cc.u32 %0, %3, %4, %0; madc.hi.cc.u32 %1, %3, %4, %1; addc.u32 %2, %2, 0;"
            : "+r"(word[0]), "+r"(word[1]), "+r"(word[2])
            : "r"(a), "r"(b));
#else
        add(u64(a) * b, 0);
#endif
    }

    // Adds x and 2^64 * upper.
    __device__ void add(u64 x, u32 upper) {
        const u64 low = u64(word[1]) << 32 | word[0], sum = low + x;
        word[0] = u32(sum);
        word[1] = u32(sum >> 32);
        word[2] += upper + (sum < x);
    }

    // Sum over the lanes of a warp.
    __device__ void join() {
#pragma unroll
        for (int lanes = 16; lanes > 0; lanes /= 2) {
            u32 other[3];
#pragma unroll
            for (int i = 0; i < 3; ++i) other[i] = __shfl_xor_sync(ALL_LANES, word[i], lanes);
            add(u64(other[1]) << 32 | other[0], other[2]);
        }
    }

    // Adds the number to the digits from `place` on.
    template <int N> __device__ void close(Digits<N>& digits, int place) const {
        const bool negative = word[2] >> 31;
        const u64 low = u64(word[1]) << 32 | word[0];
        const u64 size = negative ? 0 - low : low;
        const u32 upper = negative ? ~word[2] + (low == 0) : word[2];
        digits.add(size, upper, place, negative);
    }
};

// A thread's sums.
template <typename T, int PARTS> struct Sums {
    static constexpr bool SIGNED = T(-1) < T(0);
    using Narrow = typename Choose<SIGNED, int, u32>::type;
    Long sum;
    Long squares[sizeof(T) == 8 ? 3 : 1];  // by the places of their products: 0, 33 and 64

    __device__ void one(T x, Counters<PARTS>&) {
        if (PARTS & SUM) sum.add(u64(i64(x)), SIGNED && x < T(0) ? ~0u : 0);
        if (PARTS & SQUARES) add_square(x);
    }

    static __device__ bool holds(const Tile<T>&, const TileRange<T, PARTS>&, Counters<PARTS>&) { return true; }

    __device__ void add(const Tile<T>& tile, const TileRange<T, PARTS>&) {
        if constexpr (sizeof(T) <= 2) add_narrow(tile);
        else add_wide(tile);
    }

    // Called by all lanes; one lane per number.
    __device__ void close(Counters<PARTS>& counters) {
        constexpr int COUNT = PARTS & SQUARES ? sizeof(T) == 8 ? 4 : 2 : PARTS & SUM ? 1 : 0;
        Long total = sum;
        int place = SUM_PLACE;
        if constexpr (COUNT > 0) total.join();
#pragma unroll
        for (int k = 1; k < COUNT; ++k) {
            Long other = squares[k - 1];
            other.join();
            if (threadIdx.x % 32 == k) {
                total = other;
                place = SQUARE_PLACE + (k == 1 ? 0 : k == 2 ? 33 : 64);
            }
        }
        if (threadIdx.x % 32 < COUNT) total.close(counters.digits, place);
    }

  private:
    // Four bytes, or two pairs, per instruction: the sum of 64 bytes fits into 32 bits.
    __device__ void add_narrow(const Tile<T>& tile) {
        Narrow total = 0;
        u32 small = 0;
        u64 large = 0;
#pragma unroll
        for (int i = 0; i < Tile<T>::WORDS; ++i) {
            const Narrow word = tile.word[i];
            if (PARTS & SUM) {
                if constexpr (sizeof(T) == 1) total = __dp4a(word, Narrow(0x01010101), total);
                else total = __dp2a_lo(word, Narrow(0x0101), total);
            }
            if (PARTS & SQUARES) {
                if constexpr (sizeof(T) == 1) {
                    small = u32(__dp4a(word, word, Narrow(small)));
                } else {
                    const Narrow lower = T(word), upper = word >> 16;
                    large += u64(i64(lower) * lower);
                    large += u64(i64(upper) * upper);
                }
            }
        }
        if (PARTS & SUM) sum.add(u64(i64(total)), SIGNED && i64(total) < 0 ? ~0u : 0);
        if (PARTS & SQUARES) squares[0].add(small + large, 0);
    }

    __device__ void add_wide(const Tile<T>& tile) {
        using Lower = typename Choose<SIGNED, i64, u64>::type;
        Lower lower = 0;
        i64 upper = 0;
#pragma unroll
        for (int i = 0; i < Tile<T>::SIZE; ++i) {
            const T x = tile.item[i];
            if constexpr (PARTS & SUM && sizeof(T) == 4) lower += x;
            if constexpr (PARTS & SUM && sizeof(T) == 8) {
                lower += Lower(u32(x));
                upper += SIGNED ? i64(x) >> 32 : i64(u64(x) >> 32);
            }
            if (PARTS & SQUARES) add_square(x);
        }
        if constexpr (PARTS & SUM && sizeof(T) == 4) sum.add(u64(lower), SIGNED && i64(lower) < 0 ? ~0u : 0);
        if constexpr (PARTS & SUM && sizeof(T) == 8) {
            sum.add(u64(lower), 0);
            sum.add(u64(upper) << 32, u32(u64(upper) >> 32));
        }
    }

    __device__ void add_square(T x) {
        const u64 size = SIGNED && x < T(0) ? 0 - u64(i64(x)) : u64(x);
        const u32 low = u32(size), high = u32(size >> 32);
        squares[0].add_product(low, low);
        if constexpr (sizeof(T) == 8) {
            squares[1].add_product(low, high);
            squares[2].add_product(high, high);
        }
    }
};
