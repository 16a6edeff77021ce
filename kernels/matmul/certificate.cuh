// How far an element may be from the product that was asked for: which elements are doubtful, and what becomes of them.
#pragma once

#include "matmul/chinese_remainder.cuh"

// BITS, LOST and HALF_WAY of formats.py.
constexpr int BITS = 7, LOST = 512, HALF_WAY = 497;
constexpr int MOST_INNER = 1 << 30;  // numbers of a line are fewer

// What a line is like: four words of it, that begin with zeros and only grow. Its magnitudes are in units of
// 2^(exponent - BITS), rounded down in the plane of magnitudes.
struct Line {
    static constexpr int WORDS = 4;
    u64 size;  // no less than the sum of all magnitudes
    int loss;  // rounding has moved no number by as much as 2^(loss - LOST); zero where it moved none
    int early, late;  // MOST_INNER less the place of the first number that is not zero, and the place after the last one

    __device__ Line(const u64* seen, i64 line)
        : size(seen[WORDS * line]), loss(int(seen[WORDS * line + 1])), early(int(seen[WORDS * line + 2])),
          late(int(seen[WORDS * line + 3])) {}

    __device__ Line(u64 size, int loss, int early, int late) : size(size), loss(loss), early(early), late(late) {}

    // How far rounding has moved any of its numbers, in units of 2^-PRECISION of its own.
    template <typename F> __device__ double moved() const { return loss ? power_of_two(loss - LOST + F::PRECISION) : 0; }
};

// What a thread has seen of a line, of some numbers next to each other.
struct Part {
    int size = 0, loss = 0, early = 0, late = 0;
    u32 there = 0;  // a bit for each number that is not zero

    // Its number i, the first bits of the integer that it became, and how far it has moved.
    __device__ void add(int i, bool is_there, u32 magnitude, int moved) {
        there |= u32(is_there) << i;
        size += int(magnitude);
        loss = max(loss, moved);
    }

    // Those were all; number 0 is at place `start`.
    template <typename F> __device__ void close(int start) {
        loss = F::lost(loss);
        if (!there) return;
        size += __popc(there);
        early = MOST_INNER - start - (__ffs(int(there)) - 1);
        late = start + 32 - __clz(int(there));
    }

    // That of all lanes whose numbers differ in these bits.
    template <int... BITS_OF_LANE> __device__ void gather() {
        ((size += __shfl_xor_sync(~0u, size, BITS_OF_LANE), loss = max(loss, __shfl_xor_sync(~0u, loss, BITS_OF_LANE)),
          early = max(early, __shfl_xor_sync(~0u, early, BITS_OF_LANE)),
          late = max(late, __shfl_xor_sync(~0u, late, BITS_OF_LANE))), ...);
    }

    __device__ void add_to(u64* line) const {
        if (!size) return;
        atomicAdd(line, u64(size));
        if (loss) atomicMax(line + 1, u64(loss));
        atomicMax(line + 2, u64(early));
        atomicMax(line + 3, u64(late));
    }
};

// Where neither of two lines is zero for sure.
struct Span {
    i64 first, end;
    __device__ Span(const Line& a, const Line& b)
        : first(MOST_INNER - min(a.early, b.early)), end(min(a.late, b.late)) {}
    __device__ bool some() const { return first < end; }
};

// Whether an element of two lines of `inner` numbers, with that sum of products of magnitudes, is near enough for sure.
template <typename F>
__device__ bool certain(const Line& a, const Line& b, i64 inner, u32 total, double share) {
    const double moved_a = a.template moved<F>(), moved_b = b.template moved<F>();
    const double both_b = moved_b * double(inner) * power_of_two(-F::PRECISION);
    const double error = double(b.size) * moved_a + double(a.size) * moved_b + both_b * moved_a;
    return error <= double(total) * share || !Span(a, b).some();
}

// Where an element of the stack of products comes from: a line of A and one of B. They go on to the next element.
struct Lines {
    const int rows, columns, *const a_of, *const b_of;
    i64 matrix;
    int row, column;

    __device__ Lines(i64 element, i64 rows, i64 columns, const int* a_of, const int* b_of)
        : rows(int(rows)), columns(int(columns)), a_of(a_of), b_of(b_of), matrix(quotient(element, rows * columns)) {
        const i64 place = element - matrix * rows * columns;
        row = int(quotient(place, columns));
        column = int(place - row * columns);
    }
    // Half as many instructions where words do.
    __device__ static i64 quotient(i64 a, i64 b) { return (a | b) >> 32 ? a / b : i64(u32(a) / u32(b)); }

    __device__ void next() {
        if (++column < columns) return;
        column = 0;
        if (++row < rows) return;
        row = 0;
        ++matrix;
    }
    __device__ i64 a() const { return i64(a_of[matrix]) * rows + row; }
    __device__ i64 b() const { return i64(b_of[matrix]) * columns + column; }
};

__device__ inline bool is_finite(double value) {
    return (__double_as_longlong(value) >> 52 & 0x7ff) != 0x7ff;
}

// A finite float64 times a power of two, rounded once.
template <typename F> __device__ typename F::Storage rounded(double value, int exponent) {
    const u64 bits = u64(__double_as_longlong(value)), magnitude = bits & (Float64::SIGN - 1);
    const int field = int(magnitude >> 52);
    u64 significand = field ? (magnitude & Float64::FRACTION) + Float64::FRACTION + 1 : magnitude;
    if (bits & Float64::SIGN) significand = 0 - significand;
    u32 words[3] = {u32(significand), u32(significand >> 32), bits & Float64::SIGN && significand ? ~u32(0) : 0};
    return to_float<F>(words, (field ? field - 1 : 0) + Float64::LEAST + exponent);
}
