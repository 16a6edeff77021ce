// Exact moments and extremes for check.py, which shares no code with cpu.cpp and gpu.cu and goes other ways.
//
// All arithmetic is on integers. A sum is kept as buckets, one for each power of two: adding n * 2**p adds n to bucket p,
// without a shift or a carry; carries are resolved once, at the end.
//
//   integers  become ranks: unsigned integers in their order. Their sums give those of the samples:
//             sum x = sum u - n h, sum x^2 = sum u^2 - 2 h sum u + n h^2, where h is half the range if they are signed.
//   floats    are integers times a power of two. In a block those with the highest exponents, nearly always all, are
//             shifted to the lowest of these exponents and summed; the others go to their buckets one by one.
//
// An extreme is looked for in the first block that has it, when all are done.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

using std::size_t;
typedef uint32_t u32;
typedef uint64_t u64;
__extension__ typedef __int128 int128;

constexpr size_t BLOCK = 2048;  // samples at a time: the sums of as many fit into 64 bits
constexpr size_t GROUP = 64;    // samples that are looked through for those with low exponents

// As in partial.py.
enum { NAN_COUNT = 3, POSITIVE, NEGATIVE, FIRST_NAN, MIN_AT, MAX_AT, MIN_KEY, MAX_KEY, SUM_AT };
enum { SUM = 1, SQUARES = 2, EXTREMES = 4 };
constexpr int SUM_WORDS = 34, SQUARE_WORDS = 67, SUM_BITS = 1088, SQUARE_BITS = 2176;

// A sum in units of 2**-BITS.
template <int WORDS, int BITS>
struct Buckets {
    int128 of[64 * WORDS] = {};

    void add(int128 number, int power) { of[BITS + power] += number; }

    void words(int64_t* partial) const {
        u64 word[WORDS + 3] = {};
        for (int bit = 0; bit < 64 * WORDS; ++bit)
            if (of[bit]) {
                const int128 number = of[bit];
                const int place = bit / 64, shift = bit % 64;
                const u64 low = static_cast<u64>(number), high = static_cast<u64>(number >> 64), sign = number < 0 ? ~u64(0) : 0;
                const u64 parts[3] = {low << shift, shift ? high << shift | low >> (64 - shift) : high,
                                      shift ? sign << shift | high >> (64 - shift) : sign};
                u64 carry = 0;
                for (int i = place; i < WORDS; ++i) {
                    const u64 part = i - place < 3 ? parts[i - place] : sign, sum = word[i] + part, total = sum + carry;
                    carry = (sum < part) | (total < sum);
                    word[i] = total;
                    if (i - place >= 2 && carry == (sign & 1)) break;  // nothing changes above
                }
            }
        std::memcpy(partial, word, 8 * WORDS);
    }
};

typedef Buckets<SUM_WORDS, SUM_BITS> Sum;
typedef Buckets<SQUARE_WORDS, SQUARE_BITS> Squares;

// Lowest and highest rank, and the first sample of the block in which each came up.
template <class Word>
struct Ends {
    Word low = static_cast<Word>(-1), high = 0;
    size_t low_at = 0, high_at = 0;
    bool known = false;

    void meet(Word lowest, Word highest, size_t start) {
        if (!known || lowest < low) low = lowest, low_at = start;
        if (!known || highest > high) high = highest, high_at = start;
        known = true;
    }
};

// All bits, or none: loops with conditions written so are vectorized.
template <class Word>
Word bits_if(bool condition) {
    return static_cast<Word>(-static_cast<Word>(condition));
}

// A block that has fewer samples, continued with `filler`.
template <class Word>
const Word* filled(const Word* block, size_t n, Word filler, Word* copy) {
    if (n == BLOCK) return block;
    std::memcpy(copy, block, n * sizeof(Word));
    for (size_t i = n; i < BLOCK; ++i) copy[i] = filler;
    return copy;
}

// --- integers ---------------------------------------------------------------------------------------------------------

void add_ranks(const uint8_t* x, uint8_t half, bool squared, u64& sum, Squares& squares) {
    u32 first = 0, second = 0;
    for (size_t i = 0; i < BLOCK; ++i) {
        const u32 u = static_cast<uint8_t>(x[i] ^ half);
        first += u;
        second += u * u;
    }
    sum += first;
    if (squared) squares.add(second, 0);
}

void add_ranks(const uint16_t* x, uint16_t half, bool squared, u64& sum, Squares& squares) {
    u32 first = 0;
    u64 second = 0;
    if (squared)
        for (size_t i = 0; i < BLOCK; ++i) {
            const u32 u = static_cast<uint16_t>(x[i] ^ half);
            second += u * u;
        }
    for (size_t i = 0; i < BLOCK; ++i) first += static_cast<uint16_t>(x[i] ^ half);
    sum += first;
    if (squared) squares.add(second, 0);
}

