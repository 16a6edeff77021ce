// A slot that is known up to one, and the comparison that decides.
//
// A guess is the number of thresholds that a sample has passed for certain; it may have passed the next one, too.
#pragma once

#include "common/counters.cuh"
#include "histogram/guess.cuh"

// Reads from shared memory what no thread writes any more.
template <typename K>
__device__ K read_shared(u32 address) {
#if ON_GPU
    if (sizeof(K) == 4) {
        u32 word;
        asm("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address));
        return reinterpret_cast<const K&>(word);
    }
    u64 word;
    asm("ld.shared.u64 %0, [%1];" : "=l"(word) : "r"(address));
    return reinterpret_cast<const K&>(word);
#else
    return K();
#endif
}

// Counters of a window of slots and, for each threshold, the last sample before it, both in shared memory.
//
// The window's rows begin with the slot before its own and end with two after them, which take all other samples.
template <typename K, int COPIES, int HELD>
struct Steps {
    u32* words;
    K* steps;
    u32 rows;
    int first;  // slot of the first row
    int low, high;  // of guesses that have a row
    u32 counters_at, steps_at;

    // `least`, `most`: of all guesses.
    __device__ Steps(u32* shared, u32 rows, int first, int least, int most)
        : words(shared), steps(reinterpret_cast<K*>(shared + (rows * COPIES + 1) / 2 * 2)), rows(rows), first(first),
          low(max(first, least)), high(min(first + int(rows) - 2, most)), counters_at(0), steps_at(0) {}

    // Words of shared memory behind it are free.
    __device__ u32* behind() const { return reinterpret_cast<u32*>(steps + rows * HELD); }

    // `values`: the last sample before each threshold, and one that none but NaN is above. `origin` is added to guesses
    // later. Ends with a barrier.
    __device__ void prepare(const K* values, int most, int origin) {
        for (u32 i = threadIdx.x; i < rows * COPIES; i += THREADS) words[i] = 0;
        for (u32 i = threadIdx.x; i < rows * HELD; i += THREADS) steps[i] = values[min(max(first + int(i / HELD), 0), most)];
        __syncthreads();
        const u32 skipped = u32(origin + first);
        low += origin;
        high += origin;
#if ON_GPU
        // Volatile, so that no read of a threshold moves before the barrier.
        asm volatile("mov.u32 %0, %1;" : "=r"(counters_at) : "r"(u32(__cvta_generic_to_shared(words))) : "memory");
        asm volatile("mov.u32 %0, %1;" : "=r"(steps_at) : "r"(u32(__cvta_generic_to_shared(steps))) : "memory");
        counters_at += (threadIdx.x % COPIES - skipped * COPIES) * 4;
        steps_at += (threadIdx.x % HELD - skipped * HELD) * u32(sizeof(K));
#else
        counters_at = threadIdx.x % COPIES - skipped * COPIES;
        steps_at = threadIdx.x % HELD - skipped * HELD;
#endif
    }

    // CLAMP: the guess may have no row. NaN, whose guess is the greatest, passes every threshold.
    template <bool CLAMP>
    __device__ void add(K x, int guess) {
        const u32 row = u32(CLAMP ? min(max(guess, low), high) : guess);
#if ON_GPU
        const K step = read_shared<K>(shared_address(steps_at, row, HELD * sizeof(K)));
        const u32 at = shared_address(counters_at, row, COPIES * 4);
        increment_at(x <= step ? at : at + COPIES * 4);
#else
        const K step = steps[u32(row * HELD + steps_at)];
        atomicAdd(words + u32((row + !(x <= step)) * COPIES + counters_at), 1u);
#endif
    }

    // Adds the counters of the window's own slots to the result.
    __device__ void finish(u64* slots) const {
        __syncthreads();
        for (u32 row = 1 + threadIdx.x; row < rows - 2; row += THREADS) {
            u64 sum = 0;
            for (int k = 0; k < COPIES; ++k) sum += words[row * COPIES + (threadIdx.x + k) % COPIES];
            if (sum) atomicAdd(slots + first + int(row), sum);
        }
    }
};

// Windows of so many slots, of `all`: the blocks of different windows read the same samples at the same time.
struct Window {
    u32 number, mine;
    int first;  // slot of the first row
    u32 rows;

    __device__ Window(u32 all, u32 slots)
        : number((all + slots - 1) / slots), mine(blockIdx.x % number), first(int(mine * slots) - 1),
          rows(min(slots, all - mine * slots) + 3) {}
    __device__ Share share() const { return {blockIdx.x / number, gridDim.x / number}; }
};
