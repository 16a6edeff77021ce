// Sums of floats: those of a block with close exponents together, for check_float.hpp.

#pragma once

#include <type_traits>

#include "check_buckets.hpp"

namespace {

// A finite sample is m * 2**(e - 1 + LEAST) with its sign, where e is its exponent, but at least 1.
template <class Bits, int FRACTION_, int LEAST_>
struct Format {
    typedef Bits Word;
    static constexpr int FRACTION = FRACTION_, LEAST = LEAST_;
    static constexpr Word SIGN = static_cast<Word>(Word(1) << (8 * sizeof(Word) - 1)), HIDDEN = Word(1) << FRACTION;
    static constexpr Word INFINITE = static_cast<Word>(SIGN - HIDDEN);

    static Word size(Word bits) { return bits & static_cast<Word>(SIGN - 1); }
    static Word integer(Word bits) { return (bits & (HIDDEN - 1)) | (HIDDEN & bits_if<Word>(size(bits) >= HIDDEN)); }
    // Both zeros have the same.
    static Word rank(Word bits) {
        const Word minus = bits_if<Word>(bits >= SIGN);
        return static_cast<Word>(SIGN + (size(bits) ^ minus) - minus);
    }
    // A number of at least 32 bits, negated if the sample is negative.
    template <class Number>
    static Number with_sign(Number number, Word bits) {
        const Number minus = -static_cast<Number>(bits >> (8 * sizeof(Word) - 1));
        return (number ^ minus) - minus;
    }
};

typedef Format<uint16_t, 10, -24> Half;
typedef Format<u32, 23, -149> Single;
typedef Format<u64, 52, -1074> Double;

// The largest magnitude below a limit.
template <class F>
typename F::Word largest_below(const typename F::Word* x, typename F::Word limit) {
    typedef typename F::Word Word;
    Word largest = 0;
    for (size_t i = 0; i < BLOCK; ++i) {
        const Word size = F::size(x[i]), counts = size & bits_if<Word>(size < limit);
        largest = counts > largest ? counts : largest;
    }
    return largest;
}

// Magnitudes of a block: the largest of all, the largest and the smallest finite one, zeros aside; the last is less by
// one. Without NaN, also the ranks of the lowest and the highest sample.
//
// As unsigned numbers, the bits of negative samples are above all others, in the order of magnitudes; as signed numbers
// those of the others are.
template <class F>
struct Sizes {
    typename F::Word most, largest, below_smallest, lowest, highest;

    explicit Sizes(const typename F::Word* x) {
        typedef typename F::Word Word;
        typedef std::make_signed_t<Word> Signed;
        Word last = 0, first = static_cast<Word>(-1), low = static_cast<Word>(-1);
        Signed upper = static_cast<Signed>(F::SIGN);
        for (size_t i = 0; i < BLOCK; ++i) {
            const Word bits = x[i], less = static_cast<Word>(F::size(bits) - 1);
            const Signed number = static_cast<Signed>(bits);
            last = bits > last ? bits : last;
            first = bits < first ? bits : first;
            upper = number > upper ? number : upper;
            low = less < low ? less : low;
        }
        const Word negative = last >= F::SIGN ? F::size(last) : Word(0);
        const Word positive = upper >= 0 ? static_cast<Word>(upper) : Word(0);
        most = largest = negative > positive ? negative : positive;
        if (special()) largest = largest_below<F>(x, F::INFINITE);
        below_smallest = low;
        lowest = F::rank(last >= F::SIGN ? last : first);
        highest = F::rank(upper >= 0 ? static_cast<Word>(upper) : first);
    }
    bool special() const { return most >= F::INFINITE; }
};

// The samples of a block with exponents from `base` on: magnitudes from `floor` on, below `ceiling`.
template <class F>
struct Window {
    typename F::Word base, floor, ceiling;

