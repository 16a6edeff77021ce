// Float64 lanes that sum floats without rounding error.

#pragma once

#include "cpu_partial.hpp"

namespace {

// Lanes of a vector register; several registers hide the latency of an addition.
#if defined(__AVX512F__)
constexpr int BYTES = 64;
#elif defined(__AVX__)
constexpr int BYTES = 32;
#else
constexpr int BYTES = 16;
#endif
typedef double Doubles __attribute__((vector_size(BYTES)));
typedef int64_t Longs __attribute__((vector_size(BYTES)));
typedef float HalfFloats __attribute__((vector_size(BYTES / 2)));
constexpr int LANES = BYTES / 8;

// A power of two, as a product of two, because 2**-1074 is subnormal.
inline double power(int exponent) {
    int half = exponent / 2;
    return bits_as<double>(static_cast<uint64_t>(half + 1023) << 52) *
           bits_as<double>(static_cast<uint64_t>(exponent - half + 1023) << 52);
}

inline void cut(Doubles& lane, Doubles& value) {
    Doubles more = lane + value;
    value -= more - lane;
    lane = more;
}

// Rounding error of p = x * x; exact unless it underflows.
inline Doubles square_error(Doubles x, Doubles p) {
#ifdef __FP_FAST_FMA
    Doubles error;
    for (int i = 0; i < LANES; ++i) error[i] = __builtin_fma(x[i], x[i], -p[i]);
    return error;
#else
    Longs bits;
    std::memcpy(&bits, &x, sizeof bits);
    bits = (bits + (int64_t(1) << 26)) & -(int64_t(1) << 27);
    Doubles high;
    std::memcpy(&high, &bits, sizeof high);
    Doubles low = x - high;
    return ((high * high - p) + (high + high) * low) + low * low;
#endif
}

// Sum of lanes that started at `start`; exact, because they are few and all multiples of one unit.
template <int NUMBER>
double total(const Doubles (&lanes)[NUMBER], double start) {
    double sum = 0;
    for (int i = 0; i < NUMBER; ++i)
        for (int j = 0; j < LANES; ++j) sum += lanes[i][j] - start;
    return sum;
}

constexpr int ABREAST = 4;
constexpr size_t STEP = ABREAST * LANES;  // counts are multiples of this

// For numbers from 2**(top - 18) up to 2**top, which are multiples of 2**(top - 41): the sum of 4096 is at most 2**53
// of these units. Squares are exact in float64 and are split at 2**(2 * top - 40).
template <bool SQUARED>
void add_up(const float* samples, size_t n, int top, int, Result& result) {
    const double start = SQUARED ? 1.5 * power(2 * top + 12) : 0;
    Doubles sum[ABREAST] = {}, low[ABREAST] = {}, high[ABREAST];
    for (int k = 0; k < ABREAST; ++k) high[k] = Doubles{} + start;
    for (size_t i = 0; i < n; i += STEP)
#pragma GCC unroll 4
        for (int k = 0; k < ABREAST; ++k) {
            HalfFloats narrow;
            std::memcpy(&narrow, samples + i + k * LANES, sizeof narrow);
            Doubles value = __builtin_convertvector(narrow, Doubles);
            sum[k] += value;
            if (SQUARED) {
                value *= value;
                cut(high[k], value);
                low[k] += value;
            }
        }
    result.sum.add(total(sum, 0));
    if (SQUARED) {
        result.squares.add(total(high, start));
        result.squares.add(total(low, 0));
    }
}

// For numbers from 2**(top - 28) up to 2**top, times 2**scale. Each lane takes the high part of up to 2**10 remainders
// of the lane before, the last all of it. A square is a float64 number plus an error 2**54 times smaller.
template <bool SQUARED>
void add_up(const double* samples, size_t n, int top, int scale, Result& result) {
    constexpr int NUMBER = ABREAST / 2;
    const double starts[6] = {1.5 * power(top + 12), 1.5 * power(top - 29), 1.5 * power(2 * top + 12),
                              1.5 * power(2 * top - 28), 1.5 * power(2 * top - 68), 1.5 * power(2 * top - 109)};
    Doubles lanes[6][NUMBER];
    for (int j = 0; j < 6; ++j)
        for (int k = 0; k < NUMBER; ++k) lanes[j][k] = Doubles{} + starts[j];
    for (size_t i = 0; i < n; i += NUMBER * LANES)
#pragma GCC unroll 2
        for (int k = 0; k < NUMBER; ++k) {
            Doubles value;
            std::memcpy(&value, samples + i + k * LANES, sizeof value);
            Doubles square = value * value, error = SQUARED ? square_error(value, square) : square;
            cut(lanes[0][k], value);
            cut(lanes[1][k], value);
            if (SQUARED) {
                cut(lanes[2][k], square);
                cut(lanes[3][k], square);
                cut(lanes[3][k], error);
                cut(lanes[4][k], square);
                cut(lanes[4][k], error);
                cut(lanes[5][k], error);
            }
        }
    for (int j = 0; j < 2; ++j) result.sum.add(total(lanes[j], starts[j]), -scale);
    if (SQUARED)
        for (int j = 2; j < 6; ++j) result.squares.add(total(lanes[j], starts[j]), -2 * scale);
}

}  // namespace