void add_ranks(const u32* x, u32 half, bool squared, u64& sum, Squares& squares) {
    u64 first = 0, low = 0, high = 0;
    if (squared)
        for (size_t i = 0; i < BLOCK; ++i) {
            const u64 u = x[i] ^ half, square = u * u;
            low += static_cast<u32>(square);
            high += square >> 32;
        }
    for (size_t i = 0; i < BLOCK; ++i) first += x[i] ^ half;
    sum += first;
    if (squared) squares.add(low, 0), squares.add(high, 32);
}

// `sum` in units of 2**32, `rest` below.
void add_ranks(const u64* x, u64 half, bool squared, u64& sum, u64& rest, Squares& squares) {
    u64 low = 0, high = 0;
    for (size_t i = 0; i < BLOCK; ++i) {
        low += static_cast<u32>(x[i]);
        high += (x[i] ^ half) >> 32;
    }
    sum += high;
    rest += low;
    if (!squared) return;
    u64 parts[6] = {};
    for (size_t i = 0; i < BLOCK; ++i) {
        const u64 a = static_cast<u32>(x[i]), b = (x[i] ^ half) >> 32, aa = a * a, ab = a * b, bb = b * b;
        parts[0] += static_cast<u32>(aa), parts[1] += aa >> 32;
        parts[2] += static_cast<u32>(ab), parts[3] += ab >> 32;
        parts[4] += static_cast<u32>(bb), parts[5] += bb >> 32;
    }
    for (int k = 0; k < 6; ++k) squares.add(parts[k], 32 * (k / 2 + k % 2) + (k == 2 || k == 3));
}

template <class Word>
void find_ends(const Word* x, Word half, Word& low, Word& high) {
    Word lowest = static_cast<Word>(-1), highest = 0;
    for (size_t i = 0; i < BLOCK; ++i) {
        const Word u = x[i] ^ half;
        lowest = u < lowest ? u : lowest;
        highest = u > highest ? u : highest;
    }
    low = lowest, high = highest;
}

// Whether each is signed: `half`, of the range of ranks, is 0 if not.
template <class Word>
void reduce_integers(const void* data, size_t n, int parts, Word half, int64_t* partial, Sum& total, Squares& squares) {
    const Word* samples = static_cast<const Word*>(data);
    Word copy[BLOCK];
    Ends<Word> ends;
    u64 sum = 0, rest = 0;  // of fewer than 2**32 samples
    for (size_t start = 0; start < n; start += BLOCK) {
        const size_t length = n - start < BLOCK ? n - start : BLOCK;
        const Word* block = samples + start;
        if (parts & EXTREMES) {
            Word low, high;
            find_ends(filled(block, length, block[0], copy), half, low, high);
            ends.meet(low, high, start);
        }
        if (!(parts & SUM)) continue;
        block = filled(block, length, half, copy);  // rank 0
        if constexpr (sizeof(Word) == 8)
            add_ranks(block, half, parts & SQUARES, sum, rest, squares);
        else
            add_ranks(block, half, parts & SQUARES, sum, squares);
    }
    if (parts & SUM) {
        constexpr int BITS = 8 * sizeof(Word);
        const int128 ranks = sizeof(Word) == 8 ? (static_cast<int128>(sum) << 32) + rest : sum;
        total.add(ranks - static_cast<int128>(half) * n, 0);
        if (half) squares.add(-ranks, BITS), squares.add(n, 2 * BITS - 2);
    }
    if (parts & EXTREMES) {
        while ((samples[ends.low_at] ^ half) != ends.low) ++ends.low_at;
        while ((samples[ends.high_at] ^ half) != ends.high) ++ends.high_at;
        partial[MIN_AT] = 2 * static_cast<int64_t>(ends.low_at);
        partial[MAX_AT] = 2 * static_cast<int64_t>(ends.high_at);
        // Keys are signed integers; those of uint64 are less by 2**63.
        const u64 less = sizeof(Word) == 8 ? u64(1) << 63 : half;
        partial[MIN_KEY] = static_cast<int64_t>(ends.low - less);
        partial[MAX_KEY] = static_cast<int64_t>(ends.high - less);
    }
}

// --- floats -----------------------------------------------------------------------------------------------------------

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
    static u64 with_sign(u64 number, Word bits) {
        const u64 minus = -static_cast<u64>(bits >> (8 * sizeof(Word) - 1));
        return (number ^ minus) - minus;
    }
};

typedef Format<uint16_t, 10, -24> Half;
typedef Format<u32, 23, -149> Single;
typedef Format<u64, 52, -1074> Double;

