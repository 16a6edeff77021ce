// Partials of many rows for check_rows.py, which shares no code with cpu_rows.cpp: sums are the buckets of check.cpp, and of
// powers the digits of check_powers.cpp, to which samples are added one by one. Buckets that a row used are cleared.

#include "check_digits.hpp"
#include "check_float.hpp"

namespace {

constexpr int POWERS = 8, SQUARES_AT = SUM_AT + SUM_WORDS, CUBES_AT = SQUARES_AT + SQUARE_WORDS;

// What is seen of a row.
struct Row {
    int64_t partial[CUBES_AT + CUBE_WORDS + FOURTH_WORDS];
    int parts;
    Sum sum;
    Squares squares;
    Cubes cubes;
    Fourths fourths;

    void add_square(u64 number, int power) {
        const uint128 square = static_cast<uint128>(number) * number;
        squares.add(static_cast<u64>(square), power);
        if (square >> 64) squares.add(static_cast<u64>(square >> 64), power + 64);
    }

    void add_powers(u64 number, bool negative, int power) {
        const u64 minus = -static_cast<u64>(negative);
        if (number >> 32) add_long<u64>(&number, &minus, 1, power, cubes, fourths);
        else add_short<u64>(&number, &minus, 1, power, cubes, fourths);
    }

    void begin(size_t n) {
        partial[SAMPLES] = static_cast<int64_t>(n);
        for (int at = NAN_COUNT; at <= NEGATIVE; ++at) partial[at] = 0;
        for (int at = FIRST_NAN; at <= MIN_KEY; ++at) partial[at] = NOWHERE;
        partial[MAX_KEY] = -NOWHERE - 1;
    }

    void finish() {
        sum.words(partial + SUM_AT), squares.words(partial + SQUARES_AT);
        sum.clear(), squares.clear();
        if (!(parts & POWERS)) return;
        cubes.words(partial + CUBES_AT), fourths.words(partial + CUBES_AT + CUBE_WORDS);
        cubes.clear(), fourths.clear();
    }
};

// Integers as ranks, whose sums give those of the samples as in check_integer.hpp; powers of magnitudes.
template <class Word, Word HALF>
struct OfIntegers {
    static void add(const void* data, int64_t begin, size_t n, Row& row) {
        const Word* x = static_cast<const Word*>(data) + begin;
        constexpr int BITS = 8 * sizeof(Word);
        Ends<Word> ends;
        uint128 total = 0, low = 0, high = 0;
        for (size_t i = 0; i < n; ++i) {
            const Word rank = x[i] ^ HALF;
            ends.meet(rank, rank, i);
            const uint128 square = static_cast<uint128>(rank) * rank;
            total += rank;
            low += static_cast<u64>(square);
            high += square >> 64;
            if (!(row.parts & POWERS)) continue;
            const bool negative = HALF && rank < HALF;
            const u64 size = static_cast<u64>(negative ? static_cast<Word>(HALF - rank) : static_cast<Word>(rank - HALF));
            row.add_powers(size, negative, 0);
        }
        if (row.parts & SUM) row.sum.add(static_cast<int128>(total) - static_cast<int128>(HALF) * n, 0);
        if (row.parts & SQUARES) {
            row.squares.add(static_cast<int128>(low), 0), row.squares.add(static_cast<int128>(high), 64);
            if (HALF) row.squares.add(-static_cast<int128>(total), BITS), row.squares.add(n, 2 * BITS - 2);
        }
        if (!(row.parts & EXTREMES)) return;
        const u64 less = BITS == 64 ? u64(1) << 63 : HALF;
        row.partial[MIN_AT] = 2 * static_cast<int64_t>(ends.low_at);
        row.partial[MAX_AT] = 2 * static_cast<int64_t>(ends.high_at);
        row.partial[MIN_KEY] = static_cast<int64_t>(ends.low - less);
        row.partial[MAX_KEY] = static_cast<int64_t>(ends.high - less);
    }
};

template <class F>
struct OfFloats {
    static void add(const void* data, int64_t begin, size_t n, Row& row) {
        typedef typename F::Word Word;
        const Word* x = static_cast<const Word*>(data) + begin;
        Ends<Word> ends;
        for (size_t i = 0; i < n; ++i) {
            const Word size = F::size(x[i]);
            if (size > F::INFINITE) {
                if (!row.partial[NAN_COUNT]++ && row.parts & EXTREMES) row.partial[FIRST_NAN] = 2 * static_cast<int64_t>(i);
                continue;
            }
            ends.meet(F::rank(x[i]), F::rank(x[i]), i);
            if (size == F::INFINITE) {
                ++row.partial[x[i] < F::SIGN ? POSITIVE : NEGATIVE];
                continue;
            }
            const int exponent = static_cast<int>(size >> F::FRACTION), power = exponent - (exponent > 0) + F::LEAST;
            const u64 number = F::integer(size);
            if (row.parts & SUM) row.sum.add(static_cast<int64_t>(F::with_sign(number, x[i])), power);
            if (row.parts & SQUARES) row.add_square(number, 2 * power);
            if (row.parts & POWERS) row.add_powers(number, x[i] >= F::SIGN, power);
        }
        if (!(row.parts & EXTREMES) || !ends.known) return;
        row.partial[MIN_AT] = 2 * static_cast<int64_t>(ends.low_at) + (x[ends.low_at] == F::SIGN);
        row.partial[MAX_AT] = 2 * static_cast<int64_t>(ends.high_at) + (x[ends.high_at] == F::SIGN);
        row.partial[MIN_KEY] = key<F>(ends.low);
        row.partial[MAX_KEY] = key<F>(ends.high);
    }
};

typedef void (*Add)(const void* data, int64_t begin, size_t n, Row& row);

// By type, which are numbered as in partial.py.
constexpr Add ADD[] = {OfIntegers<uint8_t, 0x80>::add, OfIntegers<uint8_t, 0>::add, OfIntegers<uint16_t, 0x8000>::add,
                       OfIntegers<uint16_t, 0>::add, OfIntegers<u32, 0x80000000u>::add, OfIntegers<u32, 0>::add,
                       OfIntegers<u64, u64(1) << 63>::add, OfIntegers<u64, 0>::add, OfFloats<Half>::add, OfFloats<Single>::add,
                       OfFloats<Double>::add};

}  // namespace

extern "C" {

size_t state_bytes() { return sizeof(Row); }

// Rows of at most 2**31 samples, each from its begin to its end; the state is zeros, and is zeros again in the end but for
// the partial. A line has some entries of a partial.
void check_rows(int type, int parts, const void* samples, size_t rows, const int64_t* begins, const int64_t* ends,
                const int64_t* entries, size_t width, int64_t* lines, Row* row) {
    row->parts = parts;
    row->partial[CODE] = type, row->partial[ASKED] = parts;
    for (size_t number = 0; number < rows; ++number) {
        const size_t n = static_cast<size_t>(ends[number] - begins[number]);
        row->begin(n);
        if (n) ADD[type](samples, begins[number], n, *row);
        row->finish();
        for (size_t i = 0; i < width; ++i) lines[number * width + i] = row->partial[entries[i]];
    }
}
}
