// Bounds the error of each element of a product of floats: elements whose bound is too large are uncertain.
#pragma once

#include "matmul/chinese_remainder.cuh"

constexpr int MOST_INNER = 1 << 30;  // a line has fewer numbers

// What is known of a line: four words that start from zero and only grow. Magnitudes are in units of 2^(exponent - BITS),
// rounded down in the plane of magnitudes.
struct Line {
    static constexpr int WORDS = 4;
    u64 size;  // upper bound on the sum of all magnitudes
    int loss;  // rounding moved no number by as much as 2^(loss - LOST); zero if it moved none
    int early, late;  // MOST_INNER minus the place of the first nonzero number, and the place after the last one

    __device__ Line(const u64* seen, i64 line)
        : size(seen[WORDS * line]), loss(int(seen[WORDS * line + 1])), early(int(seen[WORDS * line + 2])),
          late(int(seen[WORDS * line + 3])) {}

    __device__ Line(u64 size, int loss, int early, int late) : size(size), loss(loss), early(early), late(late) {}

    // Upper bound on how far rounding moved any number, in units of 2^-PRECISION of the line's.
    template <typename F> __device__ double moved() const { return loss ? power_of_two(loss - LOST + F::PRECISION) : 0; }
};

// What a thread knows of a line, from some consecutive numbers.
struct Part {
    int size = 0, loss = 0, early = 0, late = 0;
    u32 nonzero = 0;  // a bit for each number

    // Number i, the top bits of its integer, and how far rounding moved it.
    __device__ void add(int i, bool is_nonzero, u32 magnitude, int moved) {
        nonzero |= u32(is_nonzero) << i;
        size += int(magnitude);
        loss = max(loss, moved);
    }

    // After the last number; number 0 is at place `start`.
    template <typename F> __device__ void close(int start) {
        loss = F::lost(loss);
        if (!nonzero) return;
        size += __popc(nonzero);
        early = MOST_INNER - start - (__ffs(int(nonzero)) - 1);
        late = start + 32 - __clz(int(nonzero));
    }

    // Combines all lanes whose numbers differ in these bits.
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

// The places outside of which one of two lines has only zeros.
struct Span {
    i64 first, end;
    __device__ Span(const Line& a, const Line& b)
        : first(MOST_INNER - min(a.early, b.early)), end(min(a.late, b.late)) {}
    __device__ bool some() const { return first < end; }
};

// Whether the element of two lines of `inner` numbers, with `total` as its sum of products of magnitudes, is certainly close
// enough.
template <typename F>
__device__ bool certain(const Line& a, const Line& b, i64 inner, u32 total, double share) {
    const double moved_a = a.template moved<F>(), moved_b = b.template moved<F>();
    const double both_b = moved_b * double(inner) * power_of_two(-F::PRECISION);
    const double error = double(b.size) * moved_a + double(a.size) * moved_b + both_b * moved_a;
    return error <= double(total) * share || !Span(a, b).some();
}

// The lines of A and B that an element of the stack of products comes from; `next` advances to the next element.
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
    // Half as many instructions if both fit into words.
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
