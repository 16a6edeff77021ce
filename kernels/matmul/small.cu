// Exact products of stacks of small matrices of floats: each number is read once, each element is written once.
//
//   multiply_small       one matrix by a warp per 16 rows, or columns
//
// A warp scales 16 rows of A and 16 columns of B to integers, cuts these into digits of eight bits, and multiplies those on
// tensor cores, exactly; other warps get its digits of B through shared memory. Elements that a quick bound does not cover are
// examined one by one. small.py launches the kernel, docs/matmul.md says what is computed.

#include "matmul/operands.cuh"
#include "matmul/recompute.cuh"

constexpr int PER_BLOCK = 4;  // matrices, if each has one warp

// A tile of 16 rows and eight columns: for each of a lane's four elements the sums of products and of magnitudes.
template <typename F, int CHUNKS> struct Tile {
    using D = Digits<F>;
    Sum<F, SIDE * CHUNKS> sums[4];
    int totals[4] = {};

    __device__ static void multiply(int (&sums)[4], const u32 (&a)[CHUNKS][2][D::ALL], int i,
                                    const u32 (&b)[CHUNKS][D::ALL], int j) {
        const bool signed_a = i == D::COUNT - 1;
        const bool signed_b = j == D::COUNT - 1;
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
            const u32 own[2] = {a[c][0][i], a[c][1][i]};
            if (c % 2 == 0 && c + 1 < CHUNKS) {
                const u32 next[2] = {a[c + 1][0][i], a[c + 1][1][i]};
                multiply_bytes(sums, own, next, b[c][j], b[c + 1][j], signed_a, signed_b);
            } else if (c % 2 == 0) {
                multiply_bytes(sums, own, b[c][j], signed_a, signed_b);
            }
        }
    }

    template <int PART> __device__ void run_part(const u32 (&a)[CHUNKS][2][D::ALL], const u32 (&b)[CHUNKS][D::ALL]) {
        int places[4][4] = {};
#pragma unroll
        for (int i = 0; i < D::COUNT; ++i)
#pragma unroll
            for (int place = 0; place < 4; ++place) {
                const int j = 4 * PART + place - i;
                if (j >= 0 && j < D::COUNT) multiply(places[place], a, i, b, j);
            }
#pragma unroll
        for (int e = 0; e < 4; ++e)
            sums[e].template add<PART>(places[0][e], places[1][e], places[2][e], places[3][e]);
        if constexpr (PART + 1 < D::PARTS) run_part<PART + 1>(a, b);
    }

    __device__ void run(const u32 (&a)[CHUNKS][2][D::ALL], const u32 (&b)[CHUNKS][D::ALL]) {
        run_part<0>(a, b);
        multiply(totals, a, D::COUNT, b, D::COUNT);
    }

    // Whether all elements are certain, by Nearness.
    __device__ bool are_certain(const u32 (&a)[CHUNKS][2][D::ALL], const u32 (&b)[CHUNKS][D::ALL], int inner,
                                const bool (&there)[4]) const {
        int sizes[4] = {}, least = 1 << 30;
        if constexpr (Nearness<F>::MOVED > 0) {
            constexpr u32 ONES = 0x01010101;
            const u32 ones[2] = {ONES, ONES};
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) {
                const u32 own[2] = {a[c][0][D::COUNT], a[c][1][D::COUNT]};
                multiply_bytes(sizes, own, ONES, false, false);
                multiply_bytes(sizes, ones, b[c][D::COUNT], false, false);
            }
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int share = Nearness<F>::share(totals[e], sizes[e], inner);
            least = there[e] ? min(least, share) : least;
        }
        return Nearness<F>::enough(least, inner);
    }
};

