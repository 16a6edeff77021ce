// A tile of a transpose in shared memory, loaded and stored in packs of 16 bytes.
#pragma once

#include "common/types.cuh"

constexpr int LANES_ACROSS = 8, LANES_DOWN = 4;  // 8 packs of 16 bytes are a whole cache line
constexpr int SECTOR = 32;                       // bytes of a sector, the unit of memory writes; partial ones are slower

// Shared memory moves one or two bytes no faster than four, so a word holds as many rows of a column as fit.
template <typename T> struct Word { using type = T; };
template <> struct Word<u8> { using type = u32; };
template <> struct Word<u16> { using type = u32; };

// ROWS x COLUMNS elements of `in`, column by column, PER_WORD rows to a word. Where rows of `out` are unaligned, MORE
// rows follow, so that the tile can write whole sectors, up to the first that begins in the tile below.
template <typename T, int ROWS, int COLUMNS, bool ALIGNED_OUT> struct Stage {
    using W = typename Word<T>::type;
    static constexpr int PER_WORD = sizeof(W) / sizeof(T), PER_PACK = 16 / sizeof(T);
    static constexpr int WORDS_PER_PACK = PER_PACK / PER_WORD;
    static constexpr int MORE = ALIGNED_OUT ? 0 : SECTOR / sizeof(T);
    static constexpr int HEIGHT = ROWS, WIDTH = COLUMNS;
    static constexpr int PACKS_IN = COLUMNS / PER_PACK, PACKS_OUT = ROWS / PER_PACK;  // along a row of `in`, of `out`
    static constexpr int GROUPS = (ROWS + MORE) / PER_WORD;                           // words of a column
    static constexpr int WORDS = COLUMNS * (GROUPS + 1) + COLUMNS / 32 * 4;
    static_assert(PACKS_IN % LANES_ACROSS == 0 && PACKS_OUT % LANES_ACROSS == 0, "a warp covers 8 whole packs of a row");
    static_assert(GROUPS % LANES_DOWN == 0 && COLUMNS % LANES_DOWN == 0, "a warp covers 4 whole groups of rows");

    union {
        W word[WORDS];
        T item[WORDS * PER_WORD];
    };

    // One word of padding per column; after 32 columns that padding is back in bank 0, and 4 more words shift it. With
    // lanes placed by `spot` there are no bank conflicts for any size of T, neither writing nor reading.
    __device__ static int at(int column, int group) { return column * (GROUPS + 1) + column / 32 * 4 + group; }
    __device__ static int at_item(int column, int row) {
        return at(column, row / PER_WORD) * PER_WORD + row % PER_WORD;
    }
};

struct Spot {
    int across, down;
};

// Place of a lane: a warp covers patches of 8 packs by 4 rows, one after another in a field ACROSS packs wide.
template <int ACROSS> __device__ Spot spot(int unit) {
    constexpr int PATCHES = ACROSS / LANES_ACROSS;
    const int patch = unit / 32, lane = unit % 32;
    return {patch % PATCHES * LANES_ACROSS + lane % LANES_ACROSS, patch / PATCHES * LANES_DOWN + lane / LANES_ACROSS};
}

// The 16 bytes that begin `shift` bytes into 32.
__device__ uint4 shifted(uint4 lower, uint4 upper, u32 shift) {
    u32 word[8] = {lower.x, lower.y, lower.z, lower.w, upper.x, upper.y, upper.z, upper.w};
#pragma unroll
    for (int i = 0; i < 6; ++i)
        if (shift & 8) word[i] = word[i + 2];
#pragma unroll
    for (int i = 0; i < 5; ++i)
        if (shift & 4) word[i] = word[i + 1];
#pragma unroll
    for (int i = 0; i < 4; ++i) word[i] = __funnelshift_r(word[i], word[i + 1], shift % 4 * 8);
    return {word[0], word[1], word[2], word[3]};
}

