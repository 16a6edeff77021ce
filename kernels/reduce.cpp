// Moments and extremes on the CPU: what reduce_native.py calls. reduce_samples fills the partial that reduce.py describes
// from fewer than 2**31 samples, exactly.
//
// Samples are taken 4096 at a time, 16 to 32 KiB, which the first-level cache holds. Of a block of floats
//
//   look        finds the largest and the smallest magnitude as integers, and the extremes;
//   tame        copies a block that has NaN, infinities, or numbers far smaller than the largest one: those are set to
//               zero, and added to the sums one by one;
//   add_up      adds up the others in float64, without rounding: in lanes that begin at 1.5 * 2**k, so that their spacing
//               never changes; an addition rounds a number to that spacing, what is left of it goes to the next lane.
//
// Sums end in digits of 32 bits, in integers that hold 2**31 of them. The compiler must neither reorder nor fuse what is
// written here, and does not without -ffast-math and with -ffp-contract=off.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

using std::size_t;
typedef unsigned __int128 u128;

constexpr size_t BLOCK = 4096;
constexpr int HALF_TOP = 16;  // float16 numbers are below 2**16, and multiples of 2**-24

// Places in a partial: see reduce.py.
enum { NAN_COUNT = 3, POSITIVE, NEGATIVE, FIRST_NAN, MIN_AT, MAX_AT, MIN_KEY, MAX_KEY, SUM_AT };
enum { SUM = 1, SQUARES = 2, EXTREMES = 4 };
constexpr int SUM_WORDS = 34, SQUARE_WORDS = 67, SUM_BITS = 1088, SQUARE_BITS = 2176;

// As many as an instruction takes; several of these hide how long it takes.
#if defined(__AVX512F__)
constexpr int BYTES = 64;
#elif defined(__AVX__)
constexpr int BYTES = 32;
#else
constexpr int BYTES = 16;
#endif
typedef double Doubles __attribute__((vector_size(BYTES)));
typedef int64_t Longs __attribute__((vector_size(BYTES)));
typedef uint64_t Words __attribute__((vector_size(BYTES)));
typedef float HalfFloats __attribute__((vector_size(BYTES / 2)));
constexpr int LANES = BYTES / 8;

template <bool FIRST, class A, class B>
struct Choose {
    typedef A Type;
};
template <class A, class B>
struct Choose<false, A, B> {
    typedef B Type;
};

template <class To, class From>
To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "of one size");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

// A fixed-point number: digits of 32 bits, the lowest first, in integers that carry nothing until `words` is called.
template <int WORDS, int BITS>
struct Accumulator {
    int64_t digits[2 * WORDS] = {};

    // value * 2**exponent, with its sign.
    void add(u128 value, int exponent, bool negative) {
        int place = exponent + BITS, shift = place & 31;
        int64_t* digit = digits + (place >> 5);
        int64_t flip = -static_cast<int64_t>(negative);
        uint64_t low = static_cast<uint64_t>(value), high = static_cast<uint64_t>(value >> 64);
        u128 first = static_cast<u128>(low) << shift, second = static_cast<u128>(high) << shift;
        add_digit(digit, static_cast<uint32_t>(first), flip);
        add_digit(digit + 1, static_cast<uint32_t>(first >> 32), flip);
        add_digit(digit + 2, static_cast<uint32_t>(first >> 64), flip);
        if (high) {
            add_digit(digit + 2, static_cast<uint32_t>(second), flip);
            add_digit(digit + 3, static_cast<uint32_t>(second >> 32), flip);
            add_digit(digit + 4, static_cast<uint32_t>(second >> 64), flip);
        }
    }

    // value * 2**unit
    void add(double value, int unit = 0) {
        uint64_t bits = bits_as<uint64_t>(value), mantissa = bits & ((uint64_t(1) << 52) - 1);
        int exponent = static_cast<int>(bits >> 52 & 0x7ff);
        if (!(bits << 1)) return;
        if (exponent) mantissa |= uint64_t(1) << 52;
        exponent = (exponent ? exponent : 1) - 1075 + unit;
        int below = -BITS - exponent;  // digits that are zero, since the number is one of 2**-BITS
        add(below > 0 ? mantissa >> below : mantissa, below > 0 ? -BITS : exponent, bits >> 63);
    }

    void add_square(double value) {
        uint64_t bits = bits_as<uint64_t>(value), mantissa = bits & ((uint64_t(1) << 52) - 1);
        int exponent = static_cast<int>(bits >> 52 & 0x7ff);
        if (exponent) mantissa |= uint64_t(1) << 52;
        add(static_cast<u128>(mantissa) * mantissa, 2 * ((exponent ? exponent : 1) - 1075), false);
    }

    // Two's complement, the lowest word first.
    void words(int64_t* out) const {
        int64_t carry = 0;
        for (int i = 0; i < WORDS; ++i) {
            int64_t low = digits[2 * i] + carry;
            int64_t high = digits[2 * i + 1] + (low >> 32);
            carry = high >> 32;
            out[i] = static_cast<int64_t>(static_cast<uint64_t>(high) << 32 | (static_cast<uint64_t>(low) & 0xffffffff));
        }
    }

private:
    static void add_digit(int64_t* digit, uint32_t value, int64_t flip) { *digit += (int64_t(value) ^ flip) - flip; }
};

