// Exact matrix products in a residue number system, for all dtypes and shapes: integers modulo small numbers, multiplied as
// bytes on tensor cores, reconstructed by the Chinese remainder theorem.
//
//   largest_in_rows      largest magnitude of each row of A, which determines its scale
//   largest_in_columns   the same for each column of B
//   split                scales every number, rounds it to an integer, and writes its residues, a plane for each modulus
//   multiply             one plane of A times one of B, modulo the modulus
//   multiply_warpgroups  the same for all planes, with Hopper's own instructions
//   nonfinite_terms      finds elements with infinite or undefined terms, if rows or columns have infinities or NaN
//   finish_floats        integers from their residues, scaled back, rounded once
//   finish_integers      the same without scales; reports integers that do not fit
//   find_uncertain       finds elements of a product of floats whose error may be too large
//   dot_products         computes these term by term
//
// residue.py and planes.py launch these kernels. Faster kernels for some shapes of floats are in small.cu (small matrices)
// and small_k.cu (few products in a sum); gpu.py chooses. docs/matmul.md says why it works.
//
// A line is a row of A or a column of B; lines are numbered across all matrices of a stack. In planes a line is contiguous.

#include "matmul/multiply_wgmma.cuh"
#include "matmul/dot_products.cuh"
#include "matmul/residues.cuh"
#include "matmul/multiply_mma.cuh"
#include "matmul/nonfinite.cuh"

// Launch bounds with a minimum number of blocks per multiprocessor: the compiler's own choice spilled registers.
constexpr int THREADS = 256;
constexpr int ROWS_AT_A_TIME = 64;  // of a column, per thread, where a thread has a column of its own
constexpr int SPLIT_LINES = 32;     // per block of `split`

__device__ inline i64 thread_number() { return i64(blockIdx.x) * blockDim.x + threadIdx.x; }

// A warp per row.
template <typename F>
__global__ void __launch_bounds__(THREADS)
largest_in_rows(const typename F::Storage* __restrict__ values, i64 lines, i64 inner, typename F::Large* largest,
                int* any_nonfinite) {
    const i64 line = thread_number() / 32;
    if (line >= lines) return;
    typename F::Large most = 0;
    for (i64 k = threadIdx.x % 32; k < inner; k += 32)
        most = max(most, typename F::Large(values[line * inner + k] & (F::SIGN - 1)));
    for (int distance = 16; distance; distance /= 2) most = max(most, __shfl_xor_sync(~0u, most, distance));
    if (threadIdx.x % 32 == 0) {
        largest[line] = max(largest[line], most);
        if (F::nonfinite(most)) atomicOr(any_nonfinite, 1);
    }
}

// A thread per column and ROWS_AT_A_TIME rows.
template <typename F>
__global__ void __launch_bounds__(THREADS)
largest_in_columns(const typename F::Storage* __restrict__ values, i64 lines, i64 inner, i64 columns,
                   typename F::Large* largest, int* any_nonfinite) {
    const i64 line = thread_number();
    if (line >= lines) return;
    const i64 first = i64(blockIdx.y) * ROWS_AT_A_TIME, last = min(first + ROWS_AT_A_TIME, inner);
    const typename F::Storage* const column = values + line / columns * inner * columns + line % columns;
    typename F::Large most = 0;
    for (i64 k = first; k < last; ++k) most = max(most, typename F::Large(column[k * columns] & (F::SIGN - 1)));
    atomicMax(&largest[line], most);
    if (F::nonfinite(most)) atomicOr(any_nonfinite, 1);
}

