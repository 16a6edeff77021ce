// Sums of floats with any exponents: cells in shared memory, one per band of exponents, private to each thread.
#pragma once

#include "reduce/tile.cuh"

// 64 KiB of shared memory per block are too few for cells.
constexpr bool HAS_CELLS = !TURING;

// A thread's cells are a column of the block's array, so that lanes using different cells never conflict in a bank.
// Unlike additions to the block's digits, these are neither atomic nor waited for.
struct Cells {
    u64* column;

    __device__ explicit Cells(int from) {
        extern __shared__ u64 columns[];
        column = columns + REDUCE_THREADS * from + threadIdx.x;
    }
    __device__ u64& own(int number) const { return column[REDUCE_THREADS * number]; }
    __device__ u64& of(int number, int lane) const { return column[REDUCE_THREADS * number + lane - int(threadIdx.x % 32)]; }
};

template <typename T> struct SumCells;
template <typename T> struct SquareCells;

// Sixteen exponents share a float64 sum, exact for 2^14 numbers.
template <> struct SumCells<float> {
    static constexpr int COUNT = 16, MOST = 1 << 14;
    static constexpr bool SIGNED = true;

    static __device__ void add(const Cells& cells, float x) {
        u64& cell = cells.own((__float_as_uint(x) & 0x7fffffffu) >> 27);
        cell = u64(__double_as_longlong(__longlong_as_double(i64(cell)) + x));
    }
    // In units of 2^place(i).
    static __device__ u64 integer(u64 cell, int i) {
        const i64 exponent = 1023 + 149 + 1 - max(16 * i, 1);
        return u64(i64(__longlong_as_double(i64(cell)) * __longlong_as_double(exponent << 52)));
    }
    static __device__ int place(int i) { return SUM_PLACE - 149 - 1 + max(16 * i, 1); }
};

// Fifty exponents share two 64-bit integers. Adding a large number rounds a sample to a multiple of the upper one's unit,
// the spacing of float64 there; the remainder is a multiple of the lower one's. Both are read off the bits of the sums.
// 2^10 additions of at most 2^52 units fit.
template <> struct SumCells<double> {
    static constexpr int BITS = 50, BINS = 2046 / BITS + 1, LARGE = BITS * (BINS - 1), COUNT = BINS + 1, MOST = 1 << 10;
    static constexpr bool SIGNED = true;
    static constexpr u32 MIDDLE = 1 << 19;  // of the upper word: 1.5 times a power of two
    static_assert(BITS == 50, "as add divides by it");
    static_assert(LARGE + BITS + 1 > 2045 && LARGE + 1 < 2045, "only of large numbers there is no larger one");

    static __device__ double from_halves(u32 upper, u32 lower) {
        return __longlong_as_double(i64(u64(upper) << 32 | lower));
    }

    static __device__ void add(const Cells& cells, double x) {
        const u64 bits = u64(__double_as_longlong(x));
        const u32 head = u32(bits >> 32), exponent = head >> 20 & 0x7ff, first = exponent * 1311 >> 16;
        const u32 middle = exponent >= LARGE ? MIDDLE - (2 * BITS << 20) : MIDDLE;
        const u32 lower = first * (BITS << 20) + middle, upper = lower + (BITS + 1 << 20);
        const double scaled = from_halves(head - MIDDLE + middle, u32(bits)), far = from_halves(upper, 0);
        const double high = scaled + far, low = scaled - (high - far) + from_halves(lower, 0);
        u64 &at_lower = cells.own(first), &at_upper = cells.own(first + 1);
        const u64 before_lower = at_lower, before_upper = at_upper;
        at_lower = before_lower + u64(__double_as_longlong(low)) - (u64(lower) << 32);
        at_upper = before_upper + 2 * u64(__double_as_longlong(high)) - (u64(2 * upper) << 32);
    }
    static __device__ u64 integer(u64 cell, int) { return cell; }
    static __device__ int place(int i) { return SUM_PLACE - 1075 + i * BITS + (i == 0); }
};

