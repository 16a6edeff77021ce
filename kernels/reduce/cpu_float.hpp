// Floats: which numbers of a block go through the lanes, and which are added to the accumulators one by one.

#pragma once

#include "cpu_lanes.hpp"

namespace {

constexpr int HALF_TOP = 16;  // float16 numbers are below 2**16, and multiples of 2**-24

template <class T>
struct Float;

template <>
struct Float<float> {
    typedef uint32_t Bits;
    typedef int32_t Signed;
    static constexpr Bits INFINITE = 0x7f800000, SIGN = 0x80000000;
    static constexpr int MANTISSA = 23, BIAS = 126, WINDOW = 18;
    static constexpr int TOPS[2] = {-200, 200};  // holds all float32 magnitudes
};

template <>
struct Float<double> {
    typedef uint64_t Bits;
    typedef int64_t Signed;
    static constexpr Bits INFINITE = 0x7ff0000000000000, SIGN = 0x8000000000000000;
    static constexpr int MANTISSA = 52, BIAS = 1022, WINDOW = 28;
    static constexpr int TOPS[2] = {-400, 500};  // squares and sums between these neither over- nor underflow
};

// Integers in the order of the floats; -0.0 comes right before 0.0.
template <class T>
typename Float<T>::Signed order(T value) {
    typedef typename Float<T>::Signed Signed;
    typedef typename Float<T>::Bits Bits;
    Signed bits = bits_as<Signed>(value);
    return bits ^ static_cast<Signed>(static_cast<Bits>(bits >> (8 * sizeof(T) - 1)) >> 1);
}

template <class T>
T of_order(typename Float<T>::Signed key) {
    typedef typename Float<T>::Signed Signed;
    typedef typename Float<T>::Bits Bits;
    return bits_as<T>(key ^ static_cast<Signed>(static_cast<Bits>(key >> (8 * sizeof(T) - 1)) >> 1));
}

template <class T>
struct Seen {
    typename Float<T>::Signed lower, upper;  // ordered like the numbers
    typename Float<T>::Bits largest, smallest;  // magnitudes; `smallest` excludes zeros and is less by one
};

template <class T>
Seen<T> scan(const T* samples, size_t n) {
    typedef typename Float<T>::Signed Signed;
    typedef typename Float<T>::Bits Bits;
    Signed lower = order(samples[0]), upper = lower;
    Bits largest = 0, smallest = ~Bits(0);
    for (size_t i = 0; i < n; ++i) {
        Signed key = order(samples[i]);
        Bits size = bits_as<Bits>(samples[i]) & ~Float<T>::SIGN, less = size - 1;
        lower = key < lower ? key : lower;
        upper = key > upper ? key : upper;
        largest = size > largest ? size : largest;
        smallest = less < smallest ? less : smallest;
    }
    return {lower, upper, largest, smallest};
}

// The same for samples with NaN, which is skipped, and infinities, which do not count as magnitudes.
template <class T>
Seen<T> look_closely(const T* samples, size_t n) {
    typedef typename Float<T>::Signed Signed;
    typedef typename Float<T>::Bits Bits;
    constexpr Bits INFINITE = Float<T>::INFINITE;
    Signed lower = INFINITE, upper = order(bits_as<T>(INFINITE | Float<T>::SIGN));
    Bits largest = 0;
    for (size_t i = 0; i < n; ++i) {
        Signed key = order(samples[i]);
        Bits size = bits_as<Bits>(samples[i]) & ~Float<T>::SIGN, finite = size < INFINITE ? size : 0;
        Signed low = size <= INFINITE ? key : lower, high = size <= INFINITE ? key : upper;
        lower = low < lower ? low : lower;
        upper = high > upper ? high : upper;
        largest = finite > largest ? finite : largest;
    }
    return {lower, upper, largest, 0};
}

// Copies a block, scaled and padded with zeros, with zeros in place of what the lanes cannot sum: infinities and NaN
// are counted, numbers below `small` are added to the accumulators.
template <class T>
void scale_down(const T* samples, size_t n, size_t start, typename Float<T>::Bits small, int scale, T* copy, Result& result) {
    typedef typename Float<T>::Bits Bits;
    constexpr Bits INFINITE = Float<T>::INFINITE;
    const T factor = static_cast<T>(power(scale));
    for (size_t i = 0; i < n; ++i) {
        Bits size = bits_as<Bits>(samples[i]) & ~Float<T>::SIGN;
        T value = samples[i] * factor;
        copy[i] = size >= small && size < INFINITE ? value : 0;
    }
    for (size_t i = n; i < BLOCK; ++i) copy[i] = 0;
    for (size_t i = 0; i < n; ++i) {
        Bits size = bits_as<Bits>(samples[i]) & ~Float<T>::SIGN;
        if (size && size < small) {
            if (result.parts & SUM) result.sum.add(samples[i]);
            if (result.parts & SQUARES) result.squares.add_square(samples[i]);
        } else if (size > INFINITE) {
            if (!result.partial[NAN_COUNT]++ && result.parts & EXTREMES)
                result.partial[FIRST_NAN] = 2 * static_cast<int64_t>(start + i);
        } else if (size == INFINITE) {
            ++result.partial[samples[i] > 0 ? POSITIVE : NEGATIVE];
        }
    }
}

// `everything`: all samples of this type are multiples of 2**(top - 41), and their squares multiples of its square.
template <class T>
void reduce_block(const T* samples, size_t n, size_t start, bool everything, Extremes<T>& extremes, Result& result) {
    Seen<T> seen = scan(samples, n);
    const bool special = seen.largest >= Float<T>::INFINITE;
    const int64_t nan_before = result.partial[NAN_COUNT];
    if (special) seen = look_closely(samples, n);
    const int top = everything ? HALF_TOP : static_cast<int>(seen.largest >> Float<T>::MANTISSA) - Float<T>::BIAS;
    const int scale = top < Float<T>::TOPS[0] ? 800 : top > Float<T>::TOPS[1] ? -600 : 0;
    const double least = everything ? 0 : power(top - Float<T>::WINDOW);
    const typename Float<T>::Bits small = bits_as<typename Float<T>::Bits>(static_cast<T>(least));
    T copy[BLOCK];
    const T* numbers = samples;
    size_t length = n;
    if (special || (result.parts & SUM && (scale || n % STEP || (!everything && seen.smallest < small - 1)))) {
        scale_down(samples, n, start, small, scale, copy, result);
        numbers = copy;
        length = (n + STEP - 1) / STEP * STEP;
    }
    if (result.parts & SQUARES)
        add_up<true>(numbers, length, top + scale, scale, result);
    else if (result.parts & SUM)
        add_up<false>(numbers, length, top + scale, scale, result);
    if (result.parts & EXTREMES && result.partial[NAN_COUNT] - nan_before < static_cast<int64_t>(n))
        extremes.meet(samples, n, start, of_order<T>(seen.lower), of_order<T>(seen.upper));
}

// As to_key in partial.py; a position also says whether the sample is -0.0.
int64_t key_of(double value) { return order(value + 0.0); }
template <class Bits>
int64_t place_of(size_t index, Bits sample) {
    return 2 * static_cast<int64_t>(index) + (sample == static_cast<Bits>(Bits(1) << (8 * sizeof(Bits) - 1)));
}

template <class T, class Bits>
void place_extremes(const Bits* samples, const Extremes<T>& extremes, Result& result) {
    if (!extremes.known) return;
    result.partial[MIN_AT] = place_of(extremes.least_at, samples[extremes.least_at]);
    result.partial[MAX_AT] = place_of(extremes.greatest_at, samples[extremes.greatest_at]);
    result.partial[MIN_KEY] = key_of(static_cast<double>(extremes.least));
    result.partial[MAX_KEY] = key_of(static_cast<double>(extremes.greatest));
}

template <class T>
void reduce_floats(const void* data, size_t n, Result& result) {
    const T* samples = static_cast<const T*>(data);
    Extremes<T> extremes;
    for (size_t start = 0; start < n; start += BLOCK)
        reduce_block(samples + start, n - start < BLOCK ? n - start : BLOCK, start, false, extremes, result);
    place_extremes(static_cast<const typename Float<T>::Bits*>(data), extremes, result);
}

// float16 to float32: multiplying by 2**112 rebiases the exponent, for subnormal numbers, too.
float widened(uint16_t half) {
    uint32_t size = half & 0x7fffu;
    uint32_t bits = bits_as<uint32_t>(bits_as<float>(size << 13) * static_cast<float>(0x1p112));
    bits = size >= 0x7c00 ? bits | Float<float>::INFINITE : bits;
    return bits_as<float>(bits | (half & 0x8000u) << 16);
}

void reduce_halves(const void* data, size_t n, Result& result) {
    const uint16_t* samples = static_cast<const uint16_t*>(data);
    Extremes<float> extremes;
    for (size_t start = 0; start < n; start += BLOCK) {
        float wide[BLOCK];
        size_t length = n - start < BLOCK ? n - start : BLOCK;
        for (size_t i = 0; i < length; ++i) wide[i] = widened(samples[start + i]);
        reduce_block(wide, length, start, true, extremes, result);
    }
    place_extremes(samples, extremes, result);
}

}  // namespace