    Window(typename F::Word largest, typename F::Word ceiling, int width) : ceiling(ceiling) {
        const int top = static_cast<int>(largest >> F::FRACTION);
        base = static_cast<typename F::Word>(top - width > 1 ? top - width : 1);
        floor = base > 1 ? static_cast<typename F::Word>(base << F::FRACTION) : 1;
    }
    // Whether it has all samples.
    bool holds(const Sizes<F>& sizes) const { return !sizes.special() && sizes.below_smallest >= floor - 1; }
    bool has(typename F::Word size) const { return (size >= floor) & (size < ceiling); }
    // Bits of a sample outside become 0.
    template <bool EVERY>
    typename F::Word kept(typename F::Word bits) const {
        return EVERY ? bits : bits & bits_if<typename F::Word>(has(F::size(bits)));
    }
    // Of a sample that is kept.
    typename F::Word above_base(typename F::Word bits) const {
        const typename F::Word exponent = F::size(bits) >> F::FRACTION;
        return (exponent > base ? exponent : base) - base;
    }
    int power() const { return static_cast<int>(base) - 1 + F::LEAST; }
};

// Samples of up to 24 bits are shifted to at most 24 + 28 bits; squares of up to 48 bits to 48 + 2 * 20, two digits of 44.
template <class F, bool SQUARED>
struct Width {
    static constexpr int VALUE = SQUARED ? 20 : sizeof(typename F::Word) == 2 ? 29 : 28;
};
// Of 53 bits to two digits, of 32 bits and of up to 51, or for squares to three of 22.
template <bool SQUARED>
struct Width<Double, SQUARED> {
    static constexpr int VALUE = SQUARED ? 13 : 30;
};

// EVERY: the window holds all samples.
template <class F, bool SQUARED, bool EVERY>
void add_kept(const typename F::Word* x, Window<F> window, Sum& sum, Squares& squares) {
    constexpr int DIGIT = 44;
    constexpr u64 MASK = (u64(1) << DIGIT) - 1;
    u64 total = 0, low = 0, high = 0;
    for (size_t i = 0; i < BLOCK; ++i) {
        const typename F::Word bits = window.template kept<EVERY>(x[i]);
        const u32 size = F::integer(bits), integer = F::with_sign(size, bits);
        const u64 shift = window.above_base(bits);
        total += static_cast<u64>(static_cast<int64_t>(static_cast<int32_t>(integer))) << shift;
        if (SQUARED) {
            const u64 square = static_cast<u64>(size) * size;
            low += square << 2 * shift & MASK;
            high += square >> (DIGIT - 2 * shift);
        }
    }
    sum.add(static_cast<int64_t>(total), window.power());
    if (SQUARED) {
        squares.add(low, 2 * window.power());
        squares.add(high, 2 * window.power() + DIGIT);
    }
}

// Vectors, because GCC would narrow shifts to 32 bits and widen them again.
template <bool EVERY>
void add_doubles(const u64* x, Window<Double> window, Sum& sum) {
    constexpr int DIGIT = 32;
    constexpr u64 MASK = (u64(1) << DIGIT) - 1;
    Words low = {};
    Integers high = {};  // of negative numbers rounded down, so that the digit below is never negative
    for (size_t i = 0; i < BLOCK; i += sizeof low / sizeof *x) {
        Words bits;
        std::memcpy(&bits, x + i, sizeof bits);
        Words size = bits & (Double::SIGN - 1);
        if (!EVERY) {
            bits &= reinterpret_cast<Words>((size >= window.floor) & (size < window.ceiling));
            size = bits & (Double::SIGN - 1);
        }
        const Words exponent = size >> Double::FRACTION, shift = exponent > window.base ? exponent - window.base : Words{};
        const Words minus = reinterpret_cast<Words>(reinterpret_cast<Integers>(bits) >> 63);
        Words integer = (bits & (Double::HIDDEN - 1)) | (Double::HIDDEN & reinterpret_cast<Words>(size >= Double::HIDDEN));
        integer = (integer ^ minus) - minus;
        low += integer << shift & MASK;
        high += reinterpret_cast<Integers>(integer) >> reinterpret_cast<Integers>(DIGIT - shift);
    }
    for (size_t i = 0; i < sizeof low / sizeof *x; ++i) sum.add(low[i], window.power()), sum.add(high[i], window.power() + DIGIT);
}

template <bool EVERY>
void add_doubles_and_squares(const u64* x, Window<Double> window, Sum& sum, Squares& squares) {
    constexpr int DIGIT = 22;
    constexpr u64 MASK = (u64(1) << DIGIT) - 1;
    u64 low = 0, middle = 0, high = 0, aa = 0, ab = 0, ac = 0, bb = 0, bc = 0, cc = 0;
    for (size_t i = 0; i < BLOCK; ++i) {
        const u64 bits = window.kept<EVERY>(x[i]), integer = Double::integer(bits), shift = window.above_base(bits);
        const u64 a = integer << shift & MASK, b = integer >> (DIGIT - shift) & MASK, c = integer >> (2 * DIGIT - shift);
        low += Double::with_sign(a, bits), middle += Double::with_sign(b, bits), high += Double::with_sign(c, bits);
        aa += a * a, ab += a * b, ac += a * c, bb += b * b, bc += b * c, cc += c * c;
    }
    const int power = window.power();
    sum.add(static_cast<int64_t>(low), power);
    sum.add(static_cast<int64_t>(middle), power + DIGIT);
    sum.add(static_cast<int64_t>(high), power + 2 * DIGIT);
    squares.add(aa, 2 * power), squares.add(ab, 2 * power + DIGIT + 1);
    squares.add(bb + 2 * ac, 2 * (power + DIGIT)), squares.add(bc, 2 * power + 3 * DIGIT + 1);
    squares.add(cc, 2 * power + 4 * DIGIT);
}

// Samples below a magnitude, zeros aside, one by one.
template <class F>
void add_below(const typename F::Word* x, typename F::Word ceiling, bool squared, Sum& sum, Squares& squares) {
    typedef typename F::Word Word;
    const Word most = ceiling - 1;
    for (size_t start = 0; start < BLOCK; start += GROUP) {
        Word any = 0;
        for (size_t i = 0; i < GROUP; ++i) any |= static_cast<Word>(F::size(x[start + i]) - 1) < most;
        if (!any) continue;
        size_t found = 0;
        Word list[GROUP];
        for (size_t i = 0; i < GROUP; ++i) {
            list[found] = x[start + i];
            found += static_cast<Word>(F::size(x[start + i]) - 1) < most;
        }
        for (size_t i = 0; i < found; ++i) {
            const int exponent = static_cast<int>(F::size(list[i]) >> F::FRACTION);
            const int power = exponent - (exponent > 0) + F::LEAST;
            const u64 number = F::integer(list[i]);
            sum.add(static_cast<int64_t>(F::with_sign(number, list[i])), power);
            if (!squared) continue;
            const uint128 square = static_cast<uint128>(number) * number;
            if (F::FRACTION == Double::FRACTION)  // 106 bits: in two parts, lest sums overflow
                squares.add(static_cast<u64>(square >> 64), 2 * power + 64);
            squares.add(static_cast<u64>(square), 2 * power);
        }
    }
}

template <class F>
size_t number_in(const typename F::Word* x, Window<F> window) {
    typename F::Word number = 0;
    for (size_t i = 0; i < BLOCK; ++i) number += window.has(F::size(x[i]));
    return number;
}

template <class F, bool EVERY>
void add_window(const typename F::Word* x, Window<F> window, bool squared, Sum& sum, Squares& squares) {
    if constexpr (F::FRACTION == Double::FRACTION) {
        if (squared) add_doubles_and_squares<EVERY>(x, window, sum, squares);
        else add_doubles<EVERY>(x, window, sum);
    } else {
        if (squared) add_kept<F, true, EVERY>(x, window, sum, squares);
        else add_kept<F, false, EVERY>(x, window, sum, squares);
    }
}

// One window after another, as long as enough samples are in it.
template <class F>
void add_block(const typename F::Word* x, const Sizes<F>& sizes, bool squared, Sum& sum, Squares& squares) {
    const int width = squared ? Width<F, true>::VALUE : Width<F, false>::VALUE;
    Window<F> window(sizes.largest, F::INFINITE, width);
    if (window.holds(sizes)) return add_window<F, true>(x, window, squared, sum, squares);
    while (number_in(x, window) >= WORTHWHILE) {
        add_window<F, false>(x, window, squared, sum, squares);
        if (window.floor <= 1) return;
        window = Window<F>(largest_below<F>(x, window.floor), window.floor, width);
    }
    add_below<F>(x, window.ceiling, squared, sum, squares);
}

}  // namespace
