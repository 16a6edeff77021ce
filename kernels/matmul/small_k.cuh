// Products of 64 rows of A and a group of columns of B, by warpgroups that multiply and round.
#pragma once

#include "matmul/small_k_lines.cuh"

template <bool SIGNED> struct SignedIf { using Type = u32; };
template <> struct SignedIf<true> { using Type = int; };

template <typename F, int PIECES> struct SmallK : SmallKLines<F, PIECES> {
    using Lines = SmallKLines<F, PIECES>;
    using typename Lines::D, typename Lines::T, typename Lines::Sums;
    using Lines::COLUMNS, Lines::EIGHTS, Lines::INNER, Lines::PIECE_A, Lines::PIECE_B, Lines::ROWS;
    using Lines::STEPS_OF_MAGNITUDES, Lines::lane, Lines::of, Lines::of_a, Lines::of_b, Lines::parity, Lines::slot;
    using Lines::stage, Lines::state, Lines::warp, Lines::Lines;
    // Words of 64 bits for the sums at four places each, the last one for those at all others.
    static constexpr int WORDS = D::COUNT > 4 ? 3 : 2;
    static constexpr int word_of(int place) { return place / 4 < WORDS ? place / 4 : WORDS - 1; }
    static_assert(i64(INNER) * 255 * 255 * 257 < i64(1) << 32, "sums of a digit of A at two places fit into 32 bits");

    // Words of sums of products of digits of the rows and of the columns, and sums of products of some magnitudes.
    __device__ void multiply(i64 (&sums)[EIGHTS][4][WORDS], int (&totals)[EIGHTS][4]) const {
        int products[D::COUNT * EIGHTS][4] = {};  // shared by all digits of A
#pragma unroll
        for (int j = 0; j < EIGHTS; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e)
#pragma unroll
                for (int word = 0; word < WORDS; ++word) {
                    constexpr int FIRST = F::KEPT / 32;
                    const bool biased = word == FIRST || word == FIRST + 1;
                    sums[j][e][word] = biased ? state.bias_a[row() + e / 2 * 8][biased ? word - FIRST : 0] : 0;
                }
        multiply_digit<0>(products, sums);
        begin_multiplying();
        const u64 a = lines_at(of_a + PIECES * PIECE_A), b = lines_at(of_b + PIECES * PIECE_B);
#pragma unroll
        for (int step = 0; step < STEPS_OF_MAGNITUDES; ++step) multiply_digits<false>(totals, a, b, step, step > 0);
        commit_multiplying();
        wait_for_multiplying<0>();
        hold(totals);
    }
    // Multiplies a digit of A with all digits of B: sums at as many places.
    template <int DIGIT>
    __device__ void multiply_digit(int (&products)[D::COUNT * EIGHTS][4], i64 (&sums)[EIGHTS][4][WORDS]) const {
        begin_multiplying();
#pragma unroll
        for (int step = 0; step < INNER / 32; ++step) {
            const int piece = step / (WIDE / 32);
            const u8 *const a = of_a + piece * PIECE_A + DIGIT * ROWS * WIDE, *const b = of_b + piece * PIECE_B;
            multiply_digits<DIGIT == D::COUNT - 1>(products, lines_at(a), lines_at(b), step % (WIDE / 32), step > 0);
        }
        commit_multiplying();
        wait_for_multiplying<0>();
        hold(products);
        using Whole = typename SignedIf<DIGIT == D::COUNT - 1>::Type;
#pragma unroll
        for (int digit = 0; digit < D::COUNT; digit += 2)
#pragma unroll
            for (int j = 0; j < EIGHTS; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int place = DIGIT + digit, word = word_of(place);
                    Whole sum = Whole(products[digit * EIGHTS + j][e]);
                    if (digit + 1 < D::COUNT) sum += 256 * Whole(products[(digit + 1 < D::COUNT ? digit + 1 : 0) * EIGHTS + j][e]);
                    sums[j][e][word] += i64(sum) * (i64(1) << 8 * (place - 4 * word));
                }
        if constexpr (DIGIT + 1 < D::COUNT) multiply_digit<DIGIT + 1>(products, sums);
    }
    // By a consumer, once the stage is full; returns whether all elements are certain.
    template <bool WHOLE> __device__ bool drain(int column) {
        i64 sums[EIGHTS][4][WORDS];
        int totals[EIGHTS][4];
        wait_for_stage(state.full + stage, parity);
        multiply(sums, totals);
        arrive(state.empty + stage);
        return finish<WHOLE>(column, sums, totals);
    }
    // Row of a lane's first sum, and its column within eight.
    __device__ int row() const { return warp % 4 * 16 + lane / 4; }
    __device__ int column() const { return lane % 4 * 2; }

    // Rounds the elements of a group, whose first column this is; returns whether all are certain.
    template <bool WHOLE>
    __device__ bool finish(int first, const i64 (&sums)[EIGHTS][4][WORDS], const int (&totals)[EIGHTS][4]) const {
        int least = 1 << 30;
        u32 open = 0;
        const auto& known = state;
        const int own = slot();
#pragma unroll
        for (int j = 0; j < EIGHTS; ++j)
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                const int row = this->row() + 8 * k;
                T results[2];
#pragma unroll
                for (int n = 0; n < 2; ++n) {
                    const int column = 8 * j + this->column() + n;
                    Sums sum;
                    sum.gather(sums[j][2 * k + n]);
                    bool sure = true;
                    results[n] = sum.round(known.scale_a[row], known.scale_b[own][column], sure);
                    open |= u32(!sure) << (4 * j + 2 * k + n);
                    const int sizes = known.size_a[row] + known.size_b[own][column];
                    const int total = sizes < 0 ? 1 << 20 : totals[j][2 * k + n];  // a sum of zeros
                    const int share = Nearness<F>::share(total, max(sizes, 0), of.inner);
                    if (WHOLE || (row < of.rows && first + column < of.columns)) least = min(least, share);
                }
                store<WHOLE>(row, first + 8 * j + column(), results[0], results[1]);
            }
        if (open) finish_open<WHOLE>(first, sums, open);
        return Nearness<F>::enough(least, of.inner);
    }
    // Rounds elements that were not sure, from all bits of their sums.
    template <bool WHOLE>
    __device__ void finish_open(int first, const i64 (&sums)[EIGHTS][4][WORDS], u32 open) const {
        const int own = slot();
#pragma unroll
        for (int j = 0; j < EIGHTS; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int row = this->row() + e / 2 * 8, column = 8 * j + this->column() + e % 2;
                if (!(open >> (4 * j + e) & 1)) continue;
                Sums sum;
                sum.gather(sums[j][e]);
                const T result = sum.exactly(state.exponent_a[row] + state.exponent_b[own][column]);
                if (WHOLE || (row < of.rows && first + column < of.columns))
                    of.result[i64(row) * of.columns + first + column] = result;
            }
    }
    template <bool WHOLE> __device__ void store(int row, int column, T left, T right) const {
        T* const to = of.result + i64(row) * of.columns + column;
        if constexpr (WHOLE) {
            if constexpr (sizeof(T) == 8) __stcs(reinterpret_cast<ulonglong2*>(to), make_ulonglong2(left, right));
            else if constexpr (sizeof(T) == 4) __stcs(reinterpret_cast<uint2*>(to), make_uint2(left, right));
            else __stcs(reinterpret_cast<u32*>(to), u32(left) | u32(right) << 16);
        } else if (row < of.rows) {
            if (column < of.columns) to[0] = left;
            if (column + 1 < of.columns) to[1] = right;
        }
    }
};
