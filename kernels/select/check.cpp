// Which samples a condition keeps, for check.py, which shares no code with mask.py and goes another way: a machine with
// a stack of lanes, each of which has a value of 64 bits for every one of a block of samples.
//
// Integers of all widths are computed in 64 bits and wrapped to their own afterwards; floats are computed as double and
// rounded to their own afterwards, which is innocuous for + - * / and sqrt (53 bits are more than 2 * 24 + 2).

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

typedef uint64_t u64;
typedef int64_t i64;

constexpr size_t BLOCK = 1024;  // samples of a lane

}  // namespace

// These as in check.py.
enum Op {
    LOAD, NUMBER, TO_DOUBLE, ADD, SUBTRACT, MULTIPLY, DIVIDE, NEGATIVE, ABSOLUTE, SQRT,
    LESS, LESS_EQUAL, EQUAL, NOT_EQUAL, GREATER_EQUAL, GREATER, AND, OR, NOT
};
enum Type { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BOOL };

struct Step {
    u64 op, type, other;  // type of the first operand, or of the result of arithmetic; of the second operand
    u64 word;             // a number, or which of the values is loaded
};

namespace {

inline bool is_float(u64 type) { return type >= FLOAT16 && type <= FLOAT64; }
inline bool is_signed(u64 type) { return type < FLOAT16 && type % 2 == 0; }

inline double as_double(u64 word) {
    double number;
    std::memcpy(&number, &word, sizeof number);
    return number;
}

inline u64 as_word(double number) {
    u64 word;
    std::memcpy(&word, &number, sizeof word);
    return word;
}

double from_half(uint16_t half) {
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const double sign = half >> 15 ? -1 : 1;
    if (exponent == 31) return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24));
}

// Rounds to a multiple of the unit in the last place that half precision has there; ties to even, as in the sum.
double to_half(double number) {
    const double size = std::fabs(number);
    if (!(size < 65520)) return size >= 65520 ? std::copysign(INFINITY, number) : number;
    int exponent;
    std::frexp(size, &exponent);  // size < 2**exponent
    const double unit = std::ldexp(1.0, (exponent > -13 ? exponent : -13) + 41);  // 2**52 units of 2**(exponent - 11)
    return std::copysign((size + unit) - unit, number);
}

template <class T>
void load(const void* values, size_t n, u64* __restrict lane) {
    const T* numbers = static_cast<const T*>(values);
    for (size_t i = 0; i < n; ++i) lane[i] = static_cast<u64>(static_cast<i64>(numbers[i]));
}

void load(u64 type, const void* values, size_t first, size_t n, u64* lane) {
    const char* bytes = static_cast<const char*>(values);
    switch (type) {
        case INT8: return load<int8_t>(bytes + first, n, lane);
        case UINT8: return load<uint8_t>(bytes + first, n, lane);
        case INT16: return load<int16_t>(bytes + 2 * first, n, lane);
        case UINT16: return load<uint16_t>(bytes + 2 * first, n, lane);
        case INT32: return load<int32_t>(bytes + 4 * first, n, lane);
        case UINT32: return load<uint32_t>(bytes + 4 * first, n, lane);
        case INT64:
        case UINT64:
        case FLOAT64: std::memcpy(lane, bytes + 8 * first, 8 * n); return;
        case FLOAT16:
            for (size_t i = 0; i < n; ++i) {
                uint16_t half;
                std::memcpy(&half, bytes + 2 * (first + i), sizeof half);
                lane[i] = as_word(from_half(half));
            }
            return;
        case FLOAT32:
            for (size_t i = 0; i < n; ++i) {
                float number;
                std::memcpy(&number, bytes + 4 * (first + i), sizeof number);
                lane[i] = as_word(number);
            }
            return;
        case BOOL:
            for (size_t i = 0; i < n; ++i) lane[i] = bytes[first + i] != 0;
    }
}

// The number of a narrow type that a word holds modulo 2**bits.
void wrap(u64 type, u64* lane, size_t n) {
    if (type >= INT64) return;
    const int unused = 64 - (8 << type / 2);
    if (is_signed(type))
        for (size_t i = 0; i < n; ++i) lane[i] = static_cast<u64>(static_cast<i64>(lane[i] << unused) >> unused);
    else
        for (size_t i = 0; i < n; ++i) lane[i] = lane[i] << unused >> unused;
}

void narrow(u64 type, u64* lane, size_t n) {
    if (type == FLOAT32)
        for (size_t i = 0; i < n; ++i) lane[i] = as_word(static_cast<float>(as_double(lane[i])));
    if (type == FLOAT16)
        for (size_t i = 0; i < n; ++i) lane[i] = as_word(to_half(as_double(lane[i])));
}

template <class F>
void floats(u64* __restrict a, const u64* __restrict b, size_t n, F f) {
    for (size_t i = 0; i < n; ++i) a[i] = as_word(f(as_double(a[i]), as_double(b[i])));
}

template <class F>
void words(u64* __restrict a, const u64* __restrict b, size_t n, F f) {
    for (size_t i = 0; i < n; ++i) a[i] = f(a[i], b[i]);
}

template <class F>
void each_float(u64* a, size_t n, F f) {
    for (size_t i = 0; i < n; ++i) a[i] = as_word(f(as_double(a[i])));
}

