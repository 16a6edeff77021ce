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

// Fills an empty partial from at most 2**31 samples.
extern "C" void check_samples(int type, int parts, const void* x, size_t n, int64_t* partial) {
    Sum sum;
    Squares squares;
    switch (type) {
        case INT8: reduce_integers<uint8_t>(x, n, parts, 0x80, partial, sum, squares); break;
        case UINT8: reduce_integers<uint8_t>(x, n, parts, 0, partial, sum, squares); break;
        case INT16: reduce_integers<uint16_t>(x, n, parts, 0x8000, partial, sum, squares); break;
        case UINT16: reduce_integers<uint16_t>(x, n, parts, 0, partial, sum, squares); break;
        case INT32: reduce_integers<u32>(x, n, parts, 0x80000000u, partial, sum, squares); break;
        case UINT32: reduce_integers<u32>(x, n, parts, 0, partial, sum, squares); break;
        case INT64: reduce_integers<u64>(x, n, parts, u64(1) << 63, partial, sum, squares); break;
        case UINT64: reduce_integers<u64>(x, n, parts, 0, partial, sum, squares); break;
        case FLOAT16: reduce_floats<Half>(x, n, parts, partial, sum, squares); break;
        case FLOAT32: reduce_floats<Single>(x, n, parts, partial, sum, squares); break;
        case FLOAT64: reduce_floats<Double>(x, n, parts, partial, sum, squares); break;
    }
    if (parts & SUM) sum.words(partial + SUM_AT);
    if (parts & SQUARES) squares.words(partial + SUM_AT + SUM_WORDS);
}
