// Floats as integers times a power of two, for check.cpp.

#pragma once

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

// Magnitudes of a block: the largest of all, the largest and the smallest finite one, zeros aside; the last is less by
// one.
template <class F>
struct Sizes {
    typename F::Word most = 0, largest = 0, below_smallest = static_cast<typename F::Word>(-1);

    explicit Sizes(const typename F::Word* x) {
        typedef typename F::Word Word;
        Word top = 0, high = 0, low = static_cast<Word>(-1);
        for (size_t i = 0; i < BLOCK; ++i) {
            const Word size = F::size(x[i]), finite = size & bits_if<Word>(size < F::INFINITE);
            const Word less = static_cast<Word>(size - 1);
            top = size > top ? size : top;
            high = finite > high ? finite : high;
            low = less < low ? less : low;
        }
        most = top, largest = high, below_smallest = low;
    }
    bool special() const { return most >= F::INFINITE; }
};

template <class F>
void count_special(const typename F::Word* x, size_t start, int64_t* partial, size_t& first_nan) {
    typedef typename F::Word Word;
    Word nan = 0, above = 0, below = 0;  // at most BLOCK, which fits any word
    for (size_t i = 0; i < BLOCK; ++i) {
        nan += F::size(x[i]) > F::INFINITE;
        above += x[i] == F::INFINITE;
        below += x[i] == static_cast<Word>(F::INFINITE | F::SIGN);
    }
    if (nan && !partial[NAN_COUNT]) first_nan = start;
    partial[NAN_COUNT] += nan, partial[POSITIVE] += above, partial[NEGATIVE] += below;
}

// Lowest and highest rank; a block of NaN has none, its lowest is above its highest.
template <class F>
void find_ends_of_floats(const typename F::Word* x, typename F::Word& low, typename F::Word& high) {
    typedef typename F::Word Word;
    Word lowest = static_cast<Word>(-1), highest = 0;
    for (size_t i = 0; i < BLOCK; ++i) {
        const Word u = F::rank(x[i]);
        const Word nan = bits_if<Word>(F::size(x[i]) > F::INFINITE);
        const Word below = u | nan, above = u & static_cast<Word>(~nan);
        lowest = below < lowest ? below : lowest;
        highest = above > highest ? above : highest;
    }
    low = lowest, high = highest;
}

// The samples of a block with exponents from `base` on: magnitudes from `floor` on.
template <class F>
struct Window {
    typename F::Word base, floor;

    Window(typename F::Word largest, int width) {
        const int top = static_cast<int>(largest >> F::FRACTION);
        base = static_cast<typename F::Word>(top - width > 1 ? top - width : 1);
        floor = base > 1 ? static_cast<typename F::Word>(base << F::FRACTION) : 1;
    }
    // Whether it has all samples.
    bool holds(const Sizes<F>& sizes) const { return !sizes.special() && sizes.below_smallest >= floor - 1; }
    // Bits of a sample outside become 0.
    template <bool EVERY>
    typename F::Word kept(typename F::Word bits) const {
        if (EVERY) return bits;
        const typename F::Word size = F::size(bits);
        return bits & bits_if<typename F::Word>((size >= floor) & (size < F::INFINITE));
    }
    // Of a sample that is kept.
    typename F::Word above_base(typename F::Word bits) const {
        const typename F::Word exponent = F::size(bits) >> F::FRACTION;
        return (exponent > base ? exponent : base) - base;
    }
    int power() const { return static_cast<int>(base) - 1 + F::LEAST; }
};

// Samples of up to 24 bits are shifted to at most 24 + 28 bits, or for squares 24 + 20, two digits of 22.
template <class F, bool SQUARED>
struct Width {
    static constexpr int VALUE = sizeof(typename F::Word) == 2 ? 29 : SQUARED ? 20 : 28;
};
// Of 53 bits to two digits, of 32 bits and of up to 51, or for squares to three of 22.
template <bool SQUARED>
struct Width<Double, SQUARED> {
    static constexpr int VALUE = SQUARED ? 13 : 30;
};

// EVERY: the window holds all samples.
template <class F, bool SQUARED, bool EVERY>
void add_kept(const typename F::Word* x, Window<F> window, Sum& sum, Squares& squares) {
    constexpr int DIGIT = 22;
    constexpr u64 MASK = (u64(1) << DIGIT) - 1, TOP = u64(1) << 63;
    u64 total = 0, low = 0, middle = 0, high = 0;
    for (size_t i = 0; i < BLOCK; ++i) {
        const typename F::Word bits = window.template kept<EVERY>(x[i]);
        const u32 integer = F::with_sign(static_cast<u32>(F::integer(bits)), bits);
        const u64 number = static_cast<u64>(static_cast<int64_t>(static_cast<int32_t>(integer))) << window.above_base(bits);
        total += number;
        if (SQUARED) {  // the lower digit is not negative; the upper one is shifted as if no number were
            const u64 a = number & MASK, b = ((number + TOP) >> DIGIT) - (TOP >> DIGIT);
            low += a * a, middle += a * b, high += b * b;
        }
    }
    sum.add(static_cast<int64_t>(total), window.power());
    if (SQUARED) {
        squares.add(low, 2 * window.power());
        squares.add(static_cast<int64_t>(middle), 2 * window.power() + DIGIT + 1);
        squares.add(high, 2 * window.power() + 2 * DIGIT);
    }
}

