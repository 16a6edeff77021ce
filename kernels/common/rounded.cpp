// Results from exact sums and samples, each rounded once, for rounded.py.

#include "big.hpp"

namespace {

// As in kernels/reduce/partial.py and finish.py.
enum { ASKED = 1, SAMPLES, NAN_COUNT, POSITIVE, NEGATIVE, MIN_KEY = 9, MAX_KEY };
enum { SUM = 1, SQUARES = 2, EXTREMES = 4, POWERS = 8 };
enum Kind { FLOAT, INTEGER, WIDE };  // WIDE: keys are less by 2**63
enum Operation { TOTAL, MEAN, VAR, STD, NORM, SKEWNESS, KURTOSIS };
constexpr double INFINITY_ = __builtin_inf(), NOT_A_NUMBER = __builtin_nan("");

// A sample: the bits of a float64, or an integer; of WIDE ones, unsigned.
Big sample_of(int64_t word, Kind kind) {
    const u64 bits = static_cast<u64>(word);
    if (kind == WIDE) return Big(bits);
    if (kind == INTEGER) return Big(&word, 1, 0);
    Big value = of_float(bits & ~(u64(1) << 63));
    value.negative = value.n && bits >> 63;
    return value;
}

// Where the words of a sum are in a line, how many, and how many 64-bit places above the unit 1 the lowest one is.
struct Place {
    int64_t column, words, low;
};

struct Lines {
    const int64_t* lines;
    uint64_t rows, width, kind;
    Place sums[4];  // of samples, squares, cubes and fourth powers

    // The sample of a key.
    Big sample(int64_t key) const {
        if (kind == WIDE) return sample_of(static_cast<int64_t>(static_cast<u64>(key) ^ u64(1) << 63), WIDE);
        const int64_t negative = static_cast<int64_t>(~static_cast<u64>(key) | u64(1) << 63);  // of a float
        return sample_of(kind == FLOAT && key < 0 ? negative : key, static_cast<Kind>(kind));
    }

    Big sum(uint64_t row, int power) const {
        const Place& place = sums[power - 1];
        return Big(lines + row * width + place.column, static_cast<int>(place.words), static_cast<int>(place.low));
    }
};

struct Product : Big {
    Product(const Big& a, const Big& b) { multiply(a, b, *this); }
};
struct Sum : Big {
    Sum(const Big& a, const Big& b, bool minus = false) { add(a, b, minus, *this); }
};

double signed_(const Big& n, const Big& d, bool root = false) {
    const double size = rounded(n, d, root);
    return n.negative ? -size : size;
}

// m3 / m2**1.5 or m4 / m2**2 - 3, of central moments, from n**3 times the third or n**4 times the fourth.
double standardized(const Lines& lines, uint64_t row, Operation operation, const Big& n, const Big& total,
                    const Big& squares, const Big& second) {
    if (!second.n) return NOT_A_NUMBER;
    const Big cubes = lines.sum(row, 3);
    const Product total2(total, total), n2(n, n), second2(second, second);
    if (operation == SKEWNESS) {
        const Product a(n2, cubes), b(Product(n, Big(3)), Product(total, squares)), c(Product(total2, total), Big(2));
        const Sum third(Sum(a, b, true), c);
        const double size = rounded(Product(third, third), Product(second2, second), true);
        return third.negative ? -size : size;
    }
    const Big fourths = lines.sum(row, 4);
    const Product a(Product(n2, n), fourths), b(Product(n2, Big(4)), Product(total, cubes));
    const Product c(Product(n, Big(6)), Product(total2, squares)), d(Product(total2, total2), Big(3));
    const Sum fourth(Sum(a, b, true), Sum(c, d, true));
    return signed_(Sum(fourth, Product(second2, Big(3)), true), second2);
}

double infinite(Operation operation, bool positive, bool negative) {
    if (operation == NORM) return INFINITY_;
    if ((operation != TOTAL && operation != MEAN) || (positive && negative)) return NOT_A_NUMBER;
    return positive ? INFINITY_ : -INFINITY_;
}

}  // namespace