// Eight numbers of a line per thread; a block has DEPTH numbers of SPLIT_LINES lines, so that memory transactions are whole.
// Numbers from `length` on are zeros. In memory are `block` numbers of each line; earlier parts had `before`. Floats have
// one more plane, of their magnitudes, and what is known of each line (Line) is accumulated in `seen`. Each matrix has `own`
// lines, padded to `plane_lines` in planes: in pieces (multiply_wgmma.cuh) or contiguous.
template <typename F, int COUNT, bool COLUMNS, bool IN_PIECES>
__global__ void __launch_bounds__(THREADS, 4)
split(const typename F::Storage* __restrict__ values, const typename F::Large* __restrict__ largest, i64 matrices, int own,
      int plane_lines, i64 block, i64 before, i64 first, int length, int padded, i8* __restrict__ planes,
      u64* __restrict__ seen) {
    constexpr int SIZE = 8, GROUPS = DEPTH / SIZE;
    static_assert(GROUPS == 8 && SPLIT_LINES == 32 && THREADS == SPLIT_LINES * GROUPS, "a thread per group of a line");
    const int thread = int(threadIdx.x), warp = thread / 32, lane = thread % 32;
    // Neighbouring lanes have neighbouring groups of a row of A, but neighbouring columns of B.
    const int own_line = COLUMNS ? warp % 4 * 8 + lane % 8 : thread / GROUPS;
    const int own_group = COLUMNS ? warp / 4 * 4 + lane / 8 : thread % GROUPS;
    const i64 number = i64(blockIdx.x) * SPLIT_LINES + own_line, matrix = number / plane_lines;
    const int line_of_matrix = int(number % plane_lines), start = int(blockIdx.y) * DEPTH + own_group * SIZE;
    const bool exists = matrix < matrices && line_of_matrix < own;
    const i64 line = matrix * own + line_of_matrix;
    const int count = exists ? length - start : 0;
    const i64 step = COLUMNS ? own : 1;
    const i64 begin = COLUMNS ? matrix * block * own + line_of_matrix : line * block;
    const typename F::Storage* const from = values + begin + (first + start) * step;
    const int exponent = exists ? F::exponent(largest[line]) : 0;

    u32 low[SIZE], high[SIZE], magnitudes[SIZE];
    Part part;
#pragma unroll
    for (int i = 0; i < SIZE; ++i) {
        typename F::Storage value = i < count ? from[i * step] : 0;
        typename F::Whole whole;
        if constexpr (F::SCALED) {
            int moved;
            if (F::nonfinite(value & (F::SIGN - 1))) value = 0;
            whole = F::whole(value, typename F::Scale(exponent), moved);
            magnitudes[i] = F::magnitude(whole);
            part.add(i, value & (F::SIGN - 1), magnitudes[i], moved);
        } else {
            whole = value;
        }
        const u64 bits = F::biased(whole);
        low[i] = u32(bits);
        high[i] = u32(bits >> 32);
    }
    if constexpr (F::SCALED) {
        part.close<F>(int(before + first) + start);
        if constexpr (COLUMNS) part.gather<8, 16>();
        else part.gather<1, 2, 4>();
    }
    if (matrix >= matrices) return;
    i8* to = planes + number * padded + start;
    if constexpr (IN_PIECES) {
        const int place = COLUMNS ? interleaved(line_of_matrix) : line_of_matrix;
        const i64 piece = (matrix * (padded / WIDE) + start / WIDE) * plane_lines * WIDE;
        to = planes + piece + swizzled(place, start % WIDE / 16) + start % 16;
    }
    const i64 plane = matrices * plane_lines * padded;
#pragma unroll
    for (int modulus = 0; modulus < COUNT; ++modulus) {
        u32 residues[SIZE], words[SIZE / 4];
#pragma unroll
        for (int i = 0; i < SIZE; ++i) residues[i] = residue<F>(low[i], high[i], modulus);
#pragma unroll
        for (int i = 0; i < SIZE; i += 4)
            words[i / 4] = last_bytes(residues[i], residues[i + 1], residues[i + 2], residues[i + 3]);
        *reinterpret_cast<uint2*>(to + modulus * plane) = make_uint2(words[0], words[1]);
    }
    if constexpr (F::SCALED) {
        *reinterpret_cast<uint2*>(to + COUNT * plane) =
            make_uint2(last_bytes(magnitudes[0], magnitudes[1], magnitudes[2], magnitudes[3]),
                       last_bytes(magnitudes[4], magnitudes[5], magnitudes[6], magnitudes[7]));
        if (exists && (COLUMNS ? lane < 8 : own_group == 0)) part.add_to(seen + Line::WORDS * line);
    }
}

