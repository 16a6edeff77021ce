// Sums and products of floats as integers, rounded once; their order.
//
// Floats are taken apart into sign, significand and place. Sums and products of significands are integers, exact or
// with their last bit set in place of the bits below it, and are rounded once, to nearest, ties to even:
// docs/map.md proves that this gives the bits of IEEE 754.

#pragma once

#include <cstdint>

namespace {

#define INLINE inline __attribute__((always_inline))  // so that loops become vector code

// Integers for counting the bits of a word. Vector units shift words by words of the same size.
template <class Wide> struct Counter { typedef int64_t type; };
template <> struct Counter<uint32_t> { typedef int32_t type; };

// Zeros above the first 1 of a number that is not 0. The halves of wide numbers, because vector units count in 32 bits.
#if defined(__AVX2__) && !defined(__AVX512CD__)  // vectors that cannot count them, but compare and shift
INLINE int32_t zeros_above(uint32_t x) {
    const int32_t of_16 = x >> 16 ? 0 : 16;
    x <<= of_16;
    const int32_t of_8 = x >> 24 ? 0 : 8;
    x <<= of_8;
    const int32_t of_4 = x >> 28 ? 0 : 4;
    x <<= of_4;
    const int32_t of_2 = x >> 30 ? 0 : 2;
    x <<= of_2;
    return of_16 + of_8 + of_4 + of_2 + (x >> 31 ? 0 : 1);
}
#else
INLINE int32_t zeros_above(uint32_t x) { return __builtin_clz(x); }
#endif
INLINE int64_t zeros_above(uint64_t x) {
    const uint32_t upper = static_cast<uint32_t>(x >> 32), lower = static_cast<uint32_t>(x);
    return int64_t(zeros_above(upper ? upper : lower)) + (upper ? 0 : 32);
}

template <class T>
INLINE T least(T a, T b) { return a < b ? a : b; }
template <class T>
INLINE T largest(T a, T b) { return a > b ? a : b; }

// An IEEE 754 format: word, bits of the fraction, and words for sums and products of two significands.
template <class Word, int BITS, class SumWord, class ProductWord>
struct Format {
    typedef Word Bits;
    typedef SumWord Sum;
    typedef ProductWord Product;
    static constexpr int FRACTION = BITS, WIDTH = FRACTION + 1;  // bits of a significand
    static constexpr Word SIGN = Word(Word(1) << (8 * sizeof(Word) - 1)), HIDDEN = Word(Word(1) << FRACTION);
    static constexpr Word INFINITE = Word(SIGN - HIDDEN), NOT_A_NUMBER = Word(INFINITE | HIDDEN >> 1);
    static constexpr int SPECIAL = INFINITE >> FRACTION;    // exponent of infinities and NaN
    static constexpr int ONE = SPECIAL / 2 + FRACTION - 1;  // 1.0 is 2**ONE of the smallest positive number

