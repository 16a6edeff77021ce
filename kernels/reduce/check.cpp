// Exact moments and extremes for check.py, which shares no code with cpu.cpp and gpu.cu and goes other ways.
//
// All arithmetic is on integers. A sum is kept as buckets, one for each power of two: adding n * 2**p adds n to bucket p,
// without a shift or a carry; carries are resolved once, at the end.
//
//   integers  become ranks: unsigned integers in their order. Their sums give those of the samples:
//             sum x = sum u - n h, sum x^2 = sum u^2 - 2 h sum u + n h^2, where h is half the range if they are signed.
//   floats    are integers times a power of two. In a block those with the highest exponents, nearly always all, are
//             shifted to the lowest of these exponents and summed; the others go to their buckets one by one.
//
// An extreme is looked for in the first block that has it, when all are done.

#include "check_float.hpp"
#include "check_integer.hpp"

// Types are numbered as in partial.py.
enum Type { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64 };

// What is kept from call to call; `partial` has everything but the sums.
struct State {
    int64_t* partial;
    Sum sum;
    Squares squares;
};

namespace {

// A place among samples that begin at `first`, among all; NOWHERE is greater than any.
int64_t placed(int64_t place, int64_t first) { return place == NOWHERE ? NOWHERE : 2 * first + place; }

// Adds what was seen of samples that begin at `first` to what was seen of others. Of equal extremes the first one counts.
void merge(const int64_t* seen, int64_t first, int64_t* partial) {
    for (int i = NAN_COUNT; i <= NEGATIVE; ++i) partial[i] += seen[i];
    const int64_t nan = placed(seen[FIRST_NAN], first), least = placed(seen[MIN_AT], first);
    const int64_t greatest = placed(seen[MAX_AT], first);
    if (nan < partial[FIRST_NAN]) partial[FIRST_NAN] = nan;
    if (least != NOWHERE && (partial[MIN_AT] == NOWHERE || seen[MIN_KEY] < partial[MIN_KEY] ||
                             (seen[MIN_KEY] == partial[MIN_KEY] && least < partial[MIN_AT])))
        partial[MIN_KEY] = seen[MIN_KEY], partial[MIN_AT] = least;
    if (greatest != NOWHERE && (partial[MAX_AT] == NOWHERE || seen[MAX_KEY] > partial[MAX_KEY] ||
                                (seen[MAX_KEY] == partial[MAX_KEY] && greatest < partial[MAX_AT])))
        partial[MAX_KEY] = seen[MAX_KEY], partial[MAX_AT] = greatest;
}

}  // namespace

extern "C" {

size_t state_bytes() { return sizeof(State); }

// A state of zeros, for an empty partial.
void begin(State* state, int64_t* partial) { state->partial = partial; }

// At most 2**31 samples, of which the first one is the one with index `first`.
void add_samples(State* state, const void* x, size_t n, int64_t first) {
    int64_t* const partial = state->partial;
    const int parts = static_cast<int>(partial[ASKED]);
    int64_t seen[SUM_AT] = {};
    seen[FIRST_NAN] = seen[MIN_AT] = seen[MAX_AT] = NOWHERE;
    Sum& sum = state->sum;
    Squares& squares = state->squares;
    switch (partial[CODE]) {
        case INT8: reduce_integers<uint8_t>(x, n, parts, 0x80, seen, sum, squares); break;
        case UINT8: reduce_integers<uint8_t>(x, n, parts, 0, seen, sum, squares); break;
        case INT16: reduce_integers<uint16_t>(x, n, parts, 0x8000, seen, sum, squares); break;
        case UINT16: reduce_integers<uint16_t>(x, n, parts, 0, seen, sum, squares); break;
        case INT32: reduce_integers<u32>(x, n, parts, 0x80000000u, seen, sum, squares); break;
        case UINT32: reduce_integers<u32>(x, n, parts, 0, seen, sum, squares); break;
        case INT64: reduce_integers<u64>(x, n, parts, u64(1) << 63, seen, sum, squares); break;
        case UINT64: reduce_integers<u64>(x, n, parts, 0, seen, sum, squares); break;
        case FLOAT16: reduce_floats<Half>(x, n, parts, seen, sum, squares); break;
        case FLOAT32: reduce_floats<Single>(x, n, parts, seen, sum, squares); break;
        case FLOAT64: reduce_floats<Double>(x, n, parts, seen, sum, squares); break;
    }
    merge(seen, first, partial);
    partial[SAMPLES] += static_cast<int64_t>(n);
}

// Completes the partial, which may go on.
void finish(State* state) {
    int64_t* const partial = state->partial;
    if (partial[ASKED] & SUM) state->sum.words(partial + SUM_AT);
    if (partial[ASKED] & SQUARES) state->squares.words(partial + SUM_AT + SUM_WORDS);
}
}