// A 48-bit square, shifted within its 24 exponents, becomes two 48-bit numbers; 2^15 of them fit.
template <> struct SquareCells<float> {
    static constexpr int EXPONENTS = 24, BITS = 2 * EXPONENTS, COUNT = 253 / EXPONENTS + 2;
    static constexpr bool SIGNED = false;
    u32 cell;
    u64 lower, upper;

    __device__ explicit SquareCells(float x) {
        const u32 bits = __float_as_uint(x), exponent = bits >> 23 & 0xff, place = max(exponent, 1u) - 1;
        const u32 fraction = (bits & 0x7fffffu) | min(exponent, 1u) << 23;
        const u64 square = u64(fraction) * fraction;
        cell = place * 2731 >> 16;
        const u32 shift = 2 * (place - EXPONENTS * cell);
        lower = square << shift & ((u64(1) << BITS) - 1);
        upper = square >> (BITS - shift);
    }
    static __device__ u64 integer(u64 cell, int) { return cell; }
    static __device__ int place(int i) { return SQUARE_PLACE - 2 * 149 + BITS * i; }
};

// A thread's cells, which the lanes of a warp empty together.
template <typename T, int PARTS> struct Columns {
    static constexpr int SIZE = Tile<T>::SIZE, MOST = SumCells<T>::MOST / SIZE;
    static constexpr bool SQUARED = PARTS & SQUARES;
    const Cells sums, squares;
    int tiles = 0;

    __device__ Columns() : sums(0), squares(SumCells<T>::COUNT) {
#pragma unroll 1
        for (int i = 0; i < SumCells<T>::COUNT; ++i) sums.own(i) = 0;
        if constexpr (SQUARED) {
#pragma unroll 1
            for (int i = 0; i < SquareCells<T>::COUNT; ++i) squares.own(i) = 0;
        }
    }

    // Called by all lanes, with finite numbers.
    __device__ void add(const Tile<T>& tile, Counters<PARTS>& counters) {
        if (tiles == MOST) empty(counters);
        ++tiles;
#pragma unroll
        for (int i = 0; i < SIZE; ++i) {
            if constexpr (SQUARED) add_both(tile.item[i]);
            else SumCells<T>::add(sums, tile.item[i]);
        }
    }

    // Called by all lanes.
    __device__ void empty(Counters<PARTS>& counters) {
        tiles = 0;
        __syncwarp();
        take<SumCells<T>>(sums, counters);
        if constexpr (SQUARED) take<SquareCells<T>>(squares, counters);
        __syncwarp();
    }

  private:
    // All loads come before any store: the compiler may not reorder them so.
    __device__ void add_both(float x) {
        const SquareCells<T> square(x);
        u64 &sum = sums.own((__float_as_uint(x) & 0x7fffffffu) >> 27);
        u64 &lower = squares.own(square.cell), &upper = squares.own(square.cell + 1);
        const double before = __longlong_as_double(i64(sum));
        const u64 before_lower = lower, before_upper = upper;
        sum = u64(__double_as_longlong(before + x));
        lower = before_lower + square.lower;
        upper = before_upper + square.upper;
    }

    // One lane per cell sums it over all lanes, starting with its own, so that no two conflict in a bank.
    template <typename Kind> static __device__ void take(const Cells& cells, Counters<PARTS>& counters) {
        const int lane = threadIdx.x % 32;
#pragma unroll 1
        for (int i = lane; i < Kind::COUNT; i += 32) {
            i64 lower = 0, upper = 0;
#pragma unroll 4
            for (int k = 0; k < 32; ++k) {
                u64& cell = cells.of(i, (lane + k) % 32);
                const u64 value = Kind::integer(cell, i);
                lower += u32(value);
                upper += Kind::SIGNED ? i64(value) >> 32 : i64(value >> 32);
                cell = 0;
            }
            const int place = Kind::place(i);
            counters.digits.add(u64(lower), 0, place, false);
            counters.digits.add(u64(upper < 0 ? -upper : upper), 0, place + 32, upper < 0);
        }
    }
};

