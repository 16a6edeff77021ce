// Exact sums of third and fourth powers, for cpu_powers.py.
//
// A finite float is an integer times a power of two. Cubes and fourth powers of these integers, which have up to 159 and
// 212 bits, are added in the bucket of the sample's sign and exponent, one 64-bit word of them at a time to a sum of 128
// bits: no carry is passed on before the end. Integers of 64 bits go to two buckets, by sign, as magnitudes. Shorter ones are
// added as they are, in 128 bits, those of one and two bytes in 64. Most float32 numbers go through lanes.

#include "cpu_powers_lanes.hpp"

namespace {

typedef uint64_t u64;

constexpr int CUBE_BITS = 3264, FOURTH_BITS = 4352, CUBE_WORDS = 100, FOURTH_WORDS = 133;  // as in powers.py

// A number in two's complement, in units of 2**-BITS.
template <int WORDS, int BITS>
struct Number {
    u64* words;

    explicit Number(int64_t* out) : words(reinterpret_cast<u64*>(out)) {
        for (int i = 0; i < WORDS; ++i) words[i] = 0;
    }

    void start_with(const Accumulator<WORDS, BITS>& sum) { sum.words(reinterpret_cast<int64_t*>(words)); }

    // Adds value * 2**power, or subtracts it; it is a multiple of the unit.
    void add(u128 value, int power, bool negative) {
        const int place = BITS + power, shift = place % 64;
        const u64 low = static_cast<u64>(value), high = static_cast<u64>(value >> 64);
        const u64 parts[3] = {low << shift, shift ? high << shift | low >> (64 - shift) : high,
                              shift ? high >> (64 - shift) : 0};
        u64 carry = 0;
        for (int i = place / 64, k = 0; i < WORDS && (k < 3 || carry); ++i, ++k) {
            const u64 part = k < 3 ? parts[k] : 0, before = words[i];
            if (negative) {
                words[i] = before - part - carry;
                carry = before < part || (before == part && carry);
            } else {
                words[i] = before + part + carry;
                carry = words[i] < before || (words[i] == before && carry);
            }
        }
    }
};

typedef Number<CUBE_WORDS, CUBE_BITS> Cubes;
typedef Number<FOURTH_WORDS, FOURTH_BITS> Fourths;

struct Bucket {
    u128 cube[3], fourth[4];  // sums of words

    void add(u64 size) {
        const u128 square = static_cast<u128>(size) * size;
        const u64 low = static_cast<u64>(square), high = static_cast<u64>(square >> 64);
        const u128 a = static_cast<u128>(low) * size, b = static_cast<u128>(high) * size + (a >> 64);
        cube[0] += static_cast<u64>(a);
        cube[1] += static_cast<u64>(b);
        cube[2] += static_cast<u64>(b >> 64);
        const u128 c = static_cast<u128>(low) * low, d = static_cast<u128>(low) * high, e = static_cast<u128>(high) * high;
        fourth[0] += static_cast<u64>(c);
        // The middle product counts twice.
        fourth[1] += static_cast<u128>(static_cast<u64>(c >> 64)) + static_cast<u64>(d) + static_cast<u64>(d);
        fourth[2] += static_cast<u128>(static_cast<u64>(d >> 64)) + static_cast<u64>(d >> 64) + static_cast<u64>(e);
        fourth[3] += static_cast<u64>(e >> 64);
    }

    // The same of a number below 2**24; the sum of up to 2**29 fourth powers stays below 2**125.
    void add_short(u64 size) {
        const u64 square = size * size;
        cube[0] += static_cast<u128>(square) * size;
        fourth[0] += static_cast<u128>(square) * square;
    }

