// Histograms of rows: all rows of a block of samples in one launch.
//
//   rows_in_turns   rows that take turns, sample by sample
//   rows_in_runs    rows that follow each other
//
// Where a sample falls is found as in gpu.cu (from_facts.cuh). Counters of a block are in shared memory, one beside the
// other those of all its rows, then those of the next slot: lanes that read different rows use different banks, whatever
// the samples are. Where memory permits, lanes of the same row have copies. A thread reads the same rows for ever.

#include "common/counters.cuh"
#include "histogram/from_facts.cuh"

constexpr int MOST_THREADS = 1024;
constexpr int AHEAD_BYTES = TURING ? 32 : 64;  // that a thread loads at a time
constexpr int GROUP = 4;  // samples that are located before the first of them is counted: no read passes an increment

template <int BYTES>
struct Word;
template <>
struct Word<1> {
    using type = u8;
};
template <>
struct Word<2> {
    using type = u16;
};
template <>
struct Word<4> {
    using type = u32;
};
template <>
struct Word<8> {
    using type = uint2;
};
template <>
struct Word<16> {
    using type = uint4;
};

// Counts the packs at `from`, `from + step`, …: `number` of them, each aligned to its size. `prepare` runs while the first
// loads are in flight. add(counter, place in the pack)
template <int PACK, typename T, typename Prepare, typename Locate, typename Add>
__device__ void scan_packs(const T* from, i64 number, i64 step, Prepare prepare, const Locate& locate, Add add) {
    constexpr int BYTES = PACK * int(sizeof(T)), FULL = AHEAD_BYTES / BYTES;
    constexpr int MOST = PACK == 1 ? 12 : 16;  // a load takes a register, however narrow it is
    constexpr int LOADS = FULL < MOST ? FULL : MOST;
    using Bits = typename Word<BYTES>::type;
    union Pack {
        Bits bits;
        T item[PACK];
    } loaded[LOADS];
    const auto count = [&](const Pack* packs, int items) {
        u32 counter[PACK < GROUP ? GROUP : PACK];
#pragma unroll
        for (int i = 0; i < items; ++i) counter[i] = locate(Key<T>::of(packs[i / PACK].item[i % PACK]));
#pragma unroll
        for (int i = 0; i < items; ++i) add(counter[i], i % PACK);
    };
    constexpr int TOGETHER = PACK < GROUP ? GROUP / PACK : 1;
    const auto load = [&] {
#pragma unroll
        for (int k = 0; k < LOADS; ++k, from += step) loaded[k].bits = __ldcs(reinterpret_cast<const Bits*>(from));
    };
    if (number >= LOADS) load();
    prepare();
    while (number >= LOADS) {
#pragma unroll
        for (int k = 0; k < LOADS; k += TOGETHER) count(loaded + k, TOGETHER * PACK);
        number -= LOADS;
        if (number >= LOADS) load();
    }
#pragma unroll
    for (int k = 0; k < LOADS - 1; ++k, from += step)
        if (k < number) loaded[k].bits = __ldcs(reinterpret_cast<const Bits*>(from));
#pragma unroll
    for (int k = 0; k < LOADS - 1; ++k)
        if (k < number) count(loaded + k, PACK);
}

// Samples before the first pack that is aligned; there may be fewer. What divides the rest by PACK or more gets 0 then.
template <int PACK, typename T>
__device__ i64 unaligned(const T* samples) {
    const i64 past = i64(reinterpret_cast<u64>(samples) / sizeof(T) % PACK);
    return past ? PACK - past : 0;
}

// How samples of each row find their slot; `each` is 1 if rows differ, 0 if one is for all.
struct Maps {
    const i64* facts;  // `numbers` of a row
    u32 numbers;
    const u64* tables;  // `words` of a row
    u32 words;
    const u32* slot_of;  // of each of `counters`
    u32 counters, each;

    template <typename Locate>
    __device__ From<Locate> locator(u32 row, const u64* table) const {
        return From<Locate>(facts + i64(each * row) * numbers, table);
    }
    __device__ const u64* table_of(u32 row) const { return tables + i64(each * row) * words; }
    __device__ u32 slot(u32 row, u32 counter) const { return __ldg(slot_of + i64(each * row) * counters + counter); }
};