struct Result {
    int64_t* partial;
    int parts;
    Accumulator<SUM_WORDS, SUM_BITS> sum;
    Accumulator<SQUARE_WORDS, SQUARE_BITS> squares;

    void finish() {
        if (parts & SUM) sum.words(partial + SUM_AT);
        if (parts & SQUARES) squares.words(partial + SUM_AT + SUM_WORDS);
    }
};

template <class T>
size_t first_equal(const T* samples, size_t n, T value) {
    constexpr size_t STEP = 64;
    size_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        bool found = false;
        for (size_t j = 0; j < STEP; ++j) found |= samples[i + j] == value;
        if (found) break;
    }
    while (i < n && !(samples[i] == value)) ++i;
    return i;
}

// Extremes so far: of equal samples the first one stays.
template <class T>
struct Extremes {
    bool known = false;
    T least = 0, greatest = 0;
    size_t least_at = 0, greatest_at = 0;

    void meet(const T* samples, size_t n, size_t start, T lower, T upper) {
        if (!known || lower < least) least_at = start + first_equal(samples, n, least = lower);
        if (!known || upper > greatest) greatest_at = start + first_equal(samples, n, greatest = upper);
        known = true;
    }
};

// --- integers ---------------------------------------------------------------------------------------------------------

// Sum of squares of a block, below 2**140.
struct Wide {
    u128 low = 0;
    uint64_t high = 0;

    void add(u128 value) {
        low += value;
        high += low < value;
    }
};

template <class T, bool SQUARED>
void integer_sums(const T* samples, size_t n, Result& result) {
    constexpr bool SIGNED = static_cast<T>(-1) < 0;
    __int128 sum = 0;
    if constexpr (sizeof(T) <= 2) {  // a sum of a block, and a square, fit into 32 bits
        typedef typename Choose<sizeof(T) == 1, uint32_t, uint64_t>::Type Squares;
        int32_t total = 0;
        Squares squares = 0;
        for (size_t i = 0; i < n; ++i) {
            total += samples[i];
            uint32_t size = static_cast<uint32_t>(static_cast<int32_t>(samples[i]));
            if (SQUARED) squares += static_cast<Squares>(size * size);
        }
        sum = total;
        if (SQUARED) result.squares.add(squares, 0, false);
    } else if constexpr (sizeof(T) == 4) {
        typedef typename Choose<SIGNED, int64_t, uint64_t>::Type Long;
        int64_t total = 0;
        uint64_t low = 0, high = 0;
        for (size_t i = 0; i < n; ++i) {
            total += samples[i];
            if (SQUARED) {
                uint64_t square = static_cast<uint64_t>(static_cast<Long>(samples[i]) * static_cast<Long>(samples[i]));
                low += square & 0xffffffff;
                high += square >> 32;
            }
        }
        sum = total;
        if (SQUARED) result.squares.add((static_cast<u128>(high) << 32) + low, 0, false);
    } else {
        int64_t upper = 0;
        uint64_t lower = 0;
        for (size_t i = 0; i < n; ++i) {
            upper += static_cast<int64_t>(samples[i] >> 32);
            lower += static_cast<uint64_t>(samples[i]) & 0xffffffff;
        }
        sum = static_cast<__int128>(upper) * (int64_t(1) << 32) + lower;
        if (SQUARED) {
            Wide squares;
            for (size_t i = 0; i < n; ++i) {
                uint64_t value = static_cast<uint64_t>(samples[i]), size = samples[i] < 0 ? -value : value;
                squares.add(static_cast<u128>(size) * size);
            }
            result.squares.add(squares.low, 0, false);
            result.squares.add(squares.high, 128, false);
        }
    }
    result.sum.add(static_cast<u128>(sum < 0 ? -sum : sum), 0, sum < 0);
}

template <class T>
int64_t key_of(T value) {
    bool biggest = static_cast<T>(-1) > 0 && sizeof(T) == 8;
    uint64_t bits = static_cast<uint64_t>(value) - (biggest ? uint64_t(1) << 63 : 0);
    return static_cast<int64_t>(bits);
}

template <class T>
void reduce_integers(const T* samples, size_t n, Result& result) {
    Extremes<T> extremes;
    for (size_t start = 0; start < n; start += BLOCK) {
        const T* block = samples + start;
        size_t length = n - start < BLOCK ? n - start : BLOCK;
        if (result.parts & EXTREMES) {
            T lower = block[0], upper = block[0];
            for (size_t i = 0; i < length; ++i) {
                lower = block[i] < lower ? block[i] : lower;
                upper = block[i] > upper ? block[i] : upper;
            }
            extremes.meet(block, length, start, lower, upper);
        }
        if (result.parts & SQUARES)
            integer_sums<T, true>(block, length, result);
        else if (result.parts & SUM)
            integer_sums<T, false>(block, length, result);
    }
    if (!extremes.known) return;
    result.partial[MIN_AT] = 2 * static_cast<int64_t>(extremes.least_at);
    result.partial[MAX_AT] = 2 * static_cast<int64_t>(extremes.greatest_at);
    result.partial[MIN_KEY] = key_of(extremes.least);
    result.partial[MAX_KEY] = key_of(extremes.greatest);
}

