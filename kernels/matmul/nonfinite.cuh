// Elements of a product with infinities or NaN among their factors: the IEEE 754 result without intermediate rounding.
#pragma once

#include "matmul/numbers.cuh"

enum Term : u8 { UPWARDS = 1, DOWNWARDS = 2, UNDEFINED = 4, UNCERTAIN = 8 };  // UNCERTAIN excludes the others

// The kind of a product of two numbers; 0 if it is finite.
template <typename F> __device__ int term(typename F::Storage a, typename F::Storage b) {
    const u64 large = a & (F::SIGN - 1), other = b & (F::SIGN - 1);
    if (!F::nonfinite(large) && !F::nonfinite(other)) return 0;
    if (large > F::INFINITE || other > F::INFINITE || large == 0 || other == 0) return UNDEFINED;
    return (a ^ b) & F::SIGN ? DOWNWARDS : UPWARDS;
}

// The sum of products of these kinds.
template <typename F> __device__ typename F::Storage sum_of_terms(int kinds) {
    const bool undefined = kinds != UPWARDS && kinds != DOWNWARDS;
    return typename F::Storage(undefined          ? F::NOT_A_NUMBER
                               : kinds == UPWARDS ? F::INFINITE
                                                  : F::SIGN | F::INFINITE);
}
