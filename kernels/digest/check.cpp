// Digests samples for verification, by other ways than cpu.cpp: the state of a block is four rows of four words, as the
// definition draws it, and a vector holds one row of several leaves. Nodes are kept in a map, where neighbours are joined as
// they come, in any order.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace {

using std::size_t;
using Bytes = std::vector<uint8_t>;

#ifdef __AVX512F__
constexpr size_t ABREAST = 4;  // leaves in a vector
#else  // wider vectors than the CPU's are shuffled word by word
constexpr size_t ABREAST = 2;
#endif
constexpr size_t WORDS = 4 * ABREAST, CHAINS = 2;  // of a vector; vectors whose rounds overlap
typedef uint32_t Row __attribute__((vector_size(4 * WORDS)));
typedef uint8_t RowBytes __attribute__((vector_size(4 * WORDS)));
constexpr size_t AT_ONCE = ABREAST * CHAINS;
constexpr size_t KIB = 1024, PIECE = 64, DIGEST = 32;
constexpr uint64_t GROUP = 64;  // leaves that are hashed before the map is asked
constexpr uint32_t START = 1, END = 2, INNER = 4;

constexpr uint32_t ROOTS[8] = {  // of the primes up to 19: what comes after the point
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

#ifdef __clang__
#define SHUFFLE(kind, x, y, ...) kind(__builtin_shufflevector(kind(x), kind(y), __VA_ARGS__))
#else
#define SHUFFLE(kind, x, y, ...) kind(__builtin_shuffle(kind(x), kind(y), kind{__VA_ARGS__}))
#endif

template <size_t... TO>
struct Picked {
    // Four words of each leaf out of two rows; 4 to 7 are those of the second.
    template <int... FROM>
    static inline Row of(Row x, Row y) {
        constexpr uint32_t from[4] = {(FROM < 4 ? FROM : FROM - 4 + int(WORDS))...};
        return SHUFFLE(Row, x, y, (from[TO % 4] + uint32_t(TO / 4 * 4))...);
    }
};

template <size_t... TO>
Picked<TO...> picked(std::index_sequence<TO...>);

template <int... FROM>
inline Row pick(Row x, Row y) {
    return decltype(picked(std::make_index_sequence<WORDS>{}))::template of<FROM...>(x, y);
}

template <int BY, size_t... TO>
inline Row turned(Row x, std::index_sequence<TO...>) {
    return Row(SHUFFLE(RowBytes, x, x, uint8_t(TO / 4 * 4 + (TO + BY / 8) % 4)...));
}

template <int BITS>
inline Row turn(Row x) {
#if defined __AVX2__ && !defined __AVX512F__
    if constexpr (BITS % 8 == 0) return turned<BITS>(x, std::make_index_sequence<4 * WORDS>{});  // no bits to shift
#endif
    return (x << (32 - BITS)) | (x >> BITS);
}

struct Block {
    Row a, b, c, d, m[4];

    template <int FIRST, int SECOND>
    inline __attribute__((always_inline)) void half(Row words) {
        a += b + words;
        d = turn<FIRST>(d ^ a);
        c += d;
        b = turn<SECOND>(b ^ c);
    }

    inline __attribute__((always_inline)) void quarters(Row low, Row high) {
        half<16, 12>(pick<0, 2, 4, 6>(low, high));
        half<8, 7>(pick<1, 3, 5, 7>(low, high));
    }

    inline __attribute__((always_inline)) void round() {
        quarters(m[0], m[1]);
        b = pick<1, 2, 3, 0>(b, b), c = pick<2, 3, 0, 1>(c, c), d = pick<3, 0, 1, 2>(d, d);
        quarters(m[2], m[3]);
        b = pick<3, 0, 1, 2>(b, b), c = pick<2, 3, 0, 1>(c, c), d = pick<1, 2, 3, 0>(d, d);
    }

    // Words of the next round: 2 6 3 10, 7 0 4 13, 1 11 12 5, 9 14 15 8.
    inline __attribute__((always_inline)) void permute() {
        const Row first = pick<0, 1, 2, 6>(pick<2, 6, 3, 0>(m[0], m[1]), m[2]);
        const Row second = pick<0, 1, 2, 5>(pick<7, 0, 4, 0>(m[0], m[1]), m[3]);
        const Row third = pick<0, 4, 5, 1>(pick<1, 5, 0, 0>(m[0], m[1]), pick<3, 4, 0, 0>(m[2], m[3]));
        m[3] = pick<1, 6, 7, 0>(m[2], m[3]);
        m[0] = first, m[1] = second, m[2] = third;
    }
};

// `count` <= AT_ONCE runs of `pieces` * 64 bytes, one after another: a digest of each. `place` is the number of the first.
void digests(const uint8_t* data, size_t count, size_t pieces, uint64_t place, bool leaves, uint8_t* out) {
    Row low[CHAINS], high[CHAINS], where[CHAINS];
    const uint8_t* from[AT_ONCE];
    for (size_t i = 0; i < AT_ONCE; ++i) {
        from[i] = data + std::min(i, count - 1) * pieces * PIECE;  // digests beyond the last are dropped
        const uint64_t number = leaves ? place + i : 0;
        const uint32_t last[4] = {uint32_t(number), uint32_t(number >> 32), uint32_t(PIECE), 0};
        for (size_t word = 0; word < 4; ++word) {
            const size_t at = i % ABREAST * 4 + word;
            low[i / ABREAST][at] = ROOTS[word], high[i / ABREAST][at] = ROOTS[4 + word];
            where[i / ABREAST][at] = last[word];
        }
    }
    Row initial{};
    for (size_t i = 0; i < WORDS; ++i) initial[i] = ROOTS[i % 4];
    for (size_t piece = 0; piece < pieces; ++piece) {
        const uint32_t flags = leaves ? (piece ? 0 : START) | (piece + 1 < pieces ? 0 : END) : INNER;
        Block block[CHAINS];
        for (size_t chain = 0; chain < CHAINS; ++chain) {
            Block& one = block[chain];
            one.a = low[chain], one.b = high[chain], one.c = initial;
            one.d = where[chain];
            for (size_t leaf = 0; leaf < ABREAST; ++leaf) one.d[4 * leaf + 3] = flags;
            for (size_t part = 0; part < 4; ++part)
                for (size_t leaf = 0; leaf < ABREAST; ++leaf)
                    std::memcpy(reinterpret_cast<uint8_t*>(one.m + part) + 16 * leaf,
                                from[chain * ABREAST + leaf] + piece * PIECE + 16 * part, 16);
        }
#pragma GCC unroll 7
        for (int number = 0; number < 7; ++number) {
            for (Block& one : block) one.round();
            if (number < 6)
                for (Block& one : block) one.permute();
        }
        for (size_t chain = 0; chain < CHAINS; ++chain) {
            low[chain] = block[chain].a ^ block[chain].c, high[chain] = block[chain].b ^ block[chain].d;
        }
    }
    for (size_t i = 0; i < count; ++i) {
        const size_t at = 16 * (i % ABREAST);
        std::memcpy(out + DIGEST * i, reinterpret_cast<const uint8_t*>(low + i / ABREAST) + at, 16);
        std::memcpy(out + DIGEST * i + 16, reinterpret_cast<const uint8_t*>(high + i / ABREAST) + at, 16);
    }
}

// The digest over a subtree of `size` leaves, a power of two up to GROUP.
Bytes subtree(const uint8_t* data, uint64_t leaf, uint64_t size) {
    uint8_t level[GROUP * DIGEST], above[GROUP * DIGEST / 2];
    for (uint64_t at = 0; at < size; at += AT_ONCE)
        digests(data + at * KIB, std::min<uint64_t>(AT_ONCE, size - at), KIB / PIECE, leaf + at, true, level + at * DIGEST);
    for (; size > 1; size /= 2) {
        for (uint64_t at = 0; at < size / 2; at += AT_ONCE)
            digests(level + 2 * at * DIGEST, std::min<uint64_t>(AT_ONCE, size / 2 - at), 1, 0, false, above + at * DIGEST);
        std::memcpy(level, above, size / 2 * DIGEST);
    }
    return Bytes(level, level + DIGEST);
}

struct Node {
    uint64_t length;
    Bytes payload;  // as in kernels/digest/partial.py
};

struct State {
    uint64_t itemsize;
    int64_t start;  // index in the content of what comes with the index 0
    std::map<uint64_t, Node> nodes;

    // Adds a node, and joins it with its neighbours as long as there are any.
    void insert(uint64_t start, Node node) {
        for (;;) {
            if (start > 0 && node.length >= KIB) {
                const uint64_t other = start ^ node.length;
                const auto sibling = nodes.find(other);
                if (other == 0 || sibling == nodes.end() || sibling->second.length != node.length) break;
                const Bytes &left = other < start ? sibling->second.payload : node.payload,
                            &right = other < start ? node.payload : sibling->second.payload;
                Bytes both(left);
                both.insert(both.end(), right.begin(), right.end());
                Bytes joined(DIGEST);
                digests(both.data(), 1, 1, 0, false, joined.data());
                nodes.erase(sibling);
                start = std::min(start, other), node = Node{2 * node.length, joined};
                continue;
            }
            const auto after = nodes.find(start + node.length);
            if ((start + node.length) % KIB && after != nodes.end()) {
                node.payload.insert(node.payload.end(), after->second.payload.begin(), after->second.payload.end());
                node.length += after->second.length;
                nodes.erase(after);
            }
            auto before = nodes.lower_bound(start);
            if (start % KIB && before != nodes.begin() && (--before)->first + before->second.length == start) {
                start = before->first, node.length += before->second.length;
                node.payload.insert(node.payload.begin(), before->second.payload.begin(), before->second.payload.end());
                nodes.erase(before);
            }
            if (start == 0 || node.length < KIB) break;
            node.payload = subtree(node.payload.data(), start / KIB, 1);
        }
        nodes[start] = std::move(node);
    }

    void add(uint64_t begin, const uint8_t* data, uint64_t nbytes) {
        while (nbytes) {
            const uint64_t leaf = begin / KIB, whole = nbytes / KIB;
            uint64_t length = std::min(nbytes, KIB - begin % KIB);
            if (begin % KIB == 0 && leaf && whole) {
                uint64_t size = std::min(leaf & -leaf, GROUP);
                while (size > whole) size /= 2;
                length = size * KIB;
                insert(begin, Node{length, subtree(data, leaf, size)});
            } else {
                insert(begin, Node{length, Bytes(data, data + length)});
            }
            begin += length, data += length, nbytes -= length;
        }
    }
};

size_t words_of(const Node& node) { return (node.payload.size() + 7) / 8; }

}  // namespace

extern "C" void* begin(uint64_t itemsize) { return new State{itemsize, 0, {}}; }

extern "C" void count_from(State* state, int64_t start) { state->start = start; }

extern "C" void discard(State* state) { delete state; }

extern "C" void add_samples(State* state, const void* samples, size_t n, int64_t first) {
    state->add(static_cast<uint64_t>(state->start + first) * state->itemsize, static_cast<const uint8_t*>(samples), n * state->itemsize);
}

// Number of nodes and words of their payloads.
extern "C" void measure(const State* state, int64_t* sizes) {
    sizes[0] = int64_t(state->nodes.size()), sizes[1] = 0;
    for (const auto& [start, node] : state->nodes) sizes[1] += int64_t(words_of(node));
}

// Starts, lengths and payloads, which are zeroed before.
extern "C" void copy_out(const State* state, int64_t* starts, int64_t* lengths, int64_t* payloads) {
    for (const auto& [start, node] : state->nodes) {
        *starts++ = int64_t(start), *lengths++ = int64_t(node.length);
        std::memcpy(payloads, node.payload.data(), node.payload.size());
        payloads += words_of(node);
    }
}
