// Elements of a product to which infinities or NaN belong: what IEEE 754 gives for the sum without rounding on the way.
#pragma once

#include "matmul/numbers.cuh"

enum Term : u8 { UPWARDS = 1, DOWNWARDS = 2, UNDEFINED = 4, DOUBTFUL = 8 };  // the last one alone

// Which of them a product is: none where it is finite.
template <typename F> __device__ int term(typename F::Storage a, typename F::Storage b) {
    const u64 large = a & (F::SIGN - 1), other = b & (F::SIGN - 1);
    if (!F::wild(large) && !F::wild(other)) return 0;
    if (large > F::INFINITE || other > F::INFINITE || large == 0 || other == 0) return UNDEFINED;
    return (a ^ b) & F::SIGN ? DOWNWARDS : UPWARDS;
}

// The sum of products of which these were found.
template <typename F> __device__ typename F::Storage sum_of_terms(int found) {
    const bool undefined = found != UPWARDS && found != DOWNWARDS;
    return typename F::Storage(undefined          ? F::NOT_A_NUMBER
                               : found == UPWARDS ? F::INFINITE
                                                  : F::SIGN | F::INFINITE);
}
