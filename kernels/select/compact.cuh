// Keeps the samples for which `keep` holds, a function that the including source defines.
//
// Blocks take tiles in the order in which they begin, so that a block waits only for others that have begun. A block
// publishes how many samples of its tile are kept, adds up what those before it have published, back to the nearest one
// that knows the sum up to itself, and publishes that sum for its own (Merrill & Garland, "Single-pass parallel prefix scan
// with decoupled look-back", 2016).
#pragma once

#include "common/types.cuh"

constexpr int THREADS = 256;
constexpr int LOADS = 8;  // 16-byte loads of a thread, all in flight at once
constexpr u32 ALL = 0xffffffffu;
// What a tile has published, in one word: nothing; OWN and the number it keeps; SUM and that of all tiles up to it.
constexpr u64 OWN = 1ull << 62, SUM = 1ull << 63, NUMBER = OWN - 1;

// Blocks of a multiprocessor, whose threads keep all that they load in registers. Narrow samples take more of them.
template <int BYTES, bool COLUMNS>
constexpr int BLOCKS = COLUMNS ? (BYTES == 1 ? 2 : 3) : AFTER_HOPPER && BYTES <= 2 ? 2 : 4;

template <int BYTES> struct Unit;
template <> struct Unit<2> { using type = u16; };
template <> struct Unit<4> { using type = u32; };
template <> struct Unit<8> { using type = u64; };
template <> struct Unit<16> { using type = uint4; };

// N numbers of an array, which are loaded together where they lie on a multiple of their size.
template <typename T, int N>
struct Pack {
    static constexpr int BYTES = N * sizeof(T) < 16 ? N * sizeof(T) : 16, UNITS = N * sizeof(T) / BYTES;
    using Word = typename Unit<BYTES>::type;
    union {
        Word word[UNITS];
        T item[N];
    };

    // Whether what lies here can be loaded together, as can then whatever is whole packs away.
    static __device__ bool begins_at(const T* numbers) { return reinterpret_cast<u64>(numbers) % BYTES == 0; }

    // Those from `at` on: together if that can be and all are inside [0, n), otherwise those that are inside.
    __device__ void load(const T* numbers, i64 at, i64 n, bool together) {
        if (together) {
#pragma unroll
            for (int k = 0; k < UNITS; ++k) word[k] = __ldcs(reinterpret_cast<const Word*>(numbers + at) + k);
        } else {
#pragma unroll
            for (int k = 0; k < UNITS; ++k) word[k] = Word{};
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (at + j >= 0 && at + j < n) item[j] = numbers[at + j];
        }
    }
};

template <int N, typename C>
__device__ Pack<C, N> pack_of(const C* column, i64 at, i64 n, bool together) {
    Pack<C, N> pack;
    pack.load(column, at, n, together);
    return pack;
}

// Which samples of a pack are kept, one bit for each.
template <int N, typename T, typename... C>
__device__ u32 flags_of(const Pack<T, N>& samples, i64 index, i64 step, const Pack<C, N>&... columns) {
    u32 flags = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) flags |= u32(keep(samples.item[j], index + j * step, columns.item[j]...)) << j;
    return flags;
}

// Which of the N places from `at` on are inside [0, n).
template <int N>
__device__ u32 inside(i64 at, i64 n) {
    const u32 before = u32(min(max(-at, i64(0)), i64(N))), up_to = u32(min(max(n - at, i64(0)), i64(N)));
    return (1u << up_to) - (1u << before);
}

inline __device__ u64 published(const u64* progress) {
#if ON_GPU
    u64 word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(progress) : "memory");
    return word;
#else
    return atomicAdd(const_cast<u64*>(progress), u64(0));
#endif
}

// The number of samples that all tiles before this one keep, for all lanes of one warp.
inline __device__ u64 look_back(u64* progress, i64 tile, u64 own) {
    const int lane = threadIdx.x % 32;
    if (lane == 0) atomicExch(&progress[tile], OWN | own);
    u64 sum = 0;
    for (i64 at = tile - 1 - lane;; at -= 32) {  // the nearest of 32 tiles first
        u64 word;
        do word = at < 0 ? SUM : published(progress + at);
        while (__any_sync(ALL, word == 0));
        const u32 sums = __ballot_sync(ALL, word >= SUM);
        if (!sums || lane < __ffs(int(sums))) sum += word & NUMBER;
        if (sums) break;
    }
#pragma unroll
    for (int apart = 16; apart; apart /= 2) sum += __shfl_xor_sync(ALL, sum, apart);
    if (lane == 0) atomicExch(&progress[tile], SUM | (sum + own));
    return sum;
}

