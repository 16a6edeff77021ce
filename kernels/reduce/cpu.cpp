// Exact moments and extremes on the CPU. reduce_samples fills the partial that partial.py describes from at most 2**29
// samples.
//
// Samples are processed in blocks of 4096, 16 to 32 KiB, which fit the L1 cache. For a block of floats
//
//   scan        finds the largest and smallest magnitude as integers, and the extremes;
//   scale_down  copies a block that has NaN, infinities, or numbers far smaller than the largest one: those are set to
//               zero, and added to the sums one by one;
//   add_up      sums the others in float64 without rounding error: lanes start at 1.5 * 2**k, so that their spacing
//               never changes; an addition rounds a number to that spacing, the remainder goes to the next lane.
//
// Sums end as 32-bit digits in integers that 2**29 samples cannot overflow. The compiler must neither reorder nor fuse
// these operations: no -ffast-math, and -ffp-contract=off.

#include "cpu_float.hpp"
#include "cpu_integer.hpp"

// Types are numbered as in partial.py.
enum Type { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64 };

extern "C" void reduce_samples(int type, int parts, const void* samples, size_t n, int64_t* partial) {
    Result result{partial, parts, {}, {}};
    switch (type) {
        case INT8: reduce_integers(static_cast<const int8_t*>(samples), n, result); break;
        case UINT8: reduce_integers(static_cast<const uint8_t*>(samples), n, result); break;
        case INT16: reduce_integers(static_cast<const int16_t*>(samples), n, result); break;
        case UINT16: reduce_integers(static_cast<const uint16_t*>(samples), n, result); break;
        case INT32: reduce_integers(static_cast<const int32_t*>(samples), n, result); break;
        case UINT32: reduce_integers(static_cast<const uint32_t*>(samples), n, result); break;
        case INT64: reduce_integers(static_cast<const int64_t*>(samples), n, result); break;
        case UINT64: reduce_integers(static_cast<const uint64_t*>(samples), n, result); break;
        case FLOAT16: reduce_halves(samples, n, result); break;
        case FLOAT32: reduce_floats<float>(samples, n, result); break;
        case FLOAT64: reduce_floats<double>(samples, n, result); break;
    }
    result.finish();
}
