// Sums in buckets, and where extremes are, for check.cpp.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

using std::size_t;
typedef uint32_t u32;
typedef uint64_t u64;
__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;

#if defined(__AVX512F__)
constexpr size_t BYTES = 64;  // of a vector register
#elif defined(__AVX2__)
constexpr size_t BYTES = 32;
#else
constexpr size_t BYTES = 16;
#endif
typedef u64 Words __attribute__((vector_size(BYTES)));
typedef int64_t Integers __attribute__((vector_size(BYTES)));

constexpr size_t BLOCK = 2048;  // samples at a time: the sums of as many fit into 64 bits
constexpr size_t GROUP = 64;    // samples that are looked through for those with low exponents
constexpr size_t WORTHWHILE = 256;  // samples of a block that are worth a pass over all of it

// As in partial.py.
enum { CODE, ASKED, SAMPLES, NAN_COUNT, POSITIVE, NEGATIVE, FIRST_NAN, MIN_AT, MAX_AT, MIN_KEY, MAX_KEY, SUM_AT };
enum { SUM = 1, SQUARES = 2, EXTREMES = 4 };
constexpr int64_t NOWHERE = INT64_MAX;
constexpr int SUM_WORDS = 34, SQUARE_WORDS = 67, SUM_BITS = 1088, SQUARE_BITS = 2176;

// A sum in units of 2**-BITS. Zeros are an empty one.
template <int WORDS, int BITS>
struct Buckets {
    int128 of[64 * WORDS] = {};
    int end = 0, down = 0;  // above the highest bucket in use; from the top down to the lowest one

    void add(int128 number, int power) {
        const int bit = BITS + power;
        of[bit] += number;
        end = bit < end ? end : bit + 1;
        down = 64 * WORDS - bit > down ? 64 * WORDS - bit : down;
    }

    void clear() {
        for (int bit = 64 * WORDS - down; bit < end; ++bit) of[bit] = 0;
        end = down = 0;
    }

    void words(int64_t* partial) const {
        u64 word[WORDS + 3] = {};
        for (int bit = 64 * WORDS - down; bit < end; ++bit)
            if (of[bit]) {
                const int128 number = of[bit];
                const int place = bit / 64, shift = bit % 64;
                const u64 low = static_cast<u64>(number), high = static_cast<u64>(number >> 64);
                const u64 sign = number < 0 ? ~u64(0) : 0;
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

}  // namespace
