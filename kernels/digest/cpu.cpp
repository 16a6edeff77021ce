// Chaining values of BLAKE3 on a CPU: several leaves, or parents, at a time, one in each lane of a vector.
//
// Every word of the state is a vector over the lanes, so that the rounds need no shuffles; blocks are transposed as they
// are loaded.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace {

using std::size_t;

#ifdef __AVX512F__
constexpr size_t LANES = 16;
#else
constexpr size_t LANES = 8;
#endif
typedef uint32_t Lanes __attribute__((vector_size(4 * LANES)));
typedef uint32_t Loaded __attribute__((vector_size(4 * LANES), aligned(1), may_alias));
typedef uint8_t Bytes __attribute__((vector_size(4 * LANES)));

constexpr size_t LEAF = 1024, BLOCK = 64, BLOCKS = LEAF / BLOCK, VALUE = 8;  // bytes; the last in words
constexpr uint32_t FIRST = 1, LAST = 2, PARENT = 4;
constexpr uint32_t IV[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
// Which word of the block each round takes in which place.
constexpr uint8_t SCHEDULE[7][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8},
    {3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1}, {10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6},
    {12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4}, {9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7},
    {11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13}};

// Words rotated by whole bytes: one shuffle of AVX2, where other rotations take three instructions.
template <int BY, size_t... AT>
inline Lanes shuffled(Lanes x, std::index_sequence<AT...>) {
#ifdef __clang__
    return Lanes(__builtin_shufflevector(Bytes(x), Bytes(x), (AT / 4 * 4 + (AT + BY / 8) % 4)...));
#else
    return Lanes(__builtin_shuffle(Bytes(x), Bytes{uint8_t(AT / 4 * 4 + (AT + BY / 8) % 4)...}));
#endif
}

template <int BY>
inline Lanes rotated(Lanes x) {
#if defined __AVX2__ && !defined __AVX512F__  // which rotates in one instruction by any number of bits
    if constexpr (BY % 8 == 0) return shuffled<BY>(x, std::make_index_sequence<4 * LANES>{});
#endif
    return (x >> BY) | (x << (32 - BY));
}

template <int A, int B, int C, int D>
inline __attribute__((always_inline)) void mix(Lanes* v, Lanes x, Lanes y) {
    v[A] = v[A] + x + v[B];  // v[B] is what is waited for
    v[D] = rotated<16>(v[D] ^ v[A]);
    v[C] += v[D];
    v[B] = rotated<12>(v[B] ^ v[C]);
    v[A] = v[A] + y + v[B];
    v[D] = rotated<8>(v[D] ^ v[A]);
    v[C] += v[D];
    v[B] = rotated<7>(v[B] ^ v[C]);
}

template <size_t ROUND>
inline __attribute__((always_inline)) void round(Lanes* v, const Lanes* m) {
    constexpr const uint8_t* at = SCHEDULE[ROUND];
    mix<0, 4, 8, 12>(v, m[at[0]], m[at[1]]);
    mix<1, 5, 9, 13>(v, m[at[2]], m[at[3]]);
    mix<2, 6, 10, 14>(v, m[at[4]], m[at[5]]);
    mix<3, 7, 11, 15>(v, m[at[6]], m[at[7]]);
    mix<0, 5, 10, 15>(v, m[at[8]], m[at[9]]);
    mix<1, 6, 11, 12>(v, m[at[10]], m[at[11]]);
    mix<2, 7, 8, 13>(v, m[at[12]], m[at[13]]);
    mix<3, 4, 9, 14>(v, m[at[14]], m[at[15]]);
}

// Words of two vectors, those of the second numbered from LANES on.
template <size_t... AT>
inline Lanes picked(Lanes a, Lanes b, std::index_sequence<AT...>) {
#ifdef __clang__
    return __builtin_shufflevector(a, b, AT...);
#else
    return __builtin_shuffle(a, b, Lanes{uint32_t(AT)...});
#endif
}

// Words of two vectors by turns, or pairs of words, within each 16 bytes: of their first halves, or the second ones.
template <size_t SIZE, bool SECOND, size_t... LANE>
inline Lanes zipped(Lanes a, Lanes b, std::index_sequence<LANE...>) {
    return picked(a, b, std::index_sequence<(LANE / 4 * 4 + (SECOND ? 2 : 0) + (SIZE == 1 ? LANE % 4 / 2 : LANE % 2) +
                                             (LANE / SIZE % 2 ? LANES : 0))...>{});
}

// Every second 16 bytes of two vectors, one vector after the other.
template <bool ODD, size_t... LANE>
inline Lanes halved(Lanes a, Lanes b, std::index_sequence<LANE...>) {
    return picked(a, b, std::index_sequence<(LANE % (LANES / 2) / 4 * 8 + (ODD ? 4 : 0) + LANE % 4 +
                                             (LANE < LANES / 2 ? 0 : LANES))...>{});
}

