// Numbers of all dtypes as integers, what they are modulo small numbers, and back: the arithmetic of modular.cu.
#pragma once

using i64 = long long;
using u64 = unsigned long long;
using u32 = unsigned;
using u16 = unsigned short;
using u8 = unsigned char;
using i8 = signed char;

// MODULI in modular.py: pairwise coprime.
constexpr int MODULI[] = {256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223,
                          217, 211, 199, 197, 193, 191, 181, 179, 173, 167};
constexpr int MOST_MODULI = sizeof(MODULI) / sizeof(MODULI[0]);

// Integers are cut into pieces of so many bits, the last one with the sign: sums of pieces times a modulus stay exact
// in float32.
constexpr int PIECE = 14;

__device__ inline double power_of_two(int exponent) { return __longlong_as_double(i64(exponent + 1023) << 52); }

// Formats of modular.py. KEPT: bits that the largest number of a row or column is rounded to.
template <typename Bits, typename Large_, int PRECISION_, int LEAST_, int KEPT_> struct Float {
    using Storage = Bits;
    using Large = Large_;  // a magnitude, of a type that atomics take
    using Whole = i64;
    static constexpr int PRECISION = PRECISION_, LEAST = LEAST_, KEPT = KEPT_, TOP = 3 - PRECISION - LEAST;
    static constexpr int PIECES = (KEPT + PIECE) / PIECE;
    static constexpr bool SCALED = true;
    static constexpr u64 SIGN = u64(1) << (8 * sizeof(Bits) - 1), FRACTION = (u64(1) << (PRECISION - 1)) - 1;
    static constexpr u64 INFINITE = SIGN - 1 - FRACTION, NOT_A_NUMBER = INFINITE + (FRACTION + 1) / 2;

    // Of a magnitude: infinite or no number at all.
    static __device__ bool wild(u64 magnitude) { return magnitude >= INFINITE; }

    // The exponent e for which a magnitude is at least 2^(e-1) and below 2^e; 0 for zero.
    static __device__ int exponent(u64 magnitude) {
        const int field = int(magnitude >> (PRECISION - 1));
        if (field) return field - 1 + LEAST + PRECISION;
        return magnitude ? 64 - __clzll(i64(magnitude)) + LEAST : 0;
    }

    // A number times 2^(KEPT - exponent), rounded to an integer, ties to even; zero for what is not finite.
    static __device__ Whole whole(Storage bits, int exponent) {
        const u64 magnitude = bits & (SIGN - 1);
        if (wild(magnitude)) return 0;
        const int field = int(magnitude >> (PRECISION - 1));
        const u64 significand = field ? (magnitude & FRACTION) + FRACTION + 1 : magnitude;
        const int shift = (field ? field - 1 : 0) + LEAST + KEPT - exponent;
        u64 kept = 0;
        if (shift >= 0) {
            kept = significand << shift;
        } else if (shift >= -PRECISION) {
            kept = significand >> -shift;
            const u64 rest = significand - (kept << -shift), half = u64(1) << (-shift - 1);
            kept += rest > half || (rest == half && (kept & 1));
        }
        return bits & SIGN ? -Whole(kept) : Whole(kept);
    }

    // How far that moved it, d: the least exponent with d < 2^exponent, relative to the units of a line (modular_bound.cuh)
    // and never below -511, plus 512; zero where it is the same number.
    static __device__ int lost(Storage bits, Whole whole, int exponent) {
        const u64 magnitude = bits & (SIGN - 1), kept = u64(whole < 0 ? -whole : whole);
        if (wild(magnitude)) return 0;
        const int field = int(magnitude >> (PRECISION - 1));
        const u64 significand = field ? (magnitude & FRACTION) + FRACTION + 1 : magnitude;
        const int shift = (field ? field - 1 : 0) + LEAST + KEPT - exponent;
        if (shift >= 0) return 0;
        const u64 back = kept ? kept << -shift : 0;
        const u64 moved = significand > back ? significand - back : back - significand;
        return moved ? max(64 - __clzll(i64(moved)) + shift - KEPT + 7, -511) + 512 : 0;
    }

    // Of such an integer, of which the largest has KEPT bits, the first seven.
    static __device__ u32 magnitude(Whole whole) { return u32(u64(whole < 0 ? -whole : whole) >> (KEPT - 7)); }

    // The number as float64, exactly; of one that is not finite whatever comes.
    static __device__ double real(Storage bits) {
        if constexpr (sizeof(Storage) == 8) {
            return __longlong_as_double(i64(bits));
        } else {
            const u64 magnitude = bits & (SIGN - 1);
            const int field = int(magnitude >> (PRECISION - 1));
            const double significand = double(i64(field ? (magnitude & FRACTION) + FRACTION + 1 : magnitude));
            const double value = significand * power_of_two((field ? field - 1 : 0) + LEAST);
            return bits & SIGN ? -value : value;
        }
    }
};
using Float16 = Float<u16, u32, 11, -24, 31>;
using Float32 = Float<u32, u32, 24, -149, 31>;
using Float64 = Float<u64, u64, 53, -1074, 55>;