// Examines the elements of two tiles one by one, and recomputes them where needed; returns how many were uncertain.
template <typename F>
__device__ int recompute(const Matrix<F>& of, int row, int column, double share, const int (&totals)[8]) {
    using Of = Scaling<sizeof(typename F::Storage)>;
    const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4, line = lane % 16;
    const Known<F> rows(of.a + (row + line) * of.inner, 1, row + line < of.rows ? of.inner : 0);
    const Known<F> columns(of.b + column + line, of.columns, column + line < of.columns ? of.inner : 0);
    int uncertain = 0;
#pragma unroll 1
    for (int e = 0; e < 8; ++e) {
        const int down = g + e / 2 % 2 * 8, across = Places<F>::column(e / 4, 2 * t + e % 2);
        const Known<F> of_row(rows, down), of_column(columns, across);
        int total = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) total = i == e ? totals[i] : total;
        if (row + down >= of.rows || column + across >= of.columns) continue;
        const Element<F> element{of.a + (row + down) * of.inner, of.b + column + across, of.columns, of.inner, of_row,
                                 of_column};
        typename F::Storage* const to = of.result + (row + down) * of.columns + column + across;
        if (of_row.nonfinite() || of_column.nonfinite()) {
            *to = element.nonfinite_sum();
        } else if (!element.is_certain(u32(total), share)) {
            *to = element.dot_product();
            ++uncertain;
        } else {
            const int first = of_row.exponent(), second = of_column.exponent();
            const bool moderate = min(first, second) >= Of::LEAST && max(first, second) <= Of::MOST;
            if (!moderate || Sum<F, SIDE>::unsure(*to, first + second)) *to = element.exact();
        }
    }
    return uncertain;
}

// Minimum of blocks per multiprocessor where more than the compiler would choose were faster; Turing has registers for one
// less.
constexpr int OF_WIDEST = TURING ? 2 : 3;
template <typename F, int WARPS, int CHUNKS, bool WHOLE> constexpr int BLOCKS =
    !WHOLE || WARPS != CHUNKS || sizeof(typename F::Storage) == 2 ? 0
    : sizeof(typename F::Storage) == 8                            ? (WARPS == 4 ? OF_WIDEST : 0)
    : WARPS == 1                                                  ? 8
    : WARPS == 2                                                  ? 12
    : WARPS == 4                                                  ? 4
                                                                  : 0;

// Matrix m of the stack of products comes from matrices a_of[m] and b_of[m] if they are listed, else from m and m.
template <typename F, int WARPS, int CHUNKS, bool WHOLE>
__global__ void __launch_bounds__(32 * (WARPS == 1 ? PER_BLOCK : WARPS), BLOCKS<F, WARPS, CHUNKS, WHOLE>)
multiply_small(const typename F::Storage* __restrict__ a, const typename F::Storage* __restrict__ b,
               const int* __restrict__ a_of, const int* __restrict__ b_of, int listed, int matrices, int rows, int inner,
               int columns, double share, typename F::Storage* result, u64* uncertain) {
    using T = typename F::Storage;
    using D = Digits<F>;
    using Scale = decltype(Sum<F, SIDE * CHUNKS>::scale(0));
    constexpr int GROUPS = WARPS > 1 ? WARPS : 0, OTHERS = GROUPS ? GROUPS : 1;
    // All chunks of a digit together, as the tensor cores take them; 16 bytes at a time as far as possible.
    constexpr int WORDS = D::ALL * CHUNKS, FOURS = WORDS / 4, REST = WORDS % 4;
    __shared__ alignas(16) u32 shared_fours[OTHERS][2][FOURS][GROUPS ? 32 : 1][4];
    __shared__ u32 shared_rest[OTHERS][2][REST ? REST : 1][GROUPS ? 32 : 1];
    __shared__ Scale shared_scales[OTHERS][2][8];
    if constexpr (WHOLE) rows = columns = SIDE * WARPS, inner = SIDE * CHUNKS;
    const u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp = threadIdx.x / 32;
    const int matrix = GROUPS ? int(blockIdx.x) : int(blockIdx.x) * PER_BLOCK + int(warp), own = GROUPS ? int(warp) * SIDE : 0;
    if (!GROUPS && matrix >= matrices) return;
    const int of_a = listed ? a_of[matrix] : matrix, of_b = listed ? b_of[matrix] : matrix;
    const Matrix<F> of{a + i64(of_a) * (rows * inner), b + i64(of_b) * (inner * columns),
                       result + i64(matrix) * (rows * columns), rows, inner, columns};
    T values_a[CHUNKS][2][4], values_b[CHUNKS][2][4];
    Pair<F, CHUNKS> pair_a, pair_b;
    load_columns<F, CHUNKS, WHOLE>(of, own, values_b);
    load_rows<F, CHUNKS, WHOLE>(of, own, values_a);
    bool moderate = pair_b.split(values_b);
    if constexpr (GROUPS > 0) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            u32 words[WORDS];
#pragma unroll
            for (int i = 0; i < WORDS; ++i) words[i] = pair_b.digits[i % CHUNKS][j][i / CHUNKS];
#pragma unroll
            for (int i = 0; i < FOURS; ++i)
                *reinterpret_cast<uint4*>(shared_fours[warp][j][i][lane]) =
                    make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
#pragma unroll
            for (int i = 0; i < REST; ++i) shared_rest[warp][j][i][lane] = words[4 * FOURS + i];
            if (t == 0) shared_scales[warp][j][g] = pair_b.scales[j];
        }
    }
    if constexpr (GROUPS > 0)
        moderate = __syncthreads_and(moderate);
    if (own >= rows) return;
    moderate &= pair_a.split(values_a);
    int recomputed = 0;