// `slots`: of each slot those of all rows. samples[0] is of row `first`. After `turn` samples, a multiple of PACK, come the
// same rows. A block counts `width` rows, `copies` of each, in `pitch` words for each counter; if these are not all rows,
// a turn is one sample of each.
template <typename T, int PACK, typename Locate>
__global__ void __launch_bounds__(MOST_THREADS, 1)
rows_in_turns(const T* samples, i64 n, u32* slots, u32 rows, u32 first, u32 turn, u32 width, u32 copies, u32 pitch,
              const i64* facts, u32 numbers, const u64* tables, u32 words, const u32* slot_of, u32 counters, u32 each) {
    extern __shared__ u32 shared[];
    const Maps maps{facts, numbers, tables, words, slot_of, counters, each};
    const u32 slices = (rows + width - 1) / width, begin = blockIdx.x % slices * width, own = min(width, rows - begin);
    const i64 head = unaligned<PACK>(samples);
    const u32 origin = u32((first + head) % rows);
    const auto row_of = [&](u32 local) { return (origin + begin + local) % rows; };

    u64* const held = reinterpret_cast<u64*>(shared);
    u32* const counts = shared + 2 * (each ? width : 1) * words;
    const auto prepare = [&] {
        const u32 taken = (each ? own : 1) * words;
        for (u32 i = threadIdx.x; i < taken; i += blockDim.x) held[i] = maps.table_of(row_of(i / words))[i % words];
        for (u32 i = threadIdx.x; i < counters * pitch; i += blockDim.x) counts[i] = 0;
        __syncthreads();
    };

    const u32 across = (slices == 1 ? turn : own) / PACK, groups = blockDim.x / across;
    const u32 pack = threadIdx.x % across, group = threadIdx.x / across;
    u32* mine[PACK];
#pragma unroll
    for (int k = 0; k < PACK; ++k)
        mine[k] = counts + group % copies * own + (pack * PACK + k) % rows;
    const auto locate = maps.locator<Locate>(row_of(pack), held + each * pack * words);  // PACK is 1 if rows differ
    const i64 share = blockIdx.x / slices, shares = gridDim.x / slices;
    const i64 turns = (n - head) / turn, one = share * groups + group, step = shares * groups;
    const i64 number = group < groups ? (turns - one + step - 1) / step : 0;
    scan_packs<PACK>(samples + head + one * turn + begin + pack * PACK, number, step * turn, prepare, locate,
                     [&](u32 counter, int k) { increment(mine[k], counter, pitch * 4); });

    const i64 done = turns * turn;  // all but the head and what follows the last turn
    for (i64 i = threadIdx.x; share == 0 && i < n - done; i += blockDim.x) {
        const i64 at = i < head ? i : i + done;
        const u32 row = u32((first + at) % rows), local = (row + rows - origin) % rows - begin;
        if (local >= own) continue;
        const auto of_row = maps.locator<Locate>(row, held + each * local * words);
        increment(counts + local, of_row(Key<T>::of(samples[at])), pitch * 4);
    }

    __syncthreads();
    const u32 skipped = u32(counters * share / shares);  // blocks begin with different counters, to meet less often
#pragma unroll 4
    for (u32 i = threadIdx.x; i < counters * own; i += blockDim.x) {
        const u32 counter = (i / own + skipped) % counters, local = i % own, row = row_of(local);
        u32 sum = 0;
        for (u32 k = 0; k < copies; ++k) sum += counts[counter * pitch + k * own + local];
        const u32 slot = maps.slot(row, counter);
        if (sum) atomicAdd(slots + i64(slot) * rows + row, sum);
    }
}

// `slots`: of each run `all`. Run i is samples[bounds[i]] to samples[bounds[i + 1]], of row i, and there are `runs`. A block
// has a stretch of samples, whatever their rows; of each counter it has `copies`, one for a part of the lanes.
template <typename T, typename Locate>
__global__ void __launch_bounds__(MOST_THREADS, 1)
rows_in_runs(const T* samples, const i64* bounds, u32 runs, u32* slots, u32 all, u32 copies, const i64* facts, u32 numbers,
             const u64* tables, u32 words, const u32* slot_of, u32 counters, u32 each) {
    extern __shared__ u32 shared[];
    constexpr int PACK = 16 / sizeof(T);
    const Maps maps{facts, numbers, tables, words, slot_of, counters, each};
    const i64 n = bounds[runs], stop = n * (blockIdx.x + 1) / gridDim.x;
    i64 at = n * blockIdx.x / gridDim.x;
    u32 run = 0;  // the last that begins there or before
    for (u32 beyond = runs; beyond - run > 1;) {
        const u32 middle = run + (beyond - run) / 2;
        if (bounds[middle] <= at) run = middle;
        else beyond = middle;
    }

    u64* const held = reinterpret_cast<u64*>(shared);
    u32* const counts = shared + 2 * words;
    for (u32 i = threadIdx.x; i < counters * copies; i += blockDim.x) counts[i] = 0;
    bool missing = true;  // the table
    for (; at < stop; ++run) {
        const i64 end = min(bounds[run + 1], stop);
        if (end == at) continue;
        const auto prepare = [&] {
            if (each || missing)
                for (u32 i = threadIdx.x; i < words; i += blockDim.x) held[i] = maps.table_of(run)[i];
            missing = false;
            __syncthreads();
        };
        const auto locate = maps.locator<Locate>(run, held);
        u32* const mine = counts + threadIdx.x % copies;
        const auto add = [&](u32 counter, int) { increment(mine, counter, copies * 4); };
        const T* const from = samples + at;
        const i64 length = end - at, head = unaligned<PACK>(from), packs = (length - head) / PACK;
        const i64 number = (packs - threadIdx.x + blockDim.x - 1) / blockDim.x;
        scan_packs<PACK>(from + head + i64(threadIdx.x) * PACK, number, i64(blockDim.x) * PACK, prepare, locate,
                         add);
        for (i64 i = threadIdx.x; i < length - packs * PACK; i += blockDim.x)
            add(locate(Key<T>::of(from[i < head ? i : i + packs * PACK])), 0);
        at = end;

        __syncthreads();
        for (u32 i = threadIdx.x; i < counters; i += blockDim.x) {
            u32 sum = 0;
            for (u32 k = 0; k < copies; ++k) {
                u32& word = counts[i * copies + (i + k) % copies];
                sum += word;
                word = 0;
            }
            if (sum) atomicAdd(slots + i64(run) * all + maps.slot(run, i), sum);
        }
    }
}