template <typename T> struct WholeOf { using Type = i64; };
template <> struct WholeOf<u64> { using Type = u64; };

template <typename T> struct Integer {
    using Storage = T;
    using Large = u32;  // there are no scales
    using Whole = typename WholeOf<T>::Type;
    static constexpr bool SCALED = false;
    static constexpr int PIECES = sizeof(T) == 1 ? 1 : (8 * int(sizeof(T)) + PIECE) / PIECE;
    static __device__ int exponent(u64) { return 0; }
    static __device__ Whole whole(T value, int) { return Whole(value); }
};

// 2^(PIECE * piece) modulo a modulus, the one nearest to zero.
constexpr int power(int piece, int modulus) {
    int value = 1;
    for (int i = 0; i < piece * PIECE; ++i) value = value * 2 % modulus;
    return 2 * value > modulus ? value - modulus : value;
}

// Next to this number a float32 has no fraction: adding it rounds to the nearest integer, in the last bits of the sum.
constexpr float MAGIC = 12582912;

// What an integer in pieces is modulo a modulus, nearest to zero, in the last eight bits. All sums here are integers below 2^23,
// and the quotient is off by so little before it is rounded that the rest is by less than a quarter.
template <int PIECES> __device__ u32 residue(const float (&pieces)[PIECES], int modulus, const float (&powers)[PIECES]) {
    float sum = pieces[0];
#pragma unroll
    for (int i = 1; i < PIECES; ++i) sum = fma(pieces[i], powers[i], sum);
    const float quotient = fma(sum, 1.0f / float(modulus), MAGIC) - MAGIC;
    return __float_as_uint(fma(quotient, -float(modulus), sum) + MAGIC);
}

// A sum of products of residues, below 2^28, modulo a modulus: from 0 on.
__device__ inline u32 reduced(int sum, int modulus, float inverse) {
    const int quotient = int(__float_as_uint(fma(float(sum), inverse, MAGIC)) - __float_as_uint(MAGIC));
    const int rest = sum - quotient * modulus;
    return u32(rest < 0 ? rest + modulus : rest);
}

// No larger than a u32 can be.
__device__ inline u32 limited_sum(u32 a, u32 b) { return a + b < a ? ~u32(0) : a + b; }

// --- from residues back to the integer ---------------------------------------------------------------------------------

// With M the product of the moduli, an integer is the sum of residues times weights, less a multiple of M. Each weight
// is 1 modulo its own modulus m and 0 modulo the others: M / m times the inverse of M / m.
template <int COUNT> struct Weights {
    static_assert(COUNT >= 1 && COUNT <= MOST_MODULI, "no more moduli than there are");
    static constexpr int NEEDED = (8 * COUNT + 13 + 31) / 32;  // 13 bits for the sum of residues
    static constexpr int WORDS = NEEDED < 3 ? 3 : NEEDED;
    u32 product[WORDS] = {};
    u32 weight[COUNT][WORDS] = {};
    u32 share[COUNT] = {};  // of the weight in M, in units of 2^-32

    static constexpr void multiply(u32 (&number)[WORDS], u32 factor) {
        u64 carry = 0;
        for (int i = 0; i < WORDS; ++i) {
            carry += u64(number[i]) * factor;
            number[i] = u32(carry);
            carry >>= 32;
        }
    }
    constexpr Weights() {
        product[0] = 1;
        for (int i = 0; i < COUNT; ++i) multiply(product, u32(MODULI[i]));
        for (int i = 0; i < COUNT; ++i) {
            int others = 1, inverse = 1;
            weight[i][0] = 1;
            for (int j = 0; j < COUNT; ++j) {
                if (j == i) continue;
                multiply(weight[i], u32(MODULI[j]));
                others = others * MODULI[j] % MODULI[i];
            }
            while (others * inverse % MODULI[i] != 1) ++inverse;
            multiply(weight[i], u32(inverse));
            share[i] = u32((u64(inverse) << 32) / u64(MODULI[i]));
        }
    }
};

