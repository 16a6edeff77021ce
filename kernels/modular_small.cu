// Exact products of stacks of small matrices of floats: each number is read once and each element written once.
//
//   multiply_small       one matrix by a warp for each 16 of its rows, or columns
//
// A warp scales 16 rows of A and 16 columns of B to integers, cuts these into digits of eight bits, and multiplies those on
// tensor cores, exactly; other warps get its digits of B through shared memory. Elements that a bound cannot vouch for at
// once are looked at one by one. modular_small.py calls the kernel, docs/matmul.md says what is computed.

#include "modular_digits.cuh"
#include "modular_mend.cuh"

constexpr int SIDE = 16;     // rows of A, columns of B and numbers of each that a warp has at a time
constexpr int AT_A_TIME = 4; // matrices by a block where each has one warp

template <typename T, int COUNT> struct alignas(COUNT * sizeof(T)) Pack { T items[COUNT]; };

// With g = lane / 4 and t = lane % 4: where number i of four is that a lane has of a line, and where in 16 columns of B is
// column n of the eight that tile j multiplies. So that lanes read and write 8 or 16 bytes, and those next to each other.
template <typename F> struct Places {
    using T = typename F::Storage;
    static constexpr bool DOUBLES = sizeof(T) == 8;
    static __device__ int inner(int t, int i) { return DOUBLES ? i / 2 * 8 + 2 * t + i % 2 : 4 * t + i; }
    static __device__ int column(int j, int n) { return DOUBLES ? 8 * j + n : 2 * n + j; }
};

// Two lines of a lane: rows g and g + 8 of A, or column g of both tiles of B. All four lanes of them have their exponents.
template <typename F, int CHUNKS> struct Pair {
    using T = typename F::Storage;
    using Of = Scaling<sizeof(T)>;
    u32 digits[CHUNKS][2][Digits<F>::ALL];
    int exponents[2];

    __device__ void split(const T (&values)[CHUNKS][2][4]) {
        typename Of::Bits bits[CHUNKS][2][4];
        u32 low[2] = {}, keys[2];
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
            for (int h = 0; h < 2; ++h)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    if constexpr (sizeof(T) == 2) bits[c][h][i] = __float_as_uint(float(F::real(values[c][h][i])));
                    else bits[c][h][i] = values[c][h][i];
                    if constexpr (sizeof(T) == 8) low[h] |= u32(bits[c][h][i]);
                }
        find_keys(bits, keys);
        int lifted[2] = {};
        if (__any_sync(~0u, (Of::tiny(keys[0]) && (keys[0] | low[0])) || (Of::tiny(keys[1]) && (keys[1] | low[1])))) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                lifted[h] = Of::tiny(keys[h]) ? Of::LIFT : 0;
#pragma unroll
                for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
                    for (int i = 0; i < 4; ++i) bits[c][h][i] = Of::lift(bits[c][h][i], lifted[h]);
            }
            find_keys(bits, keys);
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const u32 field = keys[h] >> Of::FIELD;
            exponents[h] = int(field) - Of::BIAS - lifted[h];
            // Lines with infinities or NaN become zeros: no bound vouches for them.
            const auto factor = Of::factor(field == Of::WILD ? 0 : Of::POWER - field);
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) {
                typename Of::Whole wholes[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) wholes[i] = Of::whole(bits[c][h][i], factor);
                Digits<F>::cut(wholes, digits[c][h]);
            }
        }
    }

    __device__ static void find_keys(const typename Of::Bits (&bits)[CHUNKS][2][4], u32 (&keys)[2]) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            keys[h] = 0;
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
                for (int i = 0; i < 4; ++i) keys[h] = max(keys[h], Of::key(bits[c][h][i]));
            keys[h] = max(keys[h], __shfl_xor_sync(~0u, keys[h], 1));
            keys[h] = max(keys[h], __shfl_xor_sync(~0u, keys[h], 2));
        }
    }
};

// A matrix of the stack of products, and its factors.
template <typename F> struct Matrix {
    using T = typename F::Storage;
    const T *a, *b;
    T* result;
    int rows, inner, columns;
};

template <typename F, int CHUNKS, bool WHOLE>
__device__ void load_rows(const Matrix<F>& of, int row, typename F::Storage (&values)[CHUNKS][2][4]) {
    constexpr int SIZE = Places<F>::DOUBLES ? 2 : 4;
    using T = typename F::Storage;
    const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int i = 0; i < 4; i += WHOLE ? SIZE : 1) {
                const int line = row + g + 8 * h, k = SIDE * c + Places<F>::inner(t, i);
                const T* const from = of.a + line * of.inner + k;
                if constexpr (WHOLE) {
                    const auto pack = *reinterpret_cast<const Pack<T, SIZE>*>(from);
#pragma unroll
                    for (int n = 0; n < SIZE; ++n) values[c][h][i + n] = pack.items[n];
                } else {
                    values[c][h][i] = line < of.rows && k < of.inner ? *from : T(0);
                }
            }
}