// A block per tile of C, matrix of the stack and plane. Planes of products are `stride` bytes apart; the plane of magnitudes
// comes after those of the moduli.
template <int BM, int BN, int WM, int WN, int STAGES>
__global__ void __launch_bounds__(Tile<BM, BN, WM, WN, STAGES>::THREADS)
multiply(const i8* __restrict__ a, const i8* __restrict__ b, const int* __restrict__ a_of, const int* __restrict__ b_of,
         i64 lines_a, i64 lines_b, int rows, int columns, int padded, i64 first, i64 stride, int add, int moduli,
         u8* products, u32* totals) {
    extern __shared__ uint4 shared[];
    const int down = (rows + BM - 1) / BM, across = (columns + BN - 1) / BN;
    constexpr int BAND = 8;  // tiles below one another that are multiplied together, to reuse the L2 cache
    const int band = int(blockIdx.x) / (BAND * across), height = min(BAND, down - band * BAND);
    const int inside = int(blockIdx.x) - band * BAND * across;
    const int row = (band * BAND + inside % height) * BM, column = inside / height * BN;
    const i64 matrix = first + blockIdx.y;
    const int modulus = MODULI[blockIdx.z];
    Tile<BM, BN, WM, WN, STAGES> tile(
        reinterpret_cast<u8*>(shared), a + (blockIdx.z * lines_a + i64(a_of[matrix]) * rows) * padded,
        b + (blockIdx.z * lines_b + i64(b_of[matrix]) * columns) * padded, rows, columns, row, column, padded);
    tile.run(padded / DEPTH);
    if (int(blockIdx.z) == moduli) {
        tile.add_up(totals + matrix * rows * columns, rows, columns, row, column, add);
        return;
    }
    tile.reduce(modulus);
    u8* const result = products + blockIdx.z * stride + matrix * rows * columns;
    tile.store(result, rows, columns, row, column, modulus, add, columns % CHUNK == 0);
}

// Persistent blocks, one per multiprocessor, take turns with the tiles of all planes.
template <int BN, int STAGES>
__global__ void __launch_bounds__(Pipeline<BN, STAGES>::THREADS, 1)
multiply_warpgroups(const i8* __restrict__ a, const i8* __restrict__ b, const int* __restrict__ a_of,
                    const int* __restrict__ b_of, int matrices_a, int matrices_b, int rows, int columns, int plane_lines_a,
                    int plane_lines_b, int pieces, int matrices, int first, int count, int moduli, u32 enough, i64 stride,
                    int add, int* lacking, u8* products, u32* totals) {
    extern __shared__ __align__(1024) u8 stages[];
    const Planes planes{a, b, a_of, b_of, matrices_a, matrices_b, rows, columns, plane_lines_a, plane_lines_b, pieces};
    multiply_tiles<BN, STAGES>(stages, planes, matrices, first, count, moduli, enough, stride, add, lacking, products,
                               totals);
}

template <typename F>
__global__ void __launch_bounds__(THREADS)
nonfinite_terms(const typename F::Storage* __restrict__ a, const typename F::Storage* __restrict__ b,
                const typename F::Large* __restrict__ largest_a, const typename F::Large* __restrict__ largest_b,
                const int* __restrict__ a_of, const int* __restrict__ b_of, const int* __restrict__ any_nonfinite, i64 size,
                i64 rows, i64 inner, i64 columns, int add, u8* terms) {
    if (!*any_nonfinite) return;
    for (i64 element = thread_number(); element < size; element += i64(gridDim.x) * THREADS) {
        const Lines lines(element, rows, columns, a_of, b_of);
        if (!F::nonfinite(largest_a[lines.a()]) && !F::nonfinite(largest_b[lines.b()])) continue;
        const typename F::Storage* const row = a + lines.a() * inner;
        const typename F::Storage* const column = b + b_of[lines.matrix] * inner * columns + lines.column;
        int kinds = add ? terms[element] : 0;
        for (i64 k = 0; k < inner; ++k) kinds |= term<F>(row[k], column[k * columns]);
        terms[element] = u8(kinds);
    }
}

template <typename F, int COUNT>
__global__ void __launch_bounds__(THREADS, 3)
finish_floats(const u8* __restrict__ products, i64 stride, i64 size, i64 rows, i64 columns, const int* __restrict__ a_of,
              const int* __restrict__ b_of, const typename F::Large* __restrict__ largest_a,
              const typename F::Large* __restrict__ largest_b, const u8* __restrict__ terms, typename F::Storage* result) {
    const i64 first = 4 * thread_number();
    Lines lines(first, rows, columns, a_of, b_of);
    typename F::Storage values[4];
    with_integers<COUNT>(products, stride, size, first, [&](int i, u32(&words)[Weights<COUNT>::WORDS]) {
        const u64 a = largest_a[lines.a()], b = largest_b[lines.b()];
        if (F::nonfinite(a) || F::nonfinite(b)) {
            values[i] = sum_of_terms<F>(terms[first + i]);
        } else {
            values[i] = to_float<F>(words, F::exponent(a) + F::exponent(b) - 2 * F::KEPT);
        }
        lines.next();
    });
    store_four(result, first, size, values);
}