#pragma unroll 1
    for (int group = 0; group * SIDE < columns; ++group) {
        const int column = group * SIDE;
        T results[2][4];
        int totals[8];
        bool sure = moderate;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            u32 digits[CHUNKS][D::ALL], words[WORDS];
            if constexpr (GROUPS > 0) {
#pragma unroll
                for (int i = 0; i < FOURS; ++i) {
                    const uint4 four = *reinterpret_cast<const uint4*>(shared_fours[group][j][i][lane]);
                    words[4 * i] = four.x, words[4 * i + 1] = four.y, words[4 * i + 2] = four.z, words[4 * i + 3] = four.w;
                }
#pragma unroll
                for (int i = 0; i < REST; ++i) words[4 * FOURS + i] = shared_rest[group][j][i][lane];
            }
#pragma unroll
            for (int i = 0; i < WORDS; ++i)
                digits[i % CHUNKS][i / CHUNKS] = GROUPS ? words[i] : pair_b.digits[i % CHUNKS][j][i / CHUNKS];
            Tile<F, CHUNKS> tile;
            tile.run(pair_a.digits, digits);
            bool there[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int n = 2 * int(t) + e % 2;
                there[e] = WHOLE || (own + int(g) + e / 2 * 8 < rows && column + Places<F>::column(j, n) < columns);
                const Scale scale = GROUPS ? shared_scales[group][j][n] : __shfl_sync(~0u, pair_b.scales[j], 4 * n);
                bool rounded = true;
                results[j][e] = tile.sums[e].round(pair_a.scales[e / 2], scale, rounded);
                sure &= rounded || !there[e];
                totals[4 * j + e] = tile.totals[e];
            }
            sure &= tile.are_certain(pair_a.digits, digits, inner, there);
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int row = own + int(g) + 8 * h;
            T* const to = of.result + row * columns + column;
            const T(&left)[4] = results[0], (&right)[4] = results[1];
            if constexpr (WHOLE && Places<F>::DOUBLES) {
                __stcs(reinterpret_cast<ulonglong2*>(to + 2 * t), make_ulonglong2(left[2 * h], left[2 * h + 1]));
                __stcs(reinterpret_cast<ulonglong2*>(to + 8 + 2 * t), make_ulonglong2(right[2 * h], right[2 * h + 1]));
            } else if constexpr (WHOLE && sizeof(T) == 4) {
                __stcs(reinterpret_cast<uint4*>(to + 4 * t),
                       make_uint4(left[2 * h], right[2 * h], left[2 * h + 1], right[2 * h + 1]));
            } else {
#pragma unroll
                for (int j = 0; j < 2; ++j)
#pragma unroll
                    for (int n = 0; n < 2; ++n) {
                        const int place = Places<F>::column(j, 2 * int(t) + n);
                        if (row < rows && column + place < columns) to[place] = results[j][2 * h + n];
                    }
            }
        }
        if (__any_sync(~0u, !sure)) recomputed += recompute<F>(of, own, column, share, totals);
    }
    for (int distance = 16; distance; distance /= 2) recomputed += __shfl_xor_sync(~0u, recomputed, distance);
    if (lane == 0 && recomputed) atomicAdd(uncertain, u64(recomputed));
}