// --- floats -----------------------------------------------------------------------------------------------------------

template <class T>
struct Float;

template <>
struct Float<float> {
    typedef uint32_t Bits;
    typedef int32_t Signed;
    static constexpr Bits INFINITE = 0x7f800000, SIGN = 0x80000000;
    static constexpr int MANTISSA = 23, BIAS = 126, WINDOW = 18;
    static constexpr int TOPS[2] = {-200, 200};  // all of them
};

template <>
struct Float<double> {
    typedef uint64_t Bits;
    typedef int64_t Signed;
    static constexpr Bits INFINITE = 0x7ff0000000000000, SIGN = 0x8000000000000000;
    static constexpr int MANTISSA = 52, BIAS = 1022, WINDOW = 28;
    static constexpr int TOPS[2] = {-400, 500};  // between which neither a square nor a sum over- or underflows
};

double power(int exponent) {  // of 2, in two steps, since 2**-1074 is one
    int half = exponent / 2;
    return bits_as<double>(static_cast<uint64_t>(half + 1023) << 52) *
           bits_as<double>(static_cast<uint64_t>(exponent - half + 1023) << 52);
}

// Integers in the order of floats; -0.0 is right before 0.0.
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
    typename Float<T>::Signed lower, upper;  // in their order
    typename Float<T>::Bits largest, smallest;  // magnitudes; the smallest of numbers that are not zero, minus 1
};

template <class T>
Seen<T> look(const T* samples, size_t n) {
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

// The same where there may be NaN, which is left out, and infinities, which are no magnitudes.
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

inline void cut(Doubles& lane, Doubles& value) {
    Doubles more = lane + value;
    value -= more - lane;
    lane = more;
}

// What rounding p = x * x left out; exact where that does not underflow.
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

// Sum of lanes that began at `start`; all are multiples of one number, and few enough for that to be exact.
template <int NUMBER>
double total(const Doubles (&lanes)[NUMBER], double start) {
    double sum = 0;
    for (int i = 0; i < NUMBER; ++i)
        for (int j = 0; j < LANES; ++j) sum += lanes[i][j] - start;
    return sum;
}

constexpr int ABREAST = 4;
constexpr size_t STEP = ABREAST * LANES;  // what numbers of a block are a multiple of here

// Numbers below 2**top that are not below 2**(top - 18), so that they are multiples of 2**(top - 41): 4096 of them add up
// to 2**53 of these. Squares, which float64 holds, are cut at 2**(2 * top - 40).
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

// Numbers below 2**top that are not below 2**(top - 28), times 2**scale. Lanes hold 2**10 numbers each of what is left
// by those before; the last ones hold all that is left. A square is a float64 and an error, 2**54 times smaller.
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

// Copies a block, and zeros behind it, without what cannot be added up with the rest: infinities and NaN are counted,
// numbers smaller than `small` added to the sums.
template <class T>
void tame(const T* samples, size_t n, size_t start, typename Float<T>::Bits small, int scale, T* copy, Result& result) {
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

// `everything`: whatever the samples are, all are multiples of 2**(top - 41), and so are their squares of its square.
template <class T>
void reduce_block(const T* samples, size_t n, size_t start, bool everything, Extremes<T>& extremes, Result& result) {
    Seen<T> seen = look(samples, n);
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
        tame(samples, n, start, small, scale, copy, result);
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

// As to_key of reduce.py, and whether a sample is -0.0.
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

// float16 as float32: a product with 2**112 moves the exponent to its place, also of subnormal numbers.
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

// Types of samples are numbered as in reduce.py.
enum Type { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64 };

extern "C" void reduce_samples(int type, int parts, const void* samples, size_t n, int64_t* partial) {
    Result result{partial, parts, {}, {}};
    switch (type) {
        case INT8: reduce_integers(static_cast<const int8_t*>(samples), n, result); break;
        case UINT8: reduce_integers(static_cast<const uint8_t*>(samples), n, result); break;
        case INT16: reduce_integers(static_cast<const int16_t*>(samples), n, result); break;
        case UINT16: reduce_integers(static_cast<const uint16_t*>(samples), n, result); break;
        case INT32: reduce_integers(static_cast<const int32_t*>(samples), n, result); break;
        case UINT32: reduce_integers(static_cast<const uint32_t*>(samples), n, result); break;
        case INT64: reduce_integers(static_cast<const int64_t*>(samples), n, result); break;
        case UINT64: reduce_integers(static_cast<const uint64_t*>(samples), n, result); break;
        case FLOAT16: reduce_halves(samples, n, result); break;
        case FLOAT32: reduce_floats<float>(samples, n, result); break;
        case FLOAT64: reduce_floats<double>(samples, n, result); break;
    }
    result.finish();
}
