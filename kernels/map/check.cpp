// The right results of operations on elements, by integer arithmetic alone, for check.py.
//
// Floats are taken apart into sign, significand and place. Sums and products of significands are integers, exact or
// with their last bit set in place of the bits below it, and are rounded once, to nearest, ties to even:
// docs/map-check.md proves that this gives the bits of IEEE 754. There is no arithmetic on floats: to stay unnoticed, an
// error of a machine, a compiler or a rounding mode would have to happen to integers too, with the same bits.

#include <cstddef>
#include <cstdint>

namespace {

using std::size_t;
#define INLINE inline __attribute__((always_inline))  // so that loops become vector code
__extension__ typedef unsigned __int128 uint128;

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
INLINE int64_t zeros_above(uint128 x) {
    const uint64_t upper = static_cast<uint64_t>(x >> 64), lower = static_cast<uint64_t>(x);
    return zeros_above(upper ? upper : lower) + (upper ? 0 : 64);
}

template <class T>
INLINE T least(T a, T b) { return a < b ? a : b; }
template <class T>
INLINE T largest(T a, T b) { return a > b ? a : b; }

// --- floats ----------------------------------------------------------------------------------------------------------

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

template <class F>
struct Floats {
    typedef typename F::Bits Bits;
    static Bits add(Bits a, Bits b) { return float_sum<F>(a, b); }
    static Bits subtract(Bits a, Bits b) { return float_sum<F>(a, b ^ F::SIGN); }
    static Bits multiply(Bits a, Bits b) { return float_product<F>(a, b); }
    static Bits multiply_add(Bits a, Bits b, Bits c) { return float_sum<F>(float_product<F>(a, b), c); }
    static Bits minimum(Bits a, Bits b) {
        return is_nan<F>(a) || is_nan<F>(b) ? F::NOT_A_NUMBER : float_key<F>(b) < float_key<F>(a) ? b : a;
    }
    static Bits maximum(Bits a, Bits b) {
        return is_nan<F>(a) || is_nan<F>(b) ? F::NOT_A_NUMBER : float_key<F>(a) < float_key<F>(b) ? b : a;
    }
};

// --- integers --------------------------------------------------------------------------------------------------------

template <class T>
struct Keys {
    typedef T Bits;
    static T minimum(T a, T b) { return a < b ? a : b; }
    static T maximum(T a, T b) { return a < b ? b : a; }
};

// Up to 32 bits: the exact result, of which the lowest bits are kept.
template <class T, class Exact>
struct Narrow : Keys<T> {
    static T add(T a, T b) { return static_cast<T>(Exact(a) + Exact(b)); }
    static T subtract(T a, T b) { return static_cast<T>(Exact(a) - Exact(b)); }
    static T multiply(T a, T b) { return static_cast<T>(Exact(a) * Exact(b)); }
    static T multiply_add(T a, T b, T c) { return static_cast<T>(Exact(a) * Exact(b) + Exact(c)); }
};

// 64 bits: digits of 32 bits, with carries, modulo 2**64.
template <class T>
struct Digits : Keys<T> {
    static constexpr uint64_t LOW = 0xffffffff;
    static uint64_t low(T x) { return static_cast<uint64_t>(x) & LOW; }
    static uint64_t high(T x) { return static_cast<uint64_t>(x) >> 32; }
    static T joined(uint64_t upper, uint64_t lower) {
        return static_cast<T>((upper + (lower >> 32)) << 32 | (lower & LOW));
    }
    static T add(T a, T b) { return joined(high(a) + high(b), low(a) + low(b)); }
    // Of -b the digits are those of ~b, and 1 is added.
    static T subtract(T a, T b) { return joined(high(a) + (high(b) ^ LOW), low(a) + (low(b) ^ LOW) + 1); }
    static T multiply(T a, T b) { return joined(low(a) * high(b) + high(a) * low(b), low(a) * low(b)); }
    static T multiply_add(T a, T b, T c) { return add(multiply(a, b), c); }
};

// --- conversions -----------------------------------------------------------------------------------------------------

// A number between two types: without its sign `size` * 2**`place`, or infinite, or NaN.
struct Number {
    enum Kind { FINITE, INFINITE, NOT_A_NUMBER } kind;
    bool negative;
    uint64_t size;
    int place;
};

template <class T>
struct Integer {
    typedef T Bits;
    static Number taken(T x) {
        const uint64_t word = static_cast<uint64_t>(x);
        return {Number::FINITE, x < 0, x < 0 ? 0 - word : word, 0};
    }
    static T given(const Number& x) { return static_cast<T>(x.negative ? 0 - x.size : x.size); }
};

template <class F>
struct Real {
    typedef typename F::Bits Bits;
    static Number taken(Bits x) {
        const Bits size = x & Bits(~F::SIGN);
        const Number::Kind special = size > F::INFINITE ? Number::NOT_A_NUMBER : Number::INFINITE;
        const Number::Kind kind = size < F::INFINITE ? Number::FINITE : special;
        return {kind, (x & F::SIGN) != 0, F::significand(size), F::place(size) - F::ONE};
    }
    static Bits given(const Number& x) {
        if (x.kind == Number::NOT_A_NUMBER) return F::NOT_A_NUMBER;
        const Bits size = x.kind == Number::INFINITE ? F::INFINITE : rounded<F>(uint128(x.size), x.place + F::ONE);
        return size | (x.negative ? F::SIGN : 0);
    }
};

constexpr size_t BLOCK = 512;  // numbers between two types, in the L1 cache

template <class From>
void take(const void* x, size_t n, Number* numbers) {
    for (size_t i = 0; i < n; ++i) numbers[i] = From::taken(static_cast<const typename From::Bits*>(x)[i]);
}

template <class To>
void give(const Number* numbers, size_t n, void* out) {
    for (size_t i = 0; i < n; ++i) static_cast<typename To::Bits*>(out)[i] = To::given(numbers[i]);
}

// --- arrays ----------------------------------------------------------------------------------------------------------

// Operations and types, numbered as in check.py.
enum Operation { ADD, SUBTRACT, MULTIPLY, MULTIPLY_ADD, MINIMUM, MAXIMUM };
enum Type { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64 };

template <class Of>
void fill(int operation, const void* a, const void* b, const void* c, void* out, size_t n) {
    typedef typename Of::Bits T;
    const T *__restrict__ x = static_cast<const T*>(a), *__restrict__ y = static_cast<const T*>(b);
    const T* __restrict__ z = static_cast<const T*>(c);
    T* __restrict__ to = static_cast<T*>(out);
    switch (operation) {
#define EACH(OPERATION, RESULT) \
    case OPERATION: \
        for (size_t i = 0; i < n; ++i) to[i] = RESULT; \
        break;
        EACH(ADD, Of::add(x[i], y[i]))
        EACH(SUBTRACT, Of::subtract(x[i], y[i]))
        EACH(MULTIPLY, Of::multiply(x[i], y[i]))
        EACH(MULTIPLY_ADD, Of::multiply_add(x[i], y[i], z[i]))
        EACH(MINIMUM, Of::minimum(x[i], y[i]))
        EACH(MAXIMUM, Of::maximum(x[i], y[i]))
#undef EACH
    }
}

}  // namespace