template <bool EVERY>
void add_doubles(const u64* x, Window<Double> window, Sum& sum) {
    constexpr int DIGIT = 32;
    u64 low = 0, high = 0;
    for (size_t i = 0; i < BLOCK; ++i) {
        const u64 bits = window.kept<EVERY>(x[i]), integer = Double::integer(bits), shift = window.above_base(bits);
        const u64 a = static_cast<u32>(integer << shift), b = integer >> (DIGIT - shift);
        low += Double::with_sign(a, bits);
        high += Double::with_sign(b, bits);
    }
    sum.add(static_cast<int64_t>(low), window.power());
    sum.add(static_cast<int64_t>(high), window.power() + DIGIT);
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

// Samples below the window, zeros aside.
template <class F>
void add_others(const typename F::Word* x, Window<F> window, bool squared, Sum& sum, Squares& squares) {
    typedef typename F::Word Word;
    const Word most = window.floor - 1;
    for (size_t start = 0; start < BLOCK; start += GROUP) {
        Word any = 0;
        for (size_t i = 0; i < GROUP; ++i) any |= static_cast<Word>(F::size(x[start + i]) - 1) < most;
        if (!any) continue;
        for (size_t i = start; i < start + GROUP; ++i) {
            const Word size = F::size(x[i]), exponent = size >> F::FRACTION;
            if (static_cast<Word>(size - 1) >= most) continue;
            const int power = (exponent ? exponent : 1) - 1 + F::LEAST;
            const int64_t number = static_cast<int64_t>(F::integer(x[i]));
            sum.add(x[i] & F::SIGN ? -number : number, power);
            if (!squared) continue;
            const int128 square = static_cast<int128>(number) * number;  // 106 bits: two parts, lest their sums overflow
            squares.add(static_cast<u64>(square), 2 * power);
            squares.add(square >> 64, 2 * power + 64);
        }
    }
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

template <class F>
void add_block(const typename F::Word* x, const Sizes<F>& sizes, bool squared, Sum& sum, Squares& squares) {
    const Window<F> window(sizes.largest, squared ? Width<F, true>::VALUE : Width<F, false>::VALUE);
    if (window.holds(sizes)) return add_window<F, true>(x, window, squared, sum, squares);
    add_window<F, false>(x, window, squared, sum, squares);
    if (window.floor > 1) add_others(x, window, squared, sum, squares);
}

// The bits of a finite sample or an infinity as those of a float64, without its sign.
template <class F>
u64 as_double(typename F::Word size) {
    if (size >= F::INFINITE) return Double::INFINITE;
    u64 integer = F::integer(size);
    if (!integer) return 0;
    const typename F::Word exponent = size >> F::FRACTION;
    const int top = 63 - __builtin_clzll(integer), power = (exponent ? exponent : 1) - 1 + F::LEAST;
    if (top + power < Double::LEAST + Double::FRACTION) return integer;  // subnormal, and a float64 already
    return (integer << (Double::FRACTION - top)) + (static_cast<u64>(top + power - Double::LEAST - Double::FRACTION) << Double::FRACTION);
}

// Of magnitudes the bits, from 0 up; for negative samples from -1 down.
template <class F>
int64_t key(typename F::Word rank) {
    if (rank >= F::SIGN) return static_cast<int64_t>(as_double<F>(static_cast<typename F::Word>(rank - F::SIGN)));
    return -1 - static_cast<int64_t>(as_double<F>(static_cast<typename F::Word>(F::SIGN - rank)));
}

template <class F>
int64_t place_of(const typename F::Word* samples, size_t at, typename F::Word rank) {
    while (F::rank(samples[at]) != rank) ++at;  // NaN have ranks of their own
    return 2 * static_cast<int64_t>(at) + (samples[at] == F::SIGN);
}

template <class F>
void reduce_floats(const void* data, size_t n, int parts, int64_t* partial, Sum& sum, Squares& squares) {
    typedef typename F::Word Word;
    const Word* samples = static_cast<const Word*>(data);
    Word copy[BLOCK];
    Ends<Word> ends;
    size_t first_nan = 0;
    for (size_t start = 0; start < n; start += BLOCK) {
        const size_t length = n - start < BLOCK ? n - start : BLOCK;
        const Word* block = samples + start;
        if (parts & EXTREMES) {
            Word low, high;
            find_ends_of_floats<F>(filled(block, length, block[0], copy), low, high);
            if (low <= high) ends.meet(low, high, start);
        }
        block = filled(block, length, Word(0), copy);
        const Sizes<F> sizes(block);
        if (sizes.special()) count_special<F>(block, start, partial, first_nan);
        if (parts & SUM) add_block<F>(block, sizes, parts & SQUARES, sum, squares);
    }
    if (!(parts & EXTREMES)) return;
    if (partial[NAN_COUNT]) {
        while (F::size(samples[first_nan]) <= F::INFINITE) ++first_nan;
        partial[FIRST_NAN] = 2 * static_cast<int64_t>(first_nan);
    }
    if (!ends.known) return;
    partial[MIN_AT] = place_of<F>(samples, ends.low_at, ends.low);
    partial[MAX_AT] = place_of<F>(samples, ends.high_at, ends.high);
    partial[MIN_KEY] = key<F>(ends.low);
    partial[MAX_KEY] = key<F>(ends.high);
}

}  // namespace