// What a block has: the largest finite magnitude, and whether there are others.
template <class F>
typename F::Word largest(const typename F::Word* x, bool& special) {
    typedef typename F::Word Word;
    Word most = 0, finite = 0;
    for (size_t i = 0; i < BLOCK; ++i) {
        const Word size = F::size(x[i]), counts = size & bits_if<Word>(size < F::INFINITE);
        most = size > most ? size : most;
        finite = counts > finite ? counts : finite;
    }
    special = most >= F::INFINITE;
    return finite;
}

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
    // Bits of a sample outside become 0.
    typename F::Word kept(typename F::Word bits) const {
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

template <class F, bool SQUARED>
void add_kept(const typename F::Word* x, Window<F> window, Sum& sum, Squares& squares) {
    constexpr int DIGIT = 22;
    constexpr u64 MASK = (u64(1) << DIGIT) - 1;
    u64 total = 0, low = 0, middle = 0, high = 0;
    for (size_t i = 0; i < BLOCK; ++i) {
        const typename F::Word bits = window.kept(x[i]);
        const u64 number = static_cast<u64>(F::integer(bits)) << window.above_base(bits);
        total += F::with_sign(number, bits);
        if (SQUARED) {
            const u64 a = number & MASK, b = number >> DIGIT;
            low += a * a, middle += a * b, high += b * b;
        }
    }
    sum.add(static_cast<int64_t>(total), window.power());
    if (SQUARED) {
        squares.add(low, 2 * window.power());
        squares.add(middle, 2 * window.power() + DIGIT + 1);
        squares.add(high, 2 * window.power() + 2 * DIGIT);
    }
}

void add_doubles(const u64* x, Window<Double> window, Sum& sum) {
    constexpr int DIGIT = 32;
    u64 low = 0, high = 0;
    for (size_t i = 0; i < BLOCK; ++i) {
        const u64 bits = window.kept(x[i]), integer = Double::integer(bits), shift = window.above_base(bits);
        const u64 a = static_cast<u32>(integer << shift), b = integer >> (DIGIT - shift);
        low += Double::with_sign(a, bits);
        high += Double::with_sign(b, bits);
    }
    sum.add(static_cast<int64_t>(low), window.power());
    sum.add(static_cast<int64_t>(high), window.power() + DIGIT);
}

void add_doubles_and_squares(const u64* x, Window<Double> window, Sum& sum, Squares& squares) {
    constexpr int DIGIT = 22;
    constexpr u64 MASK = (u64(1) << DIGIT) - 1;
    u64 low = 0, middle = 0, high = 0, aa = 0, ab = 0, ac = 0, bb = 0, bc = 0, cc = 0;
    for (size_t i = 0; i < BLOCK; ++i) {
        const u64 bits = window.kept(x[i]), integer = Double::integer(bits), shift = window.above_base(bits);
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
            if (squared) squares.add(static_cast<int128>(number) * number, 2 * power);
        }
    }
}

template <class F>
void add_block(const typename F::Word* x, typename F::Word most, bool squared, Sum& sum, Squares& squares) {
    const Window<F> window(most, squared ? Width<F, true>::VALUE : Width<F, false>::VALUE);
    if constexpr (F::FRACTION == Double::FRACTION) {
        if (squared) add_doubles_and_squares(x, window, sum, squares);
        else add_doubles(x, window, sum);
    } else {
        if (squared) add_kept<F, true>(x, window, sum, squares);
        else add_kept<F, false>(x, window, sum, squares);
    }
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
        bool special;
        const Word most = largest<F>(block, special);
        if (special) count_special<F>(block, start, partial, first_nan);
        if (parts & SUM) add_block<F>(block, most, parts & SQUARES, sum, squares);
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

// Types are numbered as in partial.py.
enum Type { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64 };

// Fills an empty partial from at most 2**31 samples.
extern "C" void check_samples(int type, int parts, const void* x, size_t n, int64_t* partial) {
    Sum sum;
    Squares squares;
    switch (type) {
        case INT8: reduce_integers<uint8_t>(x, n, parts, 0x80, partial, sum, squares); break;
        case UINT8: reduce_integers<uint8_t>(x, n, parts, 0, partial, sum, squares); break;
        case INT16: reduce_integers<uint16_t>(x, n, parts, 0x8000, partial, sum, squares); break;
        case UINT16: reduce_integers<uint16_t>(x, n, parts, 0, partial, sum, squares); break;
        case INT32: reduce_integers<u32>(x, n, parts, 0x80000000u, partial, sum, squares); break;
        case UINT32: reduce_integers<u32>(x, n, parts, 0, partial, sum, squares); break;
        case INT64: reduce_integers<u64>(x, n, parts, u64(1) << 63, partial, sum, squares); break;
        case UINT64: reduce_integers<u64>(x, n, parts, 0, partial, sum, squares); break;
        case FLOAT16: reduce_floats<Half>(x, n, parts, partial, sum, squares); break;
        case FLOAT32: reduce_floats<Single>(x, n, parts, partial, sum, squares); break;
        case FLOAT64: reduce_floats<Double>(x, n, parts, partial, sum, squares); break;
    }
    if (parts & SUM) sum.words(partial + SUM_AT);
    if (parts & SQUARES) squares.words(partial + SUM_AT + SUM_WORDS);
}