// The results of an operation on n elements of each array, all of one type. `c` is read by MULTIPLY_ADD only.
extern "C" void right_results(int type, int operation, const void* a, const void* b, const void* c, void* out,
                              size_t n) {
    switch (type) {
        case INT8: fill<Narrow<int8_t, int64_t>>(operation, a, b, c, out, n); break;
        case UINT8: fill<Narrow<uint8_t, uint64_t>>(operation, a, b, c, out, n); break;
        case INT16: fill<Narrow<int16_t, int64_t>>(operation, a, b, c, out, n); break;
        case UINT16: fill<Narrow<uint16_t, uint64_t>>(operation, a, b, c, out, n); break;
        case INT32: fill<Narrow<int32_t, int64_t>>(operation, a, b, c, out, n); break;
        case UINT32: fill<Narrow<uint32_t, uint64_t>>(operation, a, b, c, out, n); break;
        case INT64: fill<Digits<int64_t>>(operation, a, b, c, out, n); break;
        case UINT64: fill<Digits<uint64_t>>(operation, a, b, c, out, n); break;
        case FLOAT16: fill<Floats<Half>>(operation, a, b, c, out, n); break;
        case FLOAT32: fill<Floats<Single>>(operation, a, b, c, out, n); break;
        case FLOAT64: fill<Floats<Double>>(operation, a, b, c, out, n); break;
    }
}

// n elements of one type as another: integers as integers with the same bits modulo their size, integers and floats as
// floats rounded to nearest. Floats are not converted to integers.
extern "C" void converted(int from, int to, const void* x, void* out, size_t n) {
    Number numbers[BLOCK];
    const char* in = static_cast<const char*>(x);
    char* result = static_cast<char*>(out);
    for (size_t start = 0; start < n; start += BLOCK) {
        const size_t count = n - start < BLOCK ? n - start : BLOCK;
#define OF_TYPE(WITH, TYPE, KIND) \
    case TYPE: WITH(KIND); break;
#define OF_INTEGERS(WITH) \
    OF_TYPE(WITH, INT8, Integer<int8_t>) OF_TYPE(WITH, UINT8, Integer<uint8_t>) \
    OF_TYPE(WITH, INT16, Integer<int16_t>) OF_TYPE(WITH, UINT16, Integer<uint16_t>) \
    OF_TYPE(WITH, INT32, Integer<int32_t>) OF_TYPE(WITH, UINT32, Integer<uint32_t>) \
    OF_TYPE(WITH, INT64, Integer<int64_t>) OF_TYPE(WITH, UINT64, Integer<uint64_t>)
#define OF_FLOATS(WITH) \
    OF_TYPE(WITH, FLOAT16, Real<Half>) OF_TYPE(WITH, FLOAT32, Real<Single>) OF_TYPE(WITH, FLOAT64, Real<Double>)
#define TAKE(KIND) take<KIND>(in + start * sizeof(KIND::Bits), count, numbers)
#define GIVE(KIND) give<KIND>(numbers, count, result + start * sizeof(KIND::Bits))
        switch (from) { OF_INTEGERS(TAKE) OF_FLOATS(TAKE) }
        switch (to) { OF_INTEGERS(GIVE) OF_FLOATS(GIVE) }
#undef OF_TYPE
#undef OF_INTEGERS
#undef OF_FLOATS
#undef TAKE
#undef GIVE
    }
}