// samples, columns: n of each. first, step: index of the first sample in the source, and from one to the next.
// kept: on a multiple of 16 bytes, with room for n. progress: zeros, a word for the next tile and one for each tile.
template <typename T, typename... C>
__global__ void __launch_bounds__(THREADS, BLOCKS<sizeof(T), sizeof...(C) != 0>)
compact(const T* samples, i64 n, i64 first, i64 step, T* kept, u64* progress, const C*... columns) {
    constexpr int N = 16 / sizeof(T), APART = 32 * N;  // samples of a load of one thread, and of a warp
    constexpr int OF_WARP = LOADS * APART, WARPS = THREADS / 32, TILE = WARPS * OF_WARP, WORDS = (LOADS * N + 31) / 32;
    __shared__ alignas(16) T staged[TILE + N];
    __shared__ u32 of_warp[WARPS];
    __shared__ i64 taken;
    __shared__ u64 before;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) taken = i64(atomicAdd(progress, u64(1)));
    __syncthreads();

    // Tiles begin where 16-byte loads can, so the first one may begin before the samples.
    const i64 tile = taken, start = tile * TILE - i64(reinterpret_cast<u64>(samples) % 16 / sizeof(T));
    const bool whole = start >= 0 && start + TILE <= n;
    const i64 at = start + warp * OF_WARP + lane * N;
    Pack<T, N> pack[LOADS];
#pragma unroll
    for (int k = 0; k < LOADS; ++k) pack[k].load(samples, at + k * APART, n, whole);
    u32 flags[WORDS] = {};
#pragma unroll
    for (int k = 0; k < LOADS; ++k) {
        const i64 here = at + k * APART;
        u32 wanted = flags_of<N>(pack[k], first + here * step, step,
                                 pack_of<N>(columns, here, n, whole && Pack<C, N>::begins_at(columns + start))...);
        if (!whole) wanted &= inside<N>(here, n);
        flags[k * N / 32] |= wanted << k * N % 32;
    }
    const auto flags_at = [&](int k) { return flags[k * N / 32] >> k * N % 32 & ((1u << N) - 1); };

    // How many samples the warp keeps before each of this lane's packs: of two rows of packs in a word.
    u32 place[LOADS / 2], total = 0;
#pragma unroll
    for (int k = 0; k < LOADS / 2; ++k) {
        const u32 own = __popc(flags_at(2 * k)) | __popc(flags_at(2 * k + 1)) << 16;
        u32 up_to = own;
#pragma unroll
        for (int apart = 1; apart < 32; apart *= 2) {
            const u32 other = __shfl_up_sync(ALL, up_to, apart);
            if (lane >= apart) up_to += other;
        }
        const u32 rows = __shfl_sync(ALL, up_to, 31);
        place[k] = up_to - own + (total | (total + (rows & 0xffff)) << 16);
        total += (rows & 0xffff) + (rows >> 16);
    }
    if (lane == 0) of_warp[warp] = total;
    __syncthreads();
    u32 earlier = 0, own = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        if (w < warp) earlier += of_warp[w];
        own += of_warp[w];
    }
    if (warp == 0) {
        const u64 sum = look_back(progress + 1, tile, own);
        if (lane == 0) before = sum;
    }
    __syncthreads();

    // Staged in the order and at the distance from a multiple of 16 bytes in which they are stored.
    const int phase = int(before % N), end = phase + int(own);
    const i64 origin = i64(before) - phase;
#pragma unroll
    for (int k = 0; k < LOADS; ++k) {
        T* to = staged + (phase + earlier + (place[k / 2] >> k % 2 * 16 & 0xffff));
#pragma unroll
        for (int j = 0; j < N; ++j)
            if (flags_at(k) >> j & 1) *to++ = pack[k].item[j];
    }
    __syncthreads();
    for (int from = threadIdx.x * N; from < end; from += THREADS * N) {
        if (from >= phase && from + N <= end) {
            *reinterpret_cast<uint4*>(kept + origin + from) = *reinterpret_cast<const uint4*>(staged + from);
        } else {
            for (int j = max(from, phase); j < min(from + N, end); ++j) kept[origin + j] = staged[j];
        }
    }
}
