// Keys of samples, as keys.py describes them, and tables to count slots in, for cpu.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace {

using std::size_t;
typedef uint32_t u32;
typedef uint64_t u64;

constexpr size_t PIECE = 1024;  // samples at a time: their keys stay in the L1 cache

template <class U>
struct Unsigned {
    typedef U Key;
    static U of(U bits) { return bits; }
    static constexpr bool NAN_LAST = false;
};

template <class U>
struct Signed {
    typedef U Key;
    static U of(U bits) { return static_cast<U>(bits ^ (U(1) << (8 * sizeof(U) - 1))); }
    static constexpr bool NAN_LAST = false;
};

// INFINITE: the bits of infinity.
template <class U, class S, U INFINITE>
struct Float {
    typedef U Key;
    static constexpr bool NAN_LAST = true;
    static U of(U bits) {
        constexpr int TOP = 8 * sizeof(U) - 1;
        constexpr U HALF = static_cast<U>(U(1) << TOP);
        const U minus = static_cast<U>(static_cast<S>(bits) >> TOP), size = static_cast<U>(bits & (HALF - 1));
        const U key = static_cast<U>(((size ^ minus) - minus) + HALF);
        return size > INFINITE ? static_cast<U>(~U(0)) : key;
    }
};

typedef Float<uint16_t, int16_t, 0x7c00> Half;
typedef Float<u32, int32_t, 0x7f800000u> Single;
typedef Float<u64, int64_t, 0x7ff0000000000000ull> Double;

// Tables of u32 in which samples are counted in turn, `stride` apart.
struct Tables {
    u32* counters;
    size_t stride;
    int number;

    template <int N>
    void tally(const u32* slot, size_t n) const {
        size_t i = 0;
        for (; i + N <= n; i += N)
#pragma GCC unroll 8
            for (int k = 0; k < N; ++k) ++counters[k * stride + slot[i + k]];
        for (; i < n; ++i) ++counters[slot[i]];
    }

    void add(const u32* slot, size_t n) const {
        switch (number) {
            case 8: return tally<8>(slot, n);
            case 4: return tally<4>(slot, n);
            case 2: return tally<2>(slot, n);
            default: return tally<1>(slot, n);
        }
    }
};

template <class Kind, class Take>
void in_pieces(const void* data, size_t n, Take take) {
    typedef typename Kind::Key Key;
    const Key* samples = static_cast<const Key*>(data);
    Key keys[PIECE];
    for (size_t start = 0; start < n; start += PIECE) {
        const size_t length = n - start < PIECE ? n - start : PIECE;
        for (size_t i = 0; i < length; ++i) keys[i] = Kind::of(samples[start + i]);
        take(keys, length);
    }
}

}  // namespace