template <class F>
void each_word(u64* a, size_t n, F f) {
    for (size_t i = 0; i < n; ++i) a[i] = f(a[i]);
}

void arithmetic(const Step& step, u64* a, const u64* b, size_t n) {
    if (is_float(step.type)) {
        switch (step.op) {
            case ADD: floats(a, b, n, [](double x, double y) { return x + y; }); break;
            case SUBTRACT: floats(a, b, n, [](double x, double y) { return x - y; }); break;
            case MULTIPLY: floats(a, b, n, [](double x, double y) { return x * y; }); break;
            case DIVIDE: floats(a, b, n, [](double x, double y) { return x / y; }); break;
            case NEGATIVE: each_word(a, n, [](u64 x) { return x ^ u64(1) << 63; }); break;
            case ABSOLUTE: each_word(a, n, [](u64 x) { return x << 1 >> 1; }); break;
            case SQRT: each_float(a, n, [](double x) { return std::sqrt(x); }); break;
        }
        return narrow(step.type, a, n);
    }
    switch (step.op) {
        case ADD: words(a, b, n, [](u64 x, u64 y) { return x + y; }); break;
        case SUBTRACT: words(a, b, n, [](u64 x, u64 y) { return x - y; }); break;
        case MULTIPLY: words(a, b, n, [](u64 x, u64 y) { return x * y; }); break;
        case NEGATIVE: each_word(a, n, [](u64 x) { return 0 - x; }); break;
        case ABSOLUTE:
            if (is_signed(step.type)) each_word(a, n, [](u64 x) { return static_cast<i64>(x) < 0 ? 0 - x : x; });
            break;
    }
    wrap(step.type, a, n);
}

template <class T>
bool compare(u64 op, T a, T b) {
    switch (op) {
        case LESS: return a < b;
        case LESS_EQUAL: return a <= b;
        case EQUAL: return a == b;
        case NOT_EQUAL: return a != b;
        case GREATER_EQUAL: return a >= b;
        default: return a > b;
    }
}

template <u64 OP>
void compared(const Step& step, u64* __restrict a, const u64* __restrict b, size_t n) {
    if (is_float(step.type)) {
        for (size_t i = 0; i < n; ++i) a[i] = compare(OP, as_double(a[i]), as_double(b[i]));
        return;
    }
    const bool left = is_signed(step.type), right = is_signed(step.other);
    if (left && right) {
        for (size_t i = 0; i < n; ++i) a[i] = compare(OP, static_cast<i64>(a[i]), static_cast<i64>(b[i]));
        return;
    }
    for (size_t i = 0; i < n; ++i) {
        const bool below = left && static_cast<i64>(a[i]) < 0, above = right && static_cast<i64>(b[i]) < 0;
        a[i] = below || above ? compare(OP, above - below, 0) : compare(OP, a[i], b[i]);
    }
}

void run(const Step& step, const void* const* values, size_t first, size_t n, u64*& top) {
    u64* const a = top - BLOCK;
    u64* const b = a - BLOCK;  // of two operands the first one
    switch (step.op) {
        case LOAD: load(step.type, values[step.word], first, n, top); top += BLOCK; return;
        case NUMBER:
            for (size_t i = 0; i < n; ++i) top[i] = step.word;
            top += BLOCK;
            return;
        case TO_DOUBLE:
            if (step.type == UINT64)
                for (size_t i = 0; i < n; ++i) a[i] = as_word(static_cast<double>(a[i]));
            else
                for (size_t i = 0; i < n; ++i) a[i] = as_word(static_cast<double>(static_cast<i64>(a[i])));
            return;
        case NEGATIVE:
        case ABSOLUTE:
        case SQRT: return arithmetic(step, a, a, n);
        case NOT:
            for (size_t i = 0; i < n; ++i) a[i] ^= 1;
            return;
    }
    top = a;
    switch (step.op) {
        case LESS: return compared<LESS>(step, b, a, n);
        case LESS_EQUAL: return compared<LESS_EQUAL>(step, b, a, n);
        case EQUAL: return compared<EQUAL>(step, b, a, n);
        case NOT_EQUAL: return compared<NOT_EQUAL>(step, b, a, n);
        case GREATER_EQUAL: return compared<GREATER_EQUAL>(step, b, a, n);
        case GREATER: return compared<GREATER>(step, b, a, n);
        case AND: return words(b, a, n, [](u64 x, u64 y) { return x & y; });
        case OR: return words(b, a, n, [](u64 x, u64 y) { return x | y; });
        default: return arithmetic(step, b, a, n);
    }
}

}  // namespace

// Numbers of the samples that are kept, in order; returns how many.
extern "C" size_t keep_samples(const Step* steps, size_t count, const void* const* values, size_t n, u64* lanes,
                               int64_t* kept) {
    size_t number = 0;
    for (size_t first = 0; first < n; first += BLOCK) {
        const size_t length = n - first < BLOCK ? n - first : BLOCK;
        u64* top = lanes;
        for (size_t i = 0; i < count; ++i) run(steps[i], values, first, length, top);
        for (size_t i = 0; i < length; ++i) {
            kept[number] = static_cast<int64_t>(first + i);
            number += lanes[i];
        }
    }
    return number;
}
