// Partials of many rows, for cpu_rows.py: one call for all rows, whose arithmetic is that of cpu.cpp where a row is long
// enough for it. The samples of short rows, and powers, are added to the accumulators one by one.

#include "cpu_float.hpp"
#include "cpu_integer.hpp"

namespace {

enum { CODE, ASKED, SAMPLES };
constexpr int POWERS = 8, SQUARES_AT = SUM_AT + SUM_WORDS, CUBES_AT = SQUARES_AT + SQUARE_WORDS;
constexpr int CUBE_BITS = 3264, FOURTH_BITS = 4352, CUBE_WORDS = 100, FOURTH_WORDS = 133;  // as in powers.py
constexpr int64_t NOWHERE = INT64_MAX, LEAST = INT64_MIN;
constexpr size_t SHORT = 64;  // floats that are added faster one by one

struct Powers {
    Accumulator<CUBE_WORDS, CUBE_BITS> cubes;
    Accumulator<FOURTH_WORDS, FOURTH_BITS> fourths;

    // Adds the powers of size * 2**exponent, whose square is two words.
    void add(uint64_t size, int exponent, bool negative) {
        const u128 square = static_cast<u128>(size) * size;
        const uint64_t low = static_cast<uint64_t>(square), high = static_cast<uint64_t>(square >> 64);
        cubes.add(static_cast<u128>(low) * size, 3 * exponent, negative);
        fourths.add(static_cast<u128>(low) * low, 4 * exponent, false);
        if (!high) return;
        cubes.add(static_cast<u128>(high) * size, 3 * exponent + 64, negative);
        fourths.add(static_cast<u128>(low) * high, 4 * exponent + 65, false);
        fourths.add(static_cast<u128>(high) * high, 4 * exponent + 128, false);
    }

    void add(double value) {
        const uint64_t bits = bits_as<uint64_t>(value), fraction = bits & ((uint64_t(1) << 52) - 1);
        const int exponent = static_cast<int>(bits >> 52 & 0x7ff);
        if (exponent == 0x7ff) return;
        add(exponent ? fraction | uint64_t(1) << 52 : fraction, (exponent ? exponent : 1) - 1075, bits >> 63);
    }
};

template <class T>
void add_each(const T* samples, size_t n, Extremes<T>& extremes, Result& result) {
    for (size_t i = 0; i < n; ++i) {
        const T value = samples[i];
        if (value != value) {
            if (!result.partial[NAN_COUNT]++ && result.parts & EXTREMES) result.partial[FIRST_NAN] = 2 * static_cast<int64_t>(i);
            continue;
        }
        if (result.parts & EXTREMES) {
            if (!extremes.known || value < extremes.least) extremes.least = value, extremes.least_at = i;
            if (!extremes.known || value > extremes.greatest) extremes.greatest = value, extremes.greatest_at = i;
            extremes.known = true;
        }
        if (value - value != 0) {
            ++result.partial[value > 0 ? POSITIVE : NEGATIVE];
            continue;
        }
        if (result.parts & SUM) result.sum.add(static_cast<double>(value));
        if (result.parts & SQUARES) result.squares.add_square(static_cast<double>(value));
    }
}

template <class T>
void reduce_row(const T* samples, size_t n, Result& result, Powers* powers) {
    if constexpr (static_cast<T>(0.5) == 0) {
        reduce_integers(samples, n, result);
        for (size_t i = 0; powers && i < n; ++i) {
            const bool negative = samples[i] < 0;
            const uint64_t size = static_cast<uint64_t>(samples[i]);
            powers->add(negative ? -size : size, 0, negative);
        }
    } else {
        if (n < SHORT) {
            Extremes<T> extremes;
            add_each(samples, n, extremes, result);
            place_extremes(reinterpret_cast<const typename Float<T>::Bits*>(samples), extremes, result);
        } else {
            reduce_floats<T>(samples, n, result);
        }
        for (size_t i = 0; powers && i < n; ++i) powers->add(static_cast<double>(samples[i]));
    }
}

struct Halves {
    uint16_t bits;
};

void reduce_row(const Halves* samples, size_t n, Result& result, Powers* powers) {
    const uint16_t* halves = reinterpret_cast<const uint16_t*>(samples);
    if (n < SHORT) {
        float wide[SHORT];
        for (size_t i = 0; i < n; ++i) wide[i] = widened(halves[i]);
        Extremes<float> extremes;
        add_each(wide, n, extremes, result);
        place_extremes(halves, extremes, result);
    } else {
        reduce_halves(halves, n, result);
    }
    for (size_t i = 0; powers && i < n; ++i) powers->add(static_cast<double>(widened(halves[i])));
}

// Where rows are, and which entries of a partial their lines have.
struct Table {
    size_t rows;
    const int64_t *begins, *ends, *entries;
    size_t width;
    int64_t* lines;
};

template <class T>
void reduce_rows_of(int64_t type, int64_t parts, const void* data, const Table& table) {
    const T* samples = static_cast<const T*>(data);
    int64_t partial[CUBES_AT + CUBE_WORDS + FOURTH_WORDS] = {type, parts};
    for (size_t row = 0; row < table.rows; ++row) {
        const size_t n = static_cast<size_t>(table.ends[row] - table.begins[row]);
        partial[SAMPLES] = static_cast<int64_t>(n);
        for (int at = NAN_COUNT; at < FIRST_NAN; ++at) partial[at] = 0;
        for (int at = FIRST_NAN; at <= MIN_KEY; ++at) partial[at] = NOWHERE;
        partial[MAX_KEY] = LEAST;
        Result result{partial, static_cast<int>(parts), {}, {}};
        if (parts & POWERS) {
            Powers powers;
            if (n) reduce_row(samples + table.begins[row], n, result, &powers);
            powers.cubes.words(partial + CUBES_AT);
            powers.fourths.words(partial + CUBES_AT + CUBE_WORDS);
        } else if (n) {
            reduce_row(samples + table.begins[row], n, result, nullptr);
        }
        result.finish();
        int64_t* line = table.lines + row * table.width;
        for (size_t i = 0; i < table.width; ++i) line[i] = partial[table.entries[i]];
    }
}

// Types are numbered as in partial.py.
enum Type { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64 };

}  // namespace

// Rows of fewer than 2**29 samples, each from its begin to its end.
extern "C" void reduce_rows(int type, int parts, const void* samples, size_t rows, const int64_t* begins,
                            const int64_t* ends, const int64_t* entries, size_t width, int64_t* lines) {
    const Table table{rows, begins, ends, entries, width, lines};
    switch (type) {
        case INT8: reduce_rows_of<int8_t>(type, parts, samples, table); break;
        case UINT8: reduce_rows_of<uint8_t>(type, parts, samples, table); break;
        case INT16: reduce_rows_of<int16_t>(type, parts, samples, table); break;
        case UINT16: reduce_rows_of<uint16_t>(type, parts, samples, table); break;
        case INT32: reduce_rows_of<int32_t>(type, parts, samples, table); break;
        case UINT32: reduce_rows_of<uint32_t>(type, parts, samples, table); break;
        case INT64: reduce_rows_of<int64_t>(type, parts, samples, table); break;
        case UINT64: reduce_rows_of<uint64_t>(type, parts, samples, table); break;
        case FLOAT16: reduce_rows_of<Halves>(type, parts, samples, table); break;
        case FLOAT32: reduce_rows_of<float>(type, parts, samples, table); break;
        case FLOAT64: reduce_rows_of<double>(type, parts, samples, table); break;
    }
}