// Row i of LANES vectors becomes column i. All shuffles are of the kinds that x86 does in one instruction without a mask.
inline __attribute__((always_inline)) void transpose(Lanes* row) {
    constexpr auto lanes = std::make_index_sequence<LANES>{};
#pragma GCC unroll 4
    for (size_t i = 0; i < LANES; i += 4) {
        const Lanes a = zipped<1, false>(row[i], row[i + 1], lanes), b = zipped<1, true>(row[i], row[i + 1], lanes);
        const Lanes c = zipped<1, false>(row[i + 2], row[i + 3], lanes), d = zipped<1, true>(row[i + 2], row[i + 3], lanes);
        row[i] = zipped<2, false>(a, c, lanes), row[i + 1] = zipped<2, true>(a, c, lanes);
        row[i + 2] = zipped<2, false>(b, d, lanes), row[i + 3] = zipped<2, true>(b, d, lanes);
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
        const Lanes a = row[i], b = row[i + 4];
        Lanes even = halved<false>(a, b, lanes), odd = halved<true>(a, b, lanes);
        if constexpr (LANES == 16) {
            const Lanes c = halved<false>(row[i + 8], row[i + 12], lanes), d = halved<true>(row[i + 8], row[i + 12], lanes);
            row[i + 8] = halved<true>(even, c, lanes), row[i + 12] = halved<true>(odd, d, lanes);
            even = halved<false>(even, c, lanes), odd = halved<false>(odd, d, lanes);
        }
        row[i] = even, row[i + 4] = odd;
    }
}

// The chaining value after a block of each lane; `at` has the blocks.
inline __attribute__((always_inline)) void compress(Lanes* value, const uint8_t* const* at, size_t offset, Lanes low, Lanes high,
                                                    uint32_t flags) {
    Lanes m[16], v[16];
#pragma GCC unroll 2
    for (size_t part = 0; part < 16; part += LANES) {
#pragma GCC unroll 16
        for (size_t lane = 0; lane < LANES; ++lane) {
            const uint8_t* from = at[lane] + offset + 4 * part;
            __builtin_prefetch(from + LANES * LEAF);  // of the next leaves: none is long enough for the CPU to foresee it
            // Not memcpy, which stores halves; a whole vector loaded from them waits until both are written.
            m[part + lane] = *reinterpret_cast<const Loaded*>(from);
        }
        transpose(m + part);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) v[i] = value[i];
    for (int i = 0; i < 4; ++i) v[8 + i] = Lanes{} + IV[i];
    v[12] = low, v[13] = high, v[14] = Lanes{} + uint32_t(BLOCK), v[15] = Lanes{} + flags;
    round<0>(v, m), round<1>(v, m), round<2>(v, m), round<3>(v, m), round<4>(v, m), round<5>(v, m), round<6>(v, m);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) value[i] = v[i] ^ v[8 + i];
}

// Chaining values of `n` leaves, the first of which is leaf `first` of the content, or of `n` pairs of values.
template <bool LEAVES>
void hash(const uint8_t* data, uint64_t first, size_t n, uint32_t* values) {
    constexpr size_t BYTES = LEAVES ? LEAF : BLOCK;
    for (size_t i = 0; i < n; i += LANES) {
        const uint8_t* at[LANES];
        Lanes low{}, high{}, value[8];
        for (size_t lane = 0; lane < LANES; ++lane) {
            at[lane] = data + (i + lane < n ? i + lane : n - 1) * BYTES;  // lanes beyond the end are not stored
            low[lane] = LEAVES ? uint32_t(first + i + lane) : 0;
            high[lane] = LEAVES ? uint32_t((first + i + lane) >> 32) : 0;
        }
        for (int word = 0; word < 8; ++word) value[word] = Lanes{} + IV[word];
        if constexpr (LEAVES) {
            for (size_t block = 0; block < BLOCKS; ++block) {
                const uint32_t flags = (block == 0 ? FIRST : 0) | (block == BLOCKS - 1 ? LAST : 0);
                compress(value, at, BLOCK * block, low, high, flags);
            }
        } else {
            compress(value, at, 0, low, high, PARENT);
        }
        for (size_t lane = 0; lane < LANES && i + lane < n; ++lane)
            for (size_t word = 0; word < VALUE; ++word) values[(i + lane) * VALUE + word] = value[word][lane];
    }
}

}  // namespace

// Chaining values of `n` pairs of them, 64 bytes each.
extern "C" void parents(const uint8_t* pairs, size_t n, uint32_t* values) { hash<false>(pairs, 0, n, values); }

// The largest aligned subtrees over `n` >= 1 leaves from leaf `first` >= 1 on, in ascending order: first leaves, numbers of
// leaves and chaining values. Returns how many, at most 128.
extern "C" size_t subtrees(const uint8_t* data, uint64_t first, size_t n, int64_t* starts, int64_t* sizes, uint32_t* values) {
    std::vector<uint32_t> level(VALUE * n);
    hash<true>(data, first, n, level.data());
    uint32_t late[64 * VALUE];
    int64_t late_starts[64], late_sizes[64];
    size_t early = 0, lates = 0;
    uint64_t low = first, high = first + n;
    uint32_t* nodes = level.data();  // `low` to `high` of this level
    for (int shift = 0; low < high; ++shift) {
        if (low & 1) {
            std::memcpy(values + VALUE * early, nodes, 4 * VALUE);
            starts[early] = int64_t(low << shift), sizes[early++] = int64_t(1) << shift;
            ++low, nodes += VALUE;
        }
        if (low < high && (high & 1)) {
            --high;
            std::memcpy(late + VALUE * lates, nodes + VALUE * (high - low), 4 * VALUE);
            late_starts[lates] = int64_t(high << shift), late_sizes[lates++] = int64_t(1) << shift;
        }
        const size_t pairs = (high - low) / 2;
        std::vector<uint32_t> above(VALUE * pairs);
        hash<false>(reinterpret_cast<const uint8_t*>(nodes), 0, pairs, above.data());
        level.swap(above);
        nodes = level.data(), low /= 2, high /= 2;
    }
    while (lates > 0) {
        --lates;
        std::memcpy(values + VALUE * early, late + VALUE * lates, 4 * VALUE);
        starts[early] = late_starts[lates], sizes[early++] = late_sizes[lates];
    }
    return early;
}