// The integer in two's complement, from the sums of residues times weights and times shares. It is smaller than M / 2
// by a 64th of M at least (moduli_for in modular.py), so that the shares, rounded as they are, tell the multiple of M.
template <int COUNT, int WORDS> __device__ void to_integer(const u64 (&sums)[WORDS], u64 shares, u32 (&words)[WORDS]) {
    constexpr Weights<COUNT> table;
    const u32 multiple = u32((shares + (u64(1) << 31)) >> 32);
    u64 carry = 0, borrow = 0;
#pragma unroll
    for (int i = 0; i < WORDS; ++i) {
        carry += sums[i];
        borrow += u64(table.product[i]) * multiple;
        words[i] = u32(carry) - u32(borrow);
        borrow = (borrow >> 32) + (u32(carry) < u32(borrow));
        carry >>= 32;
    }
}

// Residues of four elements, those past `size` zero.
__device__ inline u32 four_residues(const u8* plane, i64 element, i64 size) {
    if (element + 4 <= size) return *reinterpret_cast<const u32*>(plane + element);
    u32 word = 0;
    for (int i = 0; element + i < size; ++i) word |= u32(plane[element + i]) << (8 * i);
    return word;
}

// The integers of four elements, each handed to a function of its number and its words.
template <int COUNT, typename Use>
__device__ void with_integers(const u8* products, i64 stride, i64 size, Use use) {
    constexpr Weights<COUNT> table;
    constexpr int WORDS = Weights<COUNT>::WORDS;
    const i64 element = 4 * (i64(blockIdx.x) * blockDim.x + threadIdx.x);
    u64 sums[4][WORDS] = {}, shares[4] = {};
#pragma unroll
    for (int modulus = 0; modulus < COUNT; ++modulus) {
        const u32 four = four_residues(products + modulus * stride, element, size);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 residue = four >> (8 * i) & 0xff;
            shares[i] += u64(table.share[modulus]) * residue;
#pragma unroll
            for (int k = 0; k < WORDS; ++k) sums[i][k] += u64(table.weight[modulus][k]) * residue;
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (element + i >= size) return;
        u32 words[WORDS];
        to_integer<COUNT>(sums[i], shares[i], words);
        use(element + i, words);
    }
}

// An integer times a power of two as the bits of a float, rounded once to the nearest, ties to even.
template <typename F, int WORDS> __device__ typename F::Storage to_float(u32 (&words)[WORDS], int exponent) {
    const bool negative = words[WORDS - 1] >> 31;
    u32 carry = negative;
#pragma unroll
    for (int i = 0; i < WORDS; ++i) {
        words[i] = (negative ? ~words[i] : words[i]) + carry;
        carry = carry && words[i] == 0;
    }
    // The first word that is not zero goes to the top.
    int last = 32 * WORDS - 64 + exponent;
#pragma unroll
    for (int step = 0; step < WORDS - 1; ++step) {
        if (words[WORDS - 1] == 0) {
#pragma unroll
            for (int i = WORDS - 1; i > 0; --i) words[i] = words[i - 1];
            words[0] = 0;
            last -= 32;
        }
    }
    if (words[WORDS - 1] == 0) return 0;
    const int zeros = __clz(int(words[WORDS - 1]));
    u64 head = (u64(words[WORDS - 1]) << 32 | words[WORDS - 2]) << zeros;
    head |= u64(words[WORDS - 3]) << zeros >> 32;
    bool more = words[WORDS - 3] << zeros != 0;
#pragma unroll
    for (int i = 0; i < WORDS - 3; ++i) more |= words[i] != 0;
    last -= zeros;
    // The number is head * 2^last, and more if there is more.
    const u64 sign = negative ? F::SIGN : 0, half = u64(1) << 63;
    if (last + 64 > F::TOP) return typename F::Storage(sign | F::INFINITE);
    const int quantum = max(last + 64 - F::PRECISION, F::LEAST), dropped = quantum - last;
    if (dropped > 64) return typename F::Storage(sign);
    const u64 kept = dropped == 64 ? 0 : head >> dropped, rest = dropped == 64 ? head : head << (64 - dropped);
    const bool up = rest > half || (rest == half && (more || (kept & 1)));
    return typename F::Storage(sign | ((u64(quantum - F::LEAST) << (F::PRECISION - 1)) + kept + up));
}

// The same as an integer; whether it fits.
template <typename T, int WORDS> __device__ bool to_fitting(const u32 (&words)[WORDS], T& value) {
    const u64 low = u64(words[1]) << 32 | words[0];
    value = T(low);
    const u32 above = value < 0 ? ~u32(0) : 0;
    bool fits = i64(value) == i64(low);
#pragma unroll
    for (int i = 2; i < WORDS; ++i) fits &= words[i] == above;
    return fits;
}