template <typename T, int COUNT>
__global__ void __launch_bounds__(THREADS, COUNT == MOST_MODULI ? 2 : 3)
finish_integers(const u8* __restrict__ products, i64 stride, i64 size, T* result, int* too_large) {
    const i64 first = 4 * thread_number();
    T values[4];
    with_integers<COUNT>(products, stride, size, first, [&](int i, u32(&words)[Weights<COUNT>::WORDS]) {
        if (!to_fitting(words, values[i])) atomicOr(too_large, 1);
    });
    store_four(result, first, size, values);
}

// Marks uncertain elements in `terms` and counts them. A thread per column and ROWS_AT_A_TIME rows.
template <typename F>
__global__ void __launch_bounds__(THREADS, 3)
find_uncertain(i64 matrices, i64 rows, i64 inner, i64 columns, double share, u32 enough, const int* __restrict__ a_of,
               const int* __restrict__ b_of, const typename F::Large* __restrict__ largest_a,
               const typename F::Large* __restrict__ largest_b, const u64* __restrict__ seen_a,
               const u64* __restrict__ seen_b, const u32* __restrict__ totals, u8* terms, u64* uncertain) {
    const i64 matrix = thread_number() / columns, column = thread_number() % columns;
    const i64 first = i64(blockIdx.y) * ROWS_AT_A_TIME, last = min(first + ROWS_AT_A_TIME, rows);
    int count = 0;
    if (matrix < matrices && !F::nonfinite(largest_b[b_of[matrix] * columns + column])) {
        const Line of_b(seen_b, b_of[matrix] * columns + column);
        const i64 rows_of_a = a_of[matrix] * rows;
        const u32* const total = totals + matrix * rows * columns + column;
        u32 least = ~u32(0);
#pragma unroll 16
        for (i64 row = first; row < last; ++row) least = min(least, total[row * columns]);
        // Usually all have enough, whatever rounding moved.
        for (i64 row = least < enough ? first : last; row < last; ++row) {
            const Line of_a(seen_a, rows_of_a + row);
            if (certain<F>(of_a, of_b, inner, total[row * columns], share)) continue;
            if (F::nonfinite(largest_a[rows_of_a + row])) continue;
            terms[(matrix * rows + row) * columns + column] = UNCERTAIN;
            ++count;
        }
    }
    for (int distance = 16; distance; distance /= 2) count += __shfl_xor_sync(~0u, count, distance);
    if (threadIdx.x % 32 == 0 && count) atomicAdd(uncertain, u64(count));
}

// Adds the terms of a part to the sums of uncertain elements, in order, in float64: a block per square of C. After the last
// part the sums are rounded; those that overflowed on the way are counted and computed once more, `scaled` so that they
// cannot.
template <typename F>
__global__ void __launch_bounds__(THREADS, 2)
dot_products(const typename F::Storage* __restrict__ a, const typename F::Storage* __restrict__ b,
             const int* __restrict__ a_of, const int* __restrict__ b_of, const typename F::Large* __restrict__ largest_a,
             const typename F::Large* __restrict__ largest_b, const u64* __restrict__ seen_a,
             const u64* __restrict__ seen_b, i64 rows, i64 inner, i64 columns, i64 before, int last, int scaled, u8* terms,
             double* sums, typename F::Storage* result, u64* overflowed) {
    __shared__ Uncertain uncertain;
    __shared__ Slices slices;
    const i64 across = (columns + SIDE - 1) / SIDE, squares = (rows + SIDE - 1) / SIDE * across;
    const i64 matrix = blockIdx.x / squares, square = blockIdx.x % squares;
    const i64 of_a = a_of[matrix], of_b = b_of[matrix], first = matrix * rows * columns;
    const Dots<F> dots{a + of_a * rows * inner, b + of_b * inner * columns, largest_a + of_a * rows, largest_b + of_b * columns,
                       seen_a + Line::WORDS * of_a * rows, seen_b + Line::WORDS * of_b * columns, rows, inner, columns, before,
                       square / across * SIDE, square % across * SIDE, last != 0, scaled != 0, terms + first, sums + first,
                       result + first, overflowed};
    dots.find(uncertain);
    if (uncertain.count >= MANY) dots.all(uncertain, slices);
    else dots.some(uncertain);
}
