// Sums of integers and of their squares, as wide as they can get.
#pragma once

#include "reduce_tile.cuh"

// Of a thread: a sum of 128 bits in two's complement, a sum of squares of 192.
template <typename T, int PARTS> struct Sums {
    static constexpr bool SIGNED = T(-1) < T(0);
    u64 low = 0, high = 0;
    u64 squares[3] = {};

    __device__ void one(T x, Counters<PARTS>&) {
        if (PARTS & SUM) add(u64(i64(x)), SIGNED && x < T(0) ? ~u64(0) : 0);
        if (PARTS & SQUARES) add_square(x);
    }

    __device__ bool tile(const T (&items)[Tile<T>::SIZE], const T*, Counters<PARTS>& counters) {
        if constexpr (sizeof(T) == 8) {
#pragma unroll
            for (int i = 0; i < Tile<T>::SIZE; ++i) one(items[i], counters);
        } else {
            // A tile of narrow samples stays narrow: 64 bytes, or 32 pairs of them.
            typename std_if<sizeof(T) < 4, int, i64>::type sum = 0;
            typename std_if<sizeof(T) == 1, u32, u64>::type small = 0;
#pragma unroll
            for (int i = 0; i < Tile<T>::SIZE; ++i) {
                if (PARTS & SUM) sum += items[i];
                if (PARTS & SQUARES) {
                    if constexpr (sizeof(T) < 4) small += u32(int(items[i]) * int(items[i]));
                    else add_square(items[i]);
                }
            }
            if (PARTS & SUM) add(u64(i64(sum)), sum < 0 ? ~u64(0) : 0);
            if (PARTS & SQUARES && sizeof(T) < 4) add_to_squares(small, 0);
        }
        return true;
    }

    // One deposit a warp; its lanes agree on nothing else than to add up.
    __device__ void close(Counters<PARTS>& counters) {
#pragma unroll
        for (int lanes = 16; lanes > 0; lanes /= 2) {
            if (PARTS & SUM) add(__shfl_xor_sync(0xffffffff, low, lanes), __shfl_xor_sync(0xffffffff, high, lanes));
            if (PARTS & SQUARES) {
                const u64 other[3] = {__shfl_xor_sync(0xffffffff, squares[0], lanes),
                                      __shfl_xor_sync(0xffffffff, squares[1], lanes),
                                      __shfl_xor_sync(0xffffffff, squares[2], lanes)};
                add_to_squares(other[0], other[1]);
                squares[2] += other[2];
            }
        }
        if (threadIdx.x % 32) return;
        if (PARTS & SUM) {
            const bool negative = SIGNED && i64(high) < 0;
            counters.sum.add(negative ? 0 - low : low, negative ? ~high + (low == 0) : high, SUM_BITS, negative);
        }
        if (PARTS & SQUARES) {
            counters.squares.add(squares[0], squares[1], SQUARE_BITS, false);
            counters.squares.add(squares[2], 0, SQUARE_BITS + 128, false);
        }
    }

  private:
    template <bool CONDITION, typename A, typename B> struct std_if { using type = A; };
    template <typename A, typename B> struct std_if<false, A, B> { using type = B; };

    __device__ void add(u64 lower, u64 upper) {
        low += lower;
        high += upper + (low < lower);
    }

    __device__ void add_square(T x) {
        const u64 size = SIGNED && x < T(0) ? 0 - u64(i64(x)) : u64(x);
        add_to_squares(size * size, sizeof(T) < 8 ? 0 : __umul64hi(size, size));
    }

    __device__ void add_to_squares(u64 lower, u64 upper) {
        squares[0] += lower;
        const u64 carry = squares[0] < lower;
        squares[1] += upper;
        squares[2] += squares[1] < upper;
        squares[1] += carry;
        squares[2] += squares[1] < carry;
    }
};
