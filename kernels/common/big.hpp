// Integers of many words, and ratios of them and their square roots, rounded once.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

typedef uint64_t u64;
__extension__ typedef unsigned __int128 uint128;

// (-1)**negative * sum of word[i] * 2**(64 * (low + i)); neither the lowest nor the highest word is 0, 0 has none.
struct Big {
    static constexpr int MOST = 256;
    int low = 0, n = 0;
    bool negative = false;
    u64 word[MOST];

    Big() {}
    explicit Big(u64 number) { word[0] = number, n = number != 0; }

    // Two's complement, the lowest word first, which is worth 2**(64 * start).
    Big(const int64_t* words, int number, int start) {
        low = start, n = number;
        negative = number && words[number - 1] < 0;
        u64 carry = negative;
        for (int i = 0; i < number; ++i) {
            const u64 part = static_cast<u64>(words[i]);
            word[i] = negative ? ~part + carry : part;
            carry = carry && !word[i];
        }
        trim();
    }

    void trim() {
        while (n && !word[n - 1]) --n;
        int zeros = 0;
        while (zeros < n && !word[zeros]) ++zeros;
        if (zeros) std::memmove(word, word + zeros, sizeof(u64) * static_cast<size_t>(n -= zeros));
        low = n ? low + zeros : 0;
        negative = n && negative;
    }

    u64 at(int place) const { return place >= low && place < low + n ? word[place - low] : 0; }
};

inline void multiply(const Big& a, const Big& b, Big& product) {
    product.low = a.low + b.low, product.n = a.n && b.n ? a.n + b.n : 0, product.negative = a.negative != b.negative;
    for (int i = 0; i < product.n; ++i) product.word[i] = 0;
    for (int i = 0; product.n && i < a.n; ++i) {
        u64 carry = 0;
        for (int j = 0; j < b.n; ++j) {
            const uint128 sum = static_cast<uint128>(a.word[i]) * b.word[j] + product.word[i + j] + carry;
            product.word[i + j] = static_cast<u64>(sum);
            carry = static_cast<u64>(sum >> 64);
        }
        product.word[i + b.n] = carry;
    }
    product.trim();
}

// Sign of |a| - |b|.
inline int compare(const Big& a, const Big& b) {
    if (!a.n || !b.n) return (a.n > 0) - (b.n > 0);
    const int top = a.low + a.n, least = a.low < b.low ? a.low : b.low;
    if (top != b.low + b.n) return top > b.low + b.n ? 1 : -1;
    for (int i = top - 1; i >= least; --i)
        if (a.at(i) != b.at(i)) return a.at(i) > b.at(i) ? 1 : -1;
    return 0;
}

// a + b, or a - b if `minus`.
inline void add(const Big& a, const Big& b, bool minus, Big& sum) {
    const bool other = b.negative != minus;
    if (!a.n || !b.n) {
        sum = a.n ? a : b;
        if (!a.n) sum.negative = b.n && other;
        return;
    }
    const bool swap = compare(a, b) < 0, apart = a.negative != other;
    const Big &more = swap ? b : a, &less = swap ? a : b;
    sum.negative = swap ? other : a.negative;
    sum.low = a.low < b.low ? a.low : b.low;
    const int top = more.low + more.n + 1;
    sum.n = top - sum.low;
    u64 carry = 0;
    for (int i = sum.low; i < top; ++i) {
        const u64 x = more.at(i), y = less.at(i);
        if (apart) {
            sum.word[i - sum.low] = x - y - carry;
            carry = x < y || (x == y && carry);
        } else {
            const uint128 both = static_cast<uint128>(x) + y + carry;
            sum.word[i - sum.low] = static_cast<u64>(both);
            carry = static_cast<u64>(both >> 64);
        }
    }
    sum.trim();
}

// number * 2**(power - 1075).
inline Big shifted(u64 number, int power) {
    const int place = power - 1075 + 64 * 32, shift = place % 64;
    Big value;
    value.low = place / 64 - 32, value.n = 2;
    value.word[0] = number << shift, value.word[1] = shift ? number >> (64 - shift) : 0;
    value.trim();
    return value;
}

// The finite float64 with these bits, of a positive one, and the number halfway to the next one.
inline u64 mantissa(u64 bits) { return (bits & ((u64(1) << 52) - 1)) | static_cast<u64>(bits >> 52 != 0) << 52; }
inline int exponent(u64 bits) { return bits >> 52 ? static_cast<int>(bits >> 52) : 1; }
inline Big of_float(u64 bits) { return shifted(mantissa(bits), exponent(bits)); }
inline Big halfway(u64 bits) { return shifted(2 * mantissa(bits) + 1, exponent(bits) - 1); }

inline double leading(const Big& number) {
    return static_cast<double>(number.word[number.n - 1]) * 0x1p64 +
           (number.n > 1 ? static_cast<double>(number.word[number.n - 2]) : 0.0);
}

// |n / d|, or its square root, to nearest, ties to even; infinite beyond the range of float64. An estimate is compared with
// what lies halfway to its neighbours, exactly, until it is the nearest.
inline double rounded(const Big& n, const Big& d, bool root) {
    constexpr u64 INFINITE = u64(0x7ff) << 52;
    if (!n.n) return 0;
    const int places = 64 * (n.low + n.n - d.low - d.n);
    const double ratio = leading(n) / leading(d);
    const double estimate = root ? std::ldexp(std::sqrt(ratio), places / 2) : std::ldexp(ratio, places);
    u64 bits;
    std::memcpy(&bits, &estimate, sizeof bits);
    Big square, product;
    const auto side = [&](u64 below) {
        const Big between = halfway(below);
        if (root) multiply(between, between, square);
        multiply(root ? square : between, d, product);
        return compare(n, product);
    };
    bool up = false;
    for (int sign; bits < INFINITE && ((sign = side(bits)) > 0 || (sign == 0 && bits & 1)); ++bits) up = true;
    for (int sign; !up && bits && ((sign = side(bits - 1)) < 0 || (sign == 0 && bits & 1)); --bits) continue;
    double nearest;
    std::memcpy(&nearest, &bits, sizeof nearest);
    return nearest;
}

}  // namespace
