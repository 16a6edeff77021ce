// Float64 lanes that sum third and fourth powers of float32 numbers without rounding error.

#pragma once

#include "cpu_lanes.hpp"

namespace {

typedef int32_t HalfInts __attribute__((vector_size(BYTES / 2)));

constexpr uint32_t INFINITE = 0x7f800000;  // of float32
constexpr int MANTISSA = 23, BIAS = 126;
constexpr int NEAR = 8;  // lanes take numbers with so many exponents, the largest and those below it

#ifdef __FP_FAST_FMA
constexpr bool LANES_SUM_POWERS = true;
#else
constexpr bool LANES_SUM_POWERS = false;
#endif

inline Doubles error_of(Doubles x, Doubles y, Doubles product) {
    Doubles error{};
    for (int i = 0; i < LANES; ++i) error[i] = __builtin_fma(x[i], y[i], -product[i]);
    return error;
}

// Takes the bits of n samples, at most 2**12 and a multiple of LANES; `least` has those of 2**(top - NEAR). Samples below, and
// from 2**top on, count as 0. Others have 24 bits, of which the last is worth 2**(top - 31) at least. A power is a float64 number and its rounding error, at most 2**-53 of it. A lane
// adds up to 2**10 numbers, of which there are four lanes at least:
//   of cubes the high part, down to 2**(3 * top - 40), the rest, multiples of 2**(3 * top - 76), and the errors, multiples
//   of 2**(3 * top - 93) up to 2**(3 * top - 53);
//   of fourth powers the high part, down to 2**(4 * top - 40), the rest, multiples of 2**(4 * top - 84), and of the errors,
//   which are multiples of 2**(4 * top - 124), the part down to 2**(4 * top - 94), and the rest.
// So each sum has at most 53 bits.
template <class Cubes, class Fourths>
void add_near(const uint32_t* samples, size_t n, int top, int32_t least, Cubes& cubes, Fourths& fourths) {
    const double starts[3] = {1.5 * power(3 * top + 12), 1.5 * power(4 * top + 12), 1.5 * power(4 * top - 42)};
    const int32_t most = (top + BIAS + 1) << MANTISSA;
    Doubles high[3], rest[4] = {};
    for (int j = 0; j < 3; ++j) high[j] = Doubles{} + starts[j];
    for (size_t i = 0; i < n; i += LANES) {
        HalfInts bits;
        std::memcpy(&bits, samples + i, sizeof bits);
        const HalfInts size = bits & 0x7fffffff;
        const HalfFloats sample = HalfFloats(bits & (size >= least) & (size < most));
        const Doubles x = __builtin_convertvector(sample, Doubles), square = x * x;
        Doubles cube = square * x, fourth = square * square;
        Doubles cube_error = error_of(square, x, cube), fourth_error = error_of(square, square, fourth);
        cut(high[0], cube);
        cut(high[1], fourth);
        cut(high[2], fourth_error);
        rest[0] += cube;
        rest[1] += cube_error;
        rest[2] += fourth;
        rest[3] += fourth_error;
    }
    for (int i = 0; i < LANES; ++i) {
        cubes.add(high[0][i] - starts[0]), cubes.add(rest[0][i]), cubes.add(rest[1][i]);
        fourths.add(high[1][i] - starts[1]), fourths.add(rest[2][i]);
        fourths.add(high[2][i] - starts[2]), fourths.add(rest[3][i]);
    }
}

// The bits of a block of n <= BLOCK samples. Lanes take most of it if they can; `add_other(bits)` takes each of the others.
template <class Cubes, class Fourths, class AddOther>
void add_powers(const uint32_t* samples, size_t n, Cubes& cubes, Fourths& fourths, AddOther add_other) {
    constexpr uint32_t SIZE = 0x7fffffff;
    constexpr size_t GROUP = 32;
    uint32_t copy[BLOCK];
    if (n < BLOCK) {
        std::memcpy(copy, samples, n * sizeof *copy), std::memset(copy + n, 0, (BLOCK - n) * sizeof *copy);
        samples = copy;
    }
    uint32_t largest = 0, near = 0;
    for (size_t i = 0; i < BLOCK; ++i) {
        const uint32_t size = samples[i] & SIZE, finite = size & -uint32_t(size < INFINITE);
        largest = finite > largest ? finite : largest;
    }
    const int exponent = static_cast<int>(largest >> MANTISSA);
    const uint32_t least = exponent < NEAR ? INFINITE : static_cast<uint32_t>(exponent - NEAR + 1) << MANTISSA;  // no subnormals
    for (size_t i = 0; i < BLOCK; ++i) near += (samples[i] & SIZE) >= least && (samples[i] & SIZE) < INFINITE;
    uint32_t below = INFINITE;
    if (LANES_SUM_POWERS && 2 * near > n) {
        add_near(samples, BLOCK, exponent - BIAS, static_cast<int32_t>(least), cubes, fourths);
        below = least;
    }
    for (size_t start = 0; start < BLOCK; start += GROUP) {
        uint32_t any = 0, others[GROUP];
        for (size_t i = start; i < start + GROUP; ++i) any |= (samples[i] & SIZE) - 1 < below - 1;
        if (!any) continue;
        size_t number = 0;
        for (size_t i = start; i < start + GROUP; ++i) {
            others[number] = samples[i];
            number += (samples[i] & SIZE) - 1 < below - 1;
        }
        for (size_t i = 0; i < number; ++i) add_other(others[i]);
    }
}

}  // namespace