    void finish(int power, bool negative, Cubes& cubes, Fourths& fourths) const {
        for (int i = 0; i < 3; ++i)
            if (cube[i]) cubes.add(cube[i], 3 * power + 64 * i, negative);
        for (int i = 0; i < 4; ++i)
            if (fourth[i]) fourths.add(fourth[i], 4 * power + 64 * i, false);
    }
};

template <class Bits>
void add_float(Bits sample, int fraction, Bucket* buckets) {
    const Bits hidden = static_cast<Bits>(Bits(1) << fraction), infinite = static_cast<Bits>(Bits(-1) >> 1) / hidden;
    const Bits at = sample >> fraction;
    const u64 size = (sample & (hidden - 1)) | (at & infinite ? hidden : Bits(0));
    if constexpr (sizeof(Bits) == 8) buckets[at].add(size);
    else buckets[at].add_short(size);
}

// `above` bits of exponent; `least` is that of the unit.
void finish_floats(const Bucket* buckets, int above, int least, Cubes& cubes, Fourths& fourths) {
    const int infinite = (1 << above) - 1;
    for (int at = 0; at < 2 << above; ++at) {
        const int exponent = at & infinite;
        if (exponent == infinite) continue;  // NaN and infinities
        buckets[at].finish((exponent ? exponent : 1) - 1 + least, at >> above, cubes, fourths);
    }
}

template <class Bits>
void sum_floats(const void* data, size_t n, int fraction, int least, Bucket* buckets, Cubes& cubes, Fourths& fourths) {
    const Bits* samples = static_cast<const Bits*>(data);
    for (size_t i = 0; i < n; ++i) add_float(samples[i], fraction, buckets);
    finish_floats(buckets, 8 * static_cast<int>(sizeof(Bits)) - 1 - fraction, least, cubes, fourths);
}

void sum_singles(const void* data, size_t n, Bucket* buckets, Cubes& cubes, Fourths& fourths) {
    const uint32_t* samples = static_cast<const uint32_t*>(data);
    Accumulator<CUBE_WORDS, CUBE_BITS> near_cubes;
    Accumulator<FOURTH_WORDS, FOURTH_BITS> near_fourths;
    for (size_t start = 0; start < n; start += BLOCK)
        add_powers(samples + start, n - start < BLOCK ? n - start : BLOCK, near_cubes, near_fourths,
                   [&](uint32_t bits) { add_float(bits, MANTISSA, buckets); });
    cubes.start_with(near_cubes), fourths.start_with(near_fourths);
    finish_floats(buckets, 8, -149, cubes, fourths);
}

template <class T>
void sum_long_integers(const void* data, size_t n, Bucket* buckets, Cubes& cubes, Fourths& fourths) {
    const T* samples = static_cast<const T*>(data);
    for (size_t i = 0; i < n; ++i) {
        const bool negative = samples[i] < 0;
        const u64 bits = static_cast<u64>(samples[i]);
        buckets[negative].add(negative ? -bits : bits);
    }
    for (int negative = 0; negative < 2; ++negative) buckets[negative].finish(0, negative, cubes, fourths);
}

// Of 32 bits: the sum of up to 2**29 cubes stays below 2**125.
template <class T>
void sum_integers(const void* data, size_t n, Cubes& cubes, Fourths& fourths) {
    const T* samples = static_cast<const T*>(data);
    __int128 third = 0;
    u128 low = 0, high = 0;
    for (size_t i = 0; i < n; ++i) {
        const int64_t x = samples[i];
        const u64 square = static_cast<u64>(x) * static_cast<u64>(x);
        const u128 power = static_cast<u128>(square) * square;
        third += static_cast<__int128>(square) * x;
        low += static_cast<u64>(power);
        high += static_cast<u64>(power >> 64);
    }
    cubes.add(static_cast<u128>(third < 0 ? -third : third), 0, third < 0);
    fourths.add(low, 0, false);
    fourths.add(high, 64, false);
}

template <class T>
void sum_small_integers(const void* data, size_t n, Cubes& cubes, Fourths& fourths) {
    const T* samples = static_cast<const T*>(data);
    constexpr size_t BLOCK = 1 << 14;  // cubes below 2**48 add up to 2**62
    __int128 third = 0;
    u128 fourth = 0;
    for (size_t start = 0; start < n; start += BLOCK) {
        const size_t length = n - start < BLOCK ? n - start : BLOCK;
        int64_t cube = 0;
        u64 low = 0, high = 0;
        for (size_t i = start; i < start + length; ++i) {
            const int64_t x = samples[i], square = x * x;
            const u64 power = static_cast<u64>(square) * static_cast<u64>(square);
            cube += square * x;
            low += static_cast<uint32_t>(power);
            high += power >> 32;
        }
        third += cube;
        fourth += (static_cast<u128>(high) << 32) + low;
    }
    cubes.add(static_cast<u128>(third < 0 ? -third : third), 0, third < 0);
    fourths.add(fourth, 0, false);
}

}  // namespace

// Types are numbered as in partial.py.
enum Type { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64 };

extern "C" {

size_t buckets_bytes(int type) {
    const size_t number = type == FLOAT64 ? 4096 : type == FLOAT32 ? 512 : type == FLOAT16 ? 64 : 2;
    return number * sizeof(Bucket);
}

// Of at most 2**29 samples; the buckets are zeros. The words of the sum of cubes are followed by those of fourth powers.
void sum_powers(int type, const void* samples, size_t n, void* zeros, int64_t* words) {
    Bucket* buckets = static_cast<Bucket*>(zeros);
    Cubes cubes(words);
    Fourths fourths(words + CUBE_WORDS);
    switch (type) {
        case INT8: sum_small_integers<int8_t>(samples, n, cubes, fourths); break;
        case UINT8: sum_small_integers<uint8_t>(samples, n, cubes, fourths); break;
        case INT16: sum_small_integers<int16_t>(samples, n, cubes, fourths); break;
        case UINT16: sum_small_integers<uint16_t>(samples, n, cubes, fourths); break;
        case INT32: sum_integers<int32_t>(samples, n, cubes, fourths); break;
        case UINT32: sum_integers<uint32_t>(samples, n, cubes, fourths); break;
        case INT64: sum_long_integers<int64_t>(samples, n, buckets, cubes, fourths); break;
        case UINT64: sum_long_integers<u64>(samples, n, buckets, cubes, fourths); break;
        case FLOAT16: sum_floats<uint16_t>(samples, n, 10, -24, buckets, cubes, fourths); break;
        case FLOAT32: sum_singles(samples, n, buckets, cubes, fourths); break;
        case FLOAT64: sum_floats<u64>(samples, n, 52, -1074, buckets, cubes, fourths); break;
    }
}
}