extern "C" {

// Some operations on each line, to `results`, shape (operations, rows); `omit`: as if NaN were not there.
void finish_lines(const Lines* given, int omit, uint64_t ddof, const int64_t* operations, int number, double* results) {
    const Lines& lines = *given;
    bool of_second = false;
    for (int i = 0; i < number; ++i) of_second |= operations[i] != TOTAL && operations[i] != MEAN && operations[i] != NORM;
    for (uint64_t row = 0; row < lines.rows; ++row) {
        const int64_t* line = lines.lines + row * lines.width;
        const bool special = line[POSITIVE] || line[NEGATIVE], nan = !omit && line[NAN_COUNT];
        const u64 count = static_cast<u64>(line[SAMPLES] - (omit ? line[NAN_COUNT] : 0));
        const Big n(count), one(1), total = lines.sum(row, 1), squares = lines.sum(row, 2);
        Big second;  // n**2 times the second central moment
        if (of_second && !special && !nan) add(Product(n, squares), Product(total, total), true, second);
        for (int i = 0; i < number; ++i) {
            const Operation operation = static_cast<Operation>(operations[i]);
            double& result = results[i * lines.rows + row];
            if (nan) result = NOT_A_NUMBER;
            else if (special) result = infinite(operation, line[POSITIVE], line[NEGATIVE]);
            else if (operation == TOTAL) result = signed_(total, one);
            else if (operation == NORM) result = signed_(squares, one, true);
            else if (operation == MEAN) result = count ? signed_(total, n) : NOT_A_NUMBER;
            else if (operation == SKEWNESS || operation == KURTOSIS)
                result = standardized(lines, row, operation, n, total, squares, second);
            else result = count > ddof ? signed_(second, Product(n, Big(count - ddof)), operation == STD) : NOT_A_NUMBER;
        }
    }
}

// The first row in which (sum x)^2 <= n sum x^2, (sum x^2)^2 <= n sum x^4 or (sum x^3)^2 <= sum x^2 sum x^4 does not hold,
// of the finite samples, or the mean is not between the extremes where all are finite; the number of rows if there is none.
uint64_t first_apart(const Lines* given) {
    const Lines& lines = *given;
    for (uint64_t row = 0; row < lines.rows; ++row) {
        const int64_t* line = lines.lines + row * lines.width;
        if (!(line[ASKED] & SUM)) continue;
        const int64_t special = line[NAN_COUNT] + line[POSITIVE] + line[NEGATIVE];
        const Big n(static_cast<u64>(line[SAMPLES] - special)), total = lines.sum(row, 1);
        if (n.n && line[ASKED] & EXTREMES && !special &&
            (Sum(total, Product(n, lines.sample(line[MIN_KEY])), true).negative ||
             Sum(Product(n, lines.sample(line[MAX_KEY])), total, true).negative))
            return row;
        if (!(line[ASKED] & SQUARES)) continue;
        const Big squares = lines.sum(row, 2);
        const auto holds = [](const Big& sum, const Big& a, const Big& b) {
            const Product product(a, b);
            return !product.negative && compare(Product(sum, sum), product) <= 0;
        };
        if (!holds(total, n, squares)) return row;
        if (!(line[ASKED] & POWERS)) continue;
        const Big cubes = lines.sum(row, 3), fourths = lines.sum(row, 4);
        if (!holds(squares, n, fourths) || !holds(cubes, squares, fourths)) return row;
    }
    return lines.rows;
}

// low + (high - low) * part / whole of each pair of finite samples.
void interpolate(uint64_t number, int kind, const int64_t* low, const int64_t* high, const uint64_t* parts,
                 const uint64_t* wholes, double* results) {
    for (uint64_t i = 0; i < number; ++i) {
        const Product a(sample_of(low[i], static_cast<Kind>(kind)), Big(wholes[i] - parts[i]));
        const Product b(sample_of(high[i], static_cast<Kind>(kind)), Big(parts[i]));
        results[i] = signed_(Sum(a, b), Big(wholes[i]));
    }
}

// The same of the samples in `high` less that of those in `low`, both of the shape (2, number).
void interpolate_difference(uint64_t number, int kind, const int64_t* low, const int64_t* high, uint64_t low_part,
                            uint64_t high_part, uint64_t whole, double* results) {
    const auto at = [&](const int64_t* ends, uint64_t i, uint64_t part, Big& place) {
        const Product a(sample_of(ends[i], static_cast<Kind>(kind)), Big(whole - part));
        const Product b(sample_of(ends[number + i], static_cast<Kind>(kind)), Big(part));
        add(a, b, false, place);
    };
    Big lower, upper;
    for (uint64_t i = 0; i < number; ++i) {
        at(low, i, low_part, lower), at(high, i, high_part, upper);
        results[i] = signed_(Sum(upper, lower, true), Big(whole));
    }
}
}