    // Without its sign, a finite number is `significand` * 2**`place` times the smallest positive number.
    static Word significand(Word size) { return Word((size & (HIDDEN - 1)) | (size >= HIDDEN ? HIDDEN : 0)); }
    static int place(Word size) { return static_cast<int>(size >> FRACTION) - (size >= HIDDEN); }
};

typedef Format<uint16_t, 10, uint32_t, uint32_t> Half;
typedef Format<uint32_t, 23, uint32_t, uint64_t> Single;
typedef Format<uint64_t, 52, uint64_t, uint64_t> Double;

// Bits, without the sign, of `integer` * 2**`place` times the smallest positive number of the format, rounded. The two
// highest bits of `integer` are 0.
template <class F, class Wide>
INLINE typename F::Bits rounded(Wide integer, typename Counter<Wide>::type place) {
    typedef typename Counter<Wide>::type Count;
    typedef typename F::Sum Sum;
    constexpr Count BITS = 8 * sizeof(Wide), DROP = BITS - 2 - F::WIDTH;
    static_assert(DROP > 0, "no room for a significand");
    // The first 1 goes to the third bit from above: below it is room for a significand and for what is rounded off, and
    // where all of it is below half of the smallest number, BITS - 1 are dropped and nothing remains.
    const Count up = zeros_above(integer | 1) - 2;
    const Wide high = integer << up;
    const Count off = least(largest(DROP, up - place), Count(BITS - 1)) - 1;
    const Wide doubled = high >> off, more = (doubled << off) != high;  // one bit more than kept; whether others are 1
    const Wide kept = (doubled >> 1) + (doubled & (doubled >> 1 | more) & 1);
    // A significand that has its hidden bit adds 1 to the exponent; one that was rounded up to a power of two, 2.
    const Count exponent = least(largest(place - up + DROP, Count(0)), Count(F::SPECIAL));
    const Sum size = (static_cast<Sum>(exponent) << F::FRACTION) + static_cast<Sum>(kept);
    return integer ? size < F::INFINITE ? static_cast<typename F::Bits>(size) : F::INFINITE : 0;
}

template <class F>
INLINE typename F::Bits float_sum(typename F::Bits a, typename F::Bits b) {
    typedef typename F::Bits Bits;
    typedef typename F::Sum Sum;
    typedef typename Counter<Sum>::type Count;
    constexpr Count GUARD = 3;  // bits below the larger number's last
    static_assert(F::WIDTH + GUARD + 1 <= static_cast<int>(8 * sizeof(Sum)) - 2, "no room for a sum");
    const Bits size_a = a & Bits(~F::SIGN), size_b = b & Bits(~F::SIGN);
    const Bits large = size_a < size_b ? size_b : size_a, small = size_a < size_b ? size_a : size_b;
    const Bits sign = (size_a < size_b ? b : a) & F::SIGN;
    const bool opposite = ((a ^ b) & F::SIGN) != 0;
    const Sum upper = Sum(F::significand(large)) << GUARD, lower = Sum(F::significand(small)) << GUARD;
    const Count apart = least(Count(F::place(large)) - F::place(small), Count(F::WIDTH + GUARD));
    const Sum shifted = lower >> apart, sticky = (shifted << apart) != lower;
    const Sum term = shifted | sticky;
    const Sum sum = opposite ? upper - term : upper + term;
    const Bits size = rounded<F>(sum, Count(F::place(large)) - GUARD);
    const Bits finite = size | ((sum != 0) | !opposite ? sign : Bits(0));  // x - x is +0, -0 + -0 is -0
    const bool nan = (large > F::INFINITE) | (opposite & (small == F::INFINITE));
    const Bits special = nan ? F::NOT_A_NUMBER : sign | F::INFINITE;
    return large < F::INFINITE ? finite : special;
}

// The product of two significands of 53 bits, their hidden bits set: its highest 62 bits, the last one odd where others
// follow. Digits of 27 bits, because vector units multiply no wider numbers than 32 bits.
INLINE uint64_t highest_bits_of_product(uint64_t a, uint64_t b) {
    constexpr uint64_t DIGIT = (uint64_t(1) << 27) - 1, LOWER = (uint64_t(1) << 54) - 1;
    const uint64_t crossed = (a >> 27) * (b & DIGIT) + (a & DIGIT) * (b >> 27);
    const uint64_t sum = (a & DIGIT) * (b & DIGIT) + ((crossed & DIGIT) << 27), lower = sum & LOWER;
    const uint64_t upper = (a >> 27) * (b >> 27) + (crossed >> 27) + (sum >> 54);
    const uint64_t kept = lower >> 44, sticky = kept << 44 != lower;
    return upper << 10 | kept | sticky;
}

template <class F>
INLINE typename F::Bits float_product(typename F::Bits a, typename F::Bits b) {
    typedef typename F::Bits Bits;
    typedef typename F::Product Product;
    typedef typename Counter<Product>::type Count;
    const Bits size_a = a & Bits(~F::SIGN), size_b = b & Bits(~F::SIGN);
    const Bits large = size_a < size_b ? size_b : size_a, small = size_a < size_b ? size_a : size_b;
    const Bits sign = (a ^ b) & F::SIGN;
    Product x = F::significand(large), y = F::significand(small), product;
    Count place = Count(F::place(large)) + F::place(small) - F::ONE;
    if constexpr (2 * F::WIDTH <= static_cast<int>(8 * sizeof(Product)) - 2) {
        product = x * y;
    } else {
        const Count up_x = zeros_above(x | 1) - (64 - F::WIDTH), up_y = zeros_above(y | 1) - (64 - F::WIDTH);
        product = highest_bits_of_product(x << up_x, y << up_y);
        place += 44 - up_x - up_y;
    }
    const Bits finite = sign | rounded<F>(product, place);
    const Bits special = (large > F::INFINITE) | !small ? F::NOT_A_NUMBER : sign | F::INFINITE;
    return large < F::INFINITE ? finite : special;
}

template <class F>
inline bool is_nan(typename F::Bits x) {
    return (x & typename F::Bits(~F::SIGN)) > F::INFINITE;
}

// Keys in the order of the numbers, -0 before +0.
template <class F>
inline typename F::Bits float_key(typename F::Bits x) {
    return static_cast<typename F::Bits>(x & F::SIGN ? ~x : x | F::SIGN);
}

}  // namespace