template <typename F, int CHUNKS, bool WHOLE>
__device__ void load_columns(const Matrix<F>& of, int column, typename F::Storage (&values)[CHUNKS][2][4]) {
    using T = typename F::Storage;
    const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int k = SIDE * c + Places<F>::inner(t, i);
            const T* const from = of.b + k * of.columns + column;
            if constexpr (WHOLE && !Places<F>::DOUBLES) {
                const auto pack = *reinterpret_cast<const Pack<T, 2>*>(from + 2 * g);
                values[c][0][i] = pack.items[0];
                values[c][1][i] = pack.items[1];
            } else {
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    const int place = Places<F>::column(j, g);
                    const bool there = WHOLE || (k < of.inner && column + place < of.columns);
                    values[c][j][i] = there ? from[place] : T(0);
                }
            }
        }
}

// One tile: 16 rows, eight columns. Of each of a lane's four elements the words of its integer, and from its magnitudes
// whether a bound vouches for it: for rounding has moved no number of a line by more than 2^MOVED / 2 units of that.
template <typename F, int CHUNKS> struct Tile {
    using D = Digits<F>;
    static constexpr int MOVED = F::PRECISION - F::KEPT + BITS < 0 ? 0 : F::PRECISION - F::KEPT + BITS;
    u32 words[4][D::WORDS];
    int totals[4] = {};

    __device__ static void multiply(int (&sums)[4], const u32 (&a)[CHUNKS][2][D::ALL], int i,
                                    const u32 (&b)[CHUNKS][D::ALL], int j) {
        const bool signed_a = i == D::COUNT - 1, signed_b = j == D::COUNT - 1;
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

    __device__ void run(const u32 (&a)[CHUNKS][2][D::ALL], const u32 (&b)[CHUNKS][D::ALL]) {
        i64 carry[4] = {};
#pragma unroll
        for (int part = 0; part < D::PARTS; ++part) {
            int sums[4][4] = {};
#pragma unroll
            for (int i = 0; i < D::COUNT; ++i)
#pragma unroll
                for (int place = 0; place < 4; ++place) {
                    const int j = 4 * part + place - i;
                    if (j >= 0 && j < D::COUNT) multiply(sums[place], a, i, b, j);
                }
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                if constexpr (D::narrow(SIDE * CHUNKS)) {
                    carry[e] += sums[0][e] + 256 * sums[1][e] + i64(sums[2][e] + 256 * sums[3][e]) * 65536;
                } else {
                    carry[e] += sums[0][e] + i64(sums[1][e]) * 256 + i64(sums[2][e]) * 65536 + i64(sums[3][e]) * (1 << 24);
                }
                words[e][part] = u32(carry[e]);
                carry[e] >>= 32;
            }
        }
        if constexpr (D::WORDS > D::PARTS) {
#pragma unroll
            for (int e = 0; e < 4; ++e) words[e][D::PARTS] = u32(carry[e]);
        }
        multiply(totals, a, D::COUNT, b, D::COUNT);
    }

    // Without the sizes of lines where all that they can be is little enough.
    __device__ void vouch(const u32 (&a)[CHUNKS][2][D::ALL], const u32 (&b)[CHUNKS][D::ALL], int inner,
                          bool (&certain)[4]) const {
        int sizes[4] = {};
        if constexpr (MOVED > 0) {
            constexpr u32 ONES = 0x01010101;
            const u32 ones[2] = {ONES, ONES};
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) {
                const u32 own[2] = {a[c][0][D::COUNT], a[c][1][D::COUNT]};
                multiply_bytes(sizes, own, ONES, false, false);
                multiply_bytes(sizes, ones, b[c][D::COUNT], false, false);
            }
        }
        // A magnitude is one more than it was counted as, where its number is negative, and counts one more.
        const int most = MOVED > 0 ? 4 * inner : inner << (BITS + 1);
#pragma unroll
        for (int e = 0; e < 4; ++e)
            certain[e] = (inner - 1) * totals[e] > ((sizes[e] + most) << (MOVED + 1)) + 2;
    }
};

// Looks at the elements of two tiles one by one; how many are doubtful.
template <typename F>
__device__ int mend(const Matrix<F>& of, int row, int column, double share, const int (&totals)[8], u32 inexact) {
    const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4, line = lane % 16;
    const Known<F> rows(of.a + (row + line) * of.inner, 1, row + line < of.rows ? of.inner : 0);
    const Known<F> columns(of.b + column + line, of.columns, column + line < of.columns ? of.inner : 0);
    int doubtful = 0;
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
        if (of_row.wild() || of_column.wild()) {
            *to = element.wild_sum();
        } else if (!element.is_certain(u32(total), share)) {
            *to = element.dot_product();
            ++doubtful;
        } else if (inexact >> e & 1) {
            *to = element.exact();
        }
    }
    return doubtful;
}

// Blocks that a multiprocessor is to hold at least.
template <typename F, int WARPS, int CHUNKS> constexpr int BLOCKS = WARPS == 1 ? (CHUNKS == 1 ? 5 : 3) : 8 / WARPS;

