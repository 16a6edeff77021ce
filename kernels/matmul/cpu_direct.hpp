// Numbers of matrices, lines of them as integers, and the rounding of sums, for cpu_direct.cpp.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace {

using std::size_t;
using Wide = __int128;

constexpr size_t SIDE = 64, DEPTH = 256;  // rows and columns of a tile; products of a sum at a time
constexpr size_t LENGTH = DEPTH + 8;      // lines a power of two apart would evict each other from the cache

constexpr double MOST = 0x1p55, LEAST = 0x1p-1022;  // magnitude of an integer; of a normal number

// Numbered as in cpu_direct.py.
enum Type { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT32, FLOAT64 };

}  // namespace

// Rows of a stack of matrices, whose numbers follow one another. `of` has the number of the matrix for each product.
struct Stack {
    const void* numbers;
    int64_t type, matrix, row;  // numbers from one matrix, or row, to the next
    const int32_t* of;
};

struct Format {
    int64_t precision, least, kept, bits, lost, half_way;  // as in formats.py
    double share, most_total;                                   // likewise
    uint64_t infinity, sign;                                    // bits
};

namespace {

template <class T, class To>
void copy(const void* numbers, int64_t at, size_t n, To* to) {
    const T* from = static_cast<const T*>(numbers) + at;
    for (size_t i = 0; i < n; ++i) to[i] = static_cast<To>(from[i]);
}

// Some numbers that follow one another; integers from 2**63 on become negative.
template <class To>
void load(const Stack& stack, int64_t at, size_t n, To* to) {
    switch (stack.type) {
        case INT8: copy<int8_t>(stack.numbers, at, n, to); break;
        case UINT8: copy<uint8_t>(stack.numbers, at, n, to); break;
        case INT16: copy<int16_t>(stack.numbers, at, n, to); break;
        case UINT16: copy<uint16_t>(stack.numbers, at, n, to); break;
        case INT32: copy<int32_t>(stack.numbers, at, n, to); break;
        case UINT32: copy<uint32_t>(stack.numbers, at, n, to); break;
        case INT64:
        case UINT64: copy<int64_t>(stack.numbers, at, n, to); break;
        case FLOAT32: copy<float>(stack.numbers, at, n, to); break;
        case FLOAT64: copy<double>(stack.numbers, at, n, to); break;
    }
}

// Of an exponent that normal numbers have.
inline double power_of_two(int64_t exponent) {
    const uint64_t bits = static_cast<uint64_t>(exponent + 1023) << 52;
    double power;
    std::memcpy(&power, &bits, sizeof power);
    return power;
}

// The exponent of the least power of two above a magnitude; 0 for zero.
inline int64_t exponent_above(double x) {
    int exponent;
    std::frexp(x, &exponent);
    return exponent;
}

inline int leading_zeros(uint64_t word) { return __builtin_clzll(word); }

// The bits of an integer times a power of two, rounded to nearest, ties to even; infinity if too large.
inline uint64_t rounded(Wide sum, int64_t exponent, const Format& format) {
    if (sum == 0) return 0;
    const Wide sign = sum >> 127;
    const unsigned __int128 magnitude = static_cast<unsigned __int128>((sum ^ sign) - sign);
    const uint64_t high = static_cast<uint64_t>(magnitude >> 64), low = static_cast<uint64_t>(magnitude);
    const int zeros = high ? leading_zeros(high) : 64 + leading_zeros(low);
    const unsigned __int128 shifted = magnitude << zeros;
    // 63 bits from the first one on, the last of which says whether any bit below is set; times 2**last.
    const uint64_t top = static_cast<uint64_t>(shifted >> 64);
    const uint64_t head = top >> 1 | (top & 1) | (static_cast<uint64_t>(shifted) != 0);
    const int64_t last = 65 - zeros + exponent, normal = last + 63 - format.precision;
    const int64_t quantum = normal > format.least ? normal : format.least, dropped = quantum - last;  // at least 10
    uint64_t kept = 0;
    if (dropped < 64) kept = (head + (uint64_t(1) << (dropped - 1)) - 1 + (head >> dropped & 1)) >> dropped;
    uint64_t bits = (static_cast<uint64_t>(quantum - format.least) << (format.precision - 1)) + kept;
    if (bits > format.infinity) bits = format.infinity;
    return bits | (static_cast<uint64_t>(sign) & format.sign);
}

// A finite number times a power of two, likewise; +0 for a zero of either sign.
uint64_t rounded(double x, int64_t exponent, const Format& format) {
    int own;
    const double fraction = std::frexp(x, &own);
    return rounded(static_cast<Wide>(fraction * 0x1p53), exponent + own - 53, format);
}

// Rows of A or columns of B.
struct Lines {
    double largest[SIDE];  // of the finite magnitudes
    uint8_t special[SIDE];  // have infinities or NaN
    int64_t exponent[SIDE];
    double first[SIDE], second[SIDE];  // powers of two that scale a line; one might overflow
    double lost[SIDE];                 // the farthest that rounding moved a number
    double size[SIDE], loss[SIDE];     // N of docs/matmul.md, and 2**(l + p) or 0

    void begin(size_t number) {
        for (size_t i = 0; i < number; ++i) largest[i] = lost[i] = size[i] = special[i] = 0;
    }
    void settle(size_t number, int64_t kept) {
        for (size_t i = 0; i < number; ++i) {
            const int64_t shift = kept - (exponent[i] = exponent_above(largest[i]));
            first[i] = power_of_two(shift / 2), second[i] = power_of_two(shift - shift / 2);
        }
    }
    void finish(size_t number, const Format& format) {
        for (size_t i = 0; i < number; ++i) {
            const int64_t own = exponent_above(lost[i]) - format.kept + format.bits, least = 1 - format.lost;
            loss[i] = lost[i] == 0 ? 0 : power_of_two((own < least ? least : own) + format.precision);
        }
    }
};

inline void measure(double x, double& largest, uint8_t& special) {
    const double magnitude = std::fabs(x), finite = magnitude < INFINITY ? magnitude : 0;
    special |= !(magnitude < INFINITY);
    largest = largest < finite ? finite : largest;
}

// The integer of a number, and its top bits, without those below; of infinities and NaN, whose lines are not multiplied, 0.
inline int64_t taken(double x, double first, double second, int64_t below, double& lost, double& size, int32_t& top) {
    const double scaled = x * first * second, nearest = __builtin_rint(scaled);
    const double whole = std::fabs(nearest) <= MOST ? nearest : 0;
    double moved = std::fabs(scaled - whole);
    moved = x != 0 && whole == 0 && moved < LEAST ? LEAST : moved;  // scaling may lose it
    lost = lost < moved ? moved : lost;
    const int64_t integer = static_cast<int64_t>(whole);
    top = static_cast<int32_t>((integer < 0 ? -integer : integer) >> below);
    size += top + (x != 0);
    return integer;
}

}  // namespace
