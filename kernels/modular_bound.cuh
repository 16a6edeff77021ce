// How far an element may be from the product that was asked for: which elements are doubtful, and what becomes of them.
#pragma once

#include "modular_number.cuh"

// BITS, LOST and HALF_WAY of modular.py.
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

// What a thread has seen of a line, in the same terms; places are those of the thread's own numbers until `place`.
struct Part {
    int size = 0, loss = 0, early = 0, late = 0;

    // Its number i, the integer that it became, and the first bits of that.
    template <typename F>
    __device__ void add(int i, typename F::Storage value, typename F::Whole whole, u32 magnitude, int exponent) {
        if (!(value & (F::SIGN - 1))) return;
        early = max(early, MOST_INNER - i);
        late = i + 1;
        size += int(magnitude) + 1;
        loss = max(loss, F::lost(value, whole, exponent));
    }

    // Number 0 is at place `start`.
    __device__ void place(int start) {
        if (!size) return;
        early -= start;
        late += start;
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
