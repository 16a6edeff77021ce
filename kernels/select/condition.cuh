// A condition, in the place of a generated one, where `gpu.cu` is compiled by itself.
#pragma once

#include "select/arithmetic.cuh"

// Samples below 100 other than 7, not the one with index 5, beside which no column has a 0.
template <typename T, typename... C>
inline __device__ bool keep(T x, i64 i, C... columns) {
    const auto sample = number(x);
    const bool wanted = less(sample, to<T>(100)) & not_equal(sample, to<T>(7)) & not_equal(i, i64(5));
    return (wanted & ... & not_equal(number(columns), to<C>(0)));
}
