// Which numbers of rows and columns are not zero, as bits: for check_sums.cpp and check_defined.cpp.

#pragma once

#include <cstddef>
#include <cstdint>

namespace {

constexpr std::size_t STEP = 64;  // words that are compared at a time

inline bool meet(const uint64_t* x, const uint64_t* y, std::size_t words) {
    for (std::size_t k = 0; k < words; k += STEP) {
        const std::size_t end = words - k < STEP ? words : k + STEP;
        uint64_t both = 0;
        for (std::size_t w = k; w < end; ++w) both |= x[w] & y[w];
        if (both) return true;
    }
    return false;
}

}  // namespace