// Matrix m of the stack of products comes from matrices a_of[m] and b_of[m], where they are listed, else from m and m.
template <typename F, int WARPS, int CHUNKS, bool WHOLE>
__global__ void __launch_bounds__(32 * (WARPS == 1 ? AT_A_TIME : WARPS), BLOCKS<F, WARPS, CHUNKS>)
multiply_small(const typename F::Storage* __restrict__ a, const typename F::Storage* __restrict__ b,
               const int* __restrict__ a_of, const int* __restrict__ b_of, int listed, i64 matrices, int rows, int inner,
               int columns, double share, typename F::Storage* result, u64* doubtful) {
    using T = typename F::Storage;
    using D = Digits<F>;
    __shared__ u32 shared_digits[WARPS == 1 ? 1 : WARPS][2][CHUNKS][D::ALL][WARPS == 1 ? 1 : 32];
    __shared__ int shared_exponents[WARPS == 1 ? 1 : WARPS][2][8];
    const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4, warp = int(threadIdx.x) / 32;
    const i64 matrix = WARPS == 1 ? i64(blockIdx.x) * AT_A_TIME + warp : i64(blockIdx.x);
    if (WARPS == 1 && matrix >= matrices) return;
    const int own = WARPS == 1 ? 0 : warp * SIDE;
    const i64 of_a = listed ? a_of[matrix] : matrix, of_b = listed ? b_of[matrix] : matrix;
    const Matrix<F> of{a + of_a * rows * inner, b + of_b * inner * columns, result + matrix * rows * columns, rows, inner,
                       columns};
    T values_a[CHUNKS][2][4], values_b[CHUNKS][2][4];
    Pair<F, CHUNKS> pair_a, pair_b;
    if (own < columns) load_columns<F, CHUNKS, WHOLE>(of, own, values_b);
    if (own < rows) load_rows<F, CHUNKS, WHOLE>(of, own, values_a);
    if (own < columns) {
        pair_b.split(values_b);
        if constexpr (WARPS > 1) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                if (t == 0) shared_exponents[warp][j][g] = pair_b.exponents[j];
#pragma unroll
                for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
                    for (int i = 0; i < D::ALL; ++i) shared_digits[warp][j][c][i][lane] = pair_b.digits[c][j][i];
            }
        }
    }
    if constexpr (WARPS > 1) __syncthreads();
    if (own >= rows) return;
    pair_a.split(values_a);
    int found = 0;
    for (int group = 0; group * SIDE < columns; ++group) {
        const int column = group * SIDE;
        T results[2][4];
        int totals[8];
        u32 inexact = 0;
        bool sure = true;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            u32 digits[CHUNKS][D::ALL];
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
                for (int i = 0; i < D::ALL; ++i)
                    digits[c][i] = WARPS == 1 ? pair_b.digits[c][j][i] : shared_digits[group][j][c][i][lane];
            Tile<F, CHUNKS> tile;
            tile.run(pair_a.digits, digits);
            bool certain[4];
            tile.vouch(pair_a.digits, digits, inner, certain);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int n = 2 * t + e % 2;
                const int exponent = WARPS == 1 ? __shfl_sync(~0u, pair_b.exponents[j], 4 * n) : shared_exponents[group][j][n];
                const bool exact = Rounding<F>::round(tile.words[e], pair_a.exponents[e / 2] + exponent, results[j][e]);
                const bool there = WHOLE || (own + g + e / 2 * 8 < rows && column + Places<F>::column(j, n) < columns);
                inexact |= exact ? 0u : 1u << (4 * j + e);
                sure &= (exact && certain[e]) || !there;
                totals[4 * j + e] = tile.totals[e];
            }
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int row = own + g + 8 * h;
            T* const to = of.result + row * columns + column;
            if constexpr (WHOLE && Places<F>::DOUBLES) {
#pragma unroll
                for (int j = 0; j < 2; ++j)
                    *reinterpret_cast<Pack<T, 2>*>(to + 8 * j + 2 * t) = {results[j][2 * h], results[j][2 * h + 1]};
            } else if constexpr (WHOLE) {
                *reinterpret_cast<Pack<T, 4>*>(to + 4 * t) = {results[0][2 * h], results[1][2 * h], results[0][2 * h + 1],
                                                             results[1][2 * h + 1]};
            } else {
#pragma unroll
                for (int j = 0; j < 2; ++j)
#pragma unroll
                    for (int n = 0; n < 2; ++n) {
                        const int place = Places<F>::column(j, 2 * t + n);
                        if (row < rows && column + place < columns) to[place] = results[j][2 * h + n];
                    }
            }
        }
        if (__any_sync(~0u, !sure)) found += mend<F>(of, own, column, share, totals, inexact);
    }
    for (int distance = 16; distance; distance /= 2) found += __shfl_xor_sync(~0u, found, distance);
    if (lane == 0 && found) atomicAdd(doubtful, u64(found));
}