// With squares of float64, columns per thread would not fit. The warps of a block share one column per lane number, by
// atomic operations without a result: digits of 22 bits in 32. A number shifted within its eleven exponents has 63 bits,
// three digits of the sum, and its square six digits of the squares. A cell holds 2^9 additions.
template <int PARTS> struct Lanes {
    static constexpr int EXPONENTS = 11, BITS = 2 * EXPONENTS, BINS = 2045 / EXPONENTS + 1, SUMS = BINS + 4;
    static constexpr int CELLS = SUMS + BINS + 5, MOST = 1 << 9;
    static constexpr u32 DIGIT = (1u << BITS) - 1;

    static __device__ u32* cell(int number, int lane) {
        extern __shared__ u64 columns[];
        return reinterpret_cast<u32*>(columns) + 32 * number + lane;
    }

    // Called by all threads.
    static __device__ void clear() {
        for (int i = threadIdx.x / 32; i < CELLS; i += REDUCE_THREADS / 32) *cell(i, threadIdx.x % 32) = 0;
    }

    // Called by all lanes, with finite numbers.
    __device__ void add(const Tile<double>& tile, Counters<PARTS>&) {
#pragma unroll
        for (int i = 0; i < Tile<double>::SIZE; ++i) add(tile.item[i]);
    }

    // Called by all threads between two barriers: one thread per cell sums it over all lanes, starting with its own.
    static __device__ void empty(Counters<PARTS>& counters) {
#pragma unroll 1
        for (int i = threadIdx.x; i < CELLS; i += REDUCE_THREADS) {
            i64 sum = 0;
#pragma unroll 4
            for (int k = 0; k < 32; ++k) {
                u32* const at = cell(i, (threadIdx.x + k) % 32);
                sum += int(*at);
                *at = 0;
            }
            const int place = i < SUMS ? SUM_PLACE - 1074 + EXPONENTS * i : SQUARE_PLACE - 2148 + BITS * (i - SUMS);
            if (sum) counters.digits.add(u64(sum < 0 ? -sum : sum), 0, place, sum < 0);
        }
    }

  private:
    static __device__ void add(double x) {
        const u64 bits = u64(__double_as_longlong(x));
        const u32 head = u32(bits >> 32), exponent = head >> 20 & 0x7ff, place = max(exponent, 1u) - 1;
        const u32 bin = place * 5958 >> 16, sign = u32(int(head) >> 31);
        const u32 upper = (head & 0xfffffu) | min(exponent, 1u) << 20;
        const u64 fraction = (u64(upper) << 32 | u32(bits)) << (place - EXPONENTS * bin);
        const u64 low = fraction * fraction, high = __umul64hi(fraction, fraction);
        u32* const at = cell(int(bin), threadIdx.x % 32);
        const u32 sum[] = {u32(fraction) & DIGIT, u32(fraction >> BITS) & DIGIT, u32(fraction >> 2 * BITS)};
#pragma unroll
        for (int k = 0; k < 3; ++k) atomicAdd(at + 32 * 2 * k, (sum[k] ^ sign) - sign);
        const u32 square[] = {u32(low) & DIGIT, u32(low >> BITS) & DIGIT,
                              u32(low >> 2 * BITS | high << (64 - 2 * BITS)) & DIGIT,
                              u32(high >> (3 * BITS - 64)) & DIGIT, u32(high >> (4 * BITS - 64)) & DIGIT,
                              u32(high >> (5 * BITS - 64))};
#pragma unroll
        for (int k = 0; k < 6; ++k) atomicAdd(at + 32 * (SUMS + k), square[k]);
    }
};

struct NoCells {};  // too little shared memory: numbers go to the block's digits one by one

template <typename T, int PARTS>
using LargeCells = typename Choose<sizeof(T) == 8 && PARTS & SQUARES, Lanes<PARTS>, Columns<T, PARTS>>::type;
template <typename T, int PARTS> using CellsOf = typename Choose<HAS_CELLS, LargeCells<T, PARTS>, NoCells>::type;