// Loads the packs of a tile; only its first `rows` and `columns` lie inside the matrix. Unaligned packs straddle two
// aligned ones; the caller makes sure that both lie inside the array.
template <int THREADS, bool ALIGNED, typename S, typename T>
__device__ void load_packs(S& stage, const T* __restrict__ in, i64 pitch, i64 rows, i64 columns) {
    constexpr int COUNT = S::PACKS_IN * S::GROUPS, UNITS = COUNT / THREADS, SIZE = sizeof(T);
    static_assert(COUNT % THREADS == 0, "every thread loads as many packs as any other");
    uint4 lower[UNITS][S::PER_WORD], upper[UNITS][S::PER_WORD];
    u32 shift[UNITS][S::PER_WORD];
#pragma unroll
    for (int k = 0; k < UNITS; ++k) {
        const Spot to = spot<S::PACKS_IN>(threadIdx.x + k * THREADS);
        const int row = to.down * S::PER_WORD, column = to.across * S::PER_PACK;
#pragma unroll
        for (int r = 0; r < S::PER_WORD; ++r) {
            // Outside the matrix any pack will do, as it is not stored: without branches all loads are in flight
            // together.
            const bool inside = row + r < rows && column < columns;
            const u64 from = reinterpret_cast<u64>(in + (inside ? (row + r) * pitch + column : 0));
            const auto* const packs = reinterpret_cast<const uint4*>(from & ~u64(15));
            lower[k][r] = __ldg(packs);
            if (ALIGNED) continue;
            shift[k][r] = u32(from & 15);
            const bool both = shift[k][r] && (columns - column) * SIZE > 16 - shift[k][r];
            upper[k][r] = __ldg(packs + both);
        }
    }
#pragma unroll
    for (int k = 0; k < UNITS; ++k) {
        const Spot to = spot<S::PACKS_IN>(threadIdx.x + k * THREADS);
        union {
            uint4 pack[S::PER_WORD];
            T item[S::PER_WORD][S::PER_PACK];
        } loaded;
#pragma unroll
        for (int r = 0; r < S::PER_WORD; ++r)
            loaded.pack[r] = ALIGNED ? lower[k][r] : shifted(lower[k][r], upper[k][r], shift[k][r]);
#pragma unroll
        for (int j = 0; j < S::PER_PACK; ++j) {
            union {
                T item[S::PER_WORD];
                typename S::W word;
            } of_column;
#pragma unroll
            for (int r = 0; r < S::PER_WORD; ++r) of_column.item[r] = loaded.item[r][j];
            stage.word[S::at(to.across * S::PER_PACK + j, to.down)] = of_column.word;
        }
    }
}

// Elements from an address to the next sector boundary.
template <typename T> __device__ int before_sector(const T* at) {
    return int(u32(0 - reinterpret_cast<u64>(at)) % SECTOR / sizeof(T));
}

// Stores the packs of a tile; those of unaligned rows begin at the first sector boundary.
template <int THREADS, bool ALIGNED, typename S, typename T>
__device__ void store_packs(const S& stage, T* __restrict__ out, i64 pitch, i64 rows, i64 columns) {
    constexpr int COUNT = S::PACKS_OUT * S::WIDTH, WORDS = S::WORDS_PER_PACK;
#pragma unroll
    for (int k = 0; k < (COUNT + THREADS - 1) / THREADS; ++k) {
        const int unit = threadIdx.x + k * THREADS;
        if (COUNT % THREADS && unit >= COUNT) break;
        const Spot from = spot<S::PACKS_OUT>(unit);
        T* const to = out + from.down * pitch;
        const int first = from.across * S::PER_PACK + (ALIGNED ? 0 : before_sector(to));
        union {
            typename S::W word[WORDS + 1];
            uint4 bits;
        } pack;
#pragma unroll
        for (int j = 0; j < WORDS + (S::PER_WORD > 1 && !ALIGNED); ++j)
            pack.word[j] = stage.word[S::at(from.down, first / S::PER_WORD + j)];
        if constexpr (S::PER_WORD > 1 && !ALIGNED) {
#pragma unroll
            for (int j = 0; j < WORDS; ++j)
                pack.word[j] = __funnelshift_r(pack.word[j], pack.word[j + 1], first % S::PER_WORD * sizeof(T) * 8);
        }
        if (from.down < columns && first + S::PER_PACK <= rows) __stcg(reinterpret_cast<uint4*>(to + first), pack.bits);
    }
}

// Loads element by element, at the ends of the array.
template <int THREADS, typename S, typename T>
__device__ void load_items(S& stage, const T* __restrict__ in, i64 pitch, i64 rows, i64 columns) {
#pragma unroll 8
    for (int i = threadIdx.x; i < (S::HEIGHT + S::MORE) * S::WIDTH; i += THREADS) {
        const int row = i / S::WIDTH, column = i % S::WIDTH;
        if (row < rows && column < columns) stage.item[S::at_item(column, row)] = in[row * pitch + column];
    }
}

// Stores what store_packs does not: in the topmost tile the elements before the first sector boundary of a row, in the
// lowest one those behind the last whole pack.
template <int THREADS, typename S, typename T>
__device__ void store_ends(const S& stage, T* __restrict__ out, i64 pitch, i64 rows, i64 columns, bool top) {
    constexpr int EACH = S::MORE + S::PER_PACK;
    for (int i = threadIdx.x; i < S::WIDTH * EACH; i += THREADS) {
        const int column = i / EACH, end = i % EACH;
        T* const to = out + column * pitch;
        const int before = before_sector(to), stop = int(rows < S::HEIGHT + before ? rows : S::HEIGHT + before);
        const bool head = end < S::MORE;
        const int whole = max(stop - before, 0) / S::PER_PACK * S::PER_PACK;
        const int row = head ? end : before + whole + end - S::MORE;
        if (column < columns && row < stop && (head ? top && row < before : true))
            to[row] = stage.item[S::at_item(column, row)];
    }
}
