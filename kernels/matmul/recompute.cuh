// Single elements of a product of small matrices, computed as docs/matmul.md defines them.
#pragma once

#include "matmul/certificate.cuh"
#include "matmul/nonfinite.cuh"

// What is known of a line; two lanes hold each of 16 lines.
template <typename F> struct Known {
    u64 largest = 0;
    Part part;

    // Each lane reads numbers that are `step` apart; none if the line does not exist. For a line with infinities or NaN only
    // `nonfinite` is meaningful.
    __device__ Known(const typename F::Storage* line, int step, int inner) {
        const int half = int(threadIdx.x) / 16 % 2;
#pragma unroll 1
        for (int k = half; k < inner; k += 2) largest = max(largest, u64(line[k * step] & (F::SIGN - 1)));
        largest = max(largest, __shfl_xor_sync(~0u, largest, 16));
#pragma unroll 1
        for (int k = half; k < inner; k += 2) {
            const typename F::Storage value = line[k * step];
            if (!(value & (F::SIGN - 1))) continue;
            int moved;
            const typename F::Whole whole = F::whole(value, typename F::Scale(exponent()), moved);
            part.size += int(F::magnitude(whole)) + 1;
            part.loss = max(part.loss, moved);
            part.early = max(part.early, MOST_INNER - k);
            part.late = k + 1;
        }
        part.loss = F::lost(part.loss);
        part.template gather<16>();
    }

    // What another lane knows.
    __device__ Known(const Known& of, int lane) {
        largest = __shfl_sync(~0u, of.largest, lane);
        part.size = __shfl_sync(~0u, of.part.size, lane);
        part.loss = __shfl_sync(~0u, of.part.loss, lane);
        part.early = __shfl_sync(~0u, of.part.early, lane);
        part.late = __shfl_sync(~0u, of.part.late, lane);
    }

    __device__ int exponent() const { return F::exponent(largest); }
    __device__ bool nonfinite() const { return F::nonfinite(largest); }
    __device__ Line line() const { return Line(u64(part.size), part.loss, part.early, part.late); }
};

// An element: its row, and its column with numbers that are `step` apart.
template <typename F> struct Element {
    const typename F::Storage *row, *column;
    int step, inner;
    const Known<F>&of_row, &of_column;

    static __device__ typename F::Whole whole(typename F::Storage value, const Known<F>& of) {
        int moved;
        return F::whole(value, typename F::Scale(of.exponent()), moved);
    }
    __device__ typename F::Whole whole_of_row(int k) const { return whole(row[k], of_row); }
    __device__ typename F::Whole whole_of_column(int k) const { return whole(column[k * step], of_column); }

    // First by a lower bound on the sum of products of magnitudes, then by the sum itself.
    __device__ bool is_certain(u32 least, double share) const {
        const Line a = of_row.line(), b = of_column.line();
        if (certain<F>(a, b, inner, least, share)) return true;
        u32 total = 0;
#pragma unroll 1
        for (int k = 0; k < inner; ++k) total += F::magnitude(whole_of_row(k)) * F::magnitude(whole_of_column(k));
        return certain<F>(a, b, inner, total, share);
    }

    __device__ typename F::Storage nonfinite_sum() const {
        int kinds = 0;
#pragma unroll 1
        for (int k = 0; k < inner; ++k) kinds |= term<F>(row[k], column[k * step]);
        return sum_of_terms<F>(kinds);
    }

    __device__ double in_order(double scale_a, double scale_b) const {
        double sum = 0;
#pragma unroll 4
        for (int k = 0; k < inner; ++k) sum += F::real(row[k]) * scale_a * (F::real(column[k * step]) * scale_b);
        return sum;
    }

    // Term by term in float64; if that overflows on the way, again with factors scaled so that it cannot.
    __device__ typename F::Storage dot_product() const {
        const double sum = in_order(1, 1);
        if (is_finite(sum)) return rounded<F>(sum, 0);
        const int of_a = of_row.exponent(), of_b = of_column.exponent();
        const double scaled = in_order(power_of_two(HALF_WAY - of_a), power_of_two(HALF_WAY - of_b));
        return rounded<F>(scaled, of_a + of_b - 2 * HALF_WAY);
    }

    // The exact sum of products of scaled integers, rounded for any exponent.
    __device__ typename F::Storage exact() const {
        u64 low = 0, high = 0;
#pragma unroll 1
        for (int k = 0; k < inner; ++k) {
            const i64 a = whole_of_row(k), b = whole_of_column(k);
            const u64 product = u64(a) * u64(b);
            low += product;
            high += u64(__mul64hi(a, b)) + (low < product);
        }
        u32 words[4] = {u32(low), u32(low >> 32), u32(high), u32(high >> 32)};
        return to_float<F>(words, of_row.exponent() + of_column.exponent() - 2 * F::KEPT);
    }
};
