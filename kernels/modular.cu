// Exact matrix products: integers modulo small numbers, multiplied as bytes on tensor cores, put together again.
//
//   largest_in_rows      largest magnitude of each row of A, from which its scale comes
//   largest_in_columns   the same of each column of B
//   split                every number scaled and rounded to an integer, and that to its residues, a plane for each modulus
//   multiply             one plane of A times one of B, modulo the modulus
//   wild_terms           which elements have infinite or undefined terms, where rows or columns have infinities or NaN
//   finish_floats        residues to the integer that they belong to, scaled back, rounded once
//   finish_integers      the same without scales; says whether all fit
//
// A line is a row of A or a column of B; lines of all matrices of a stack are numbered through. In planes a line is
// contiguous. modular.py has formats and moduli, modular_device.py calls these kernels, docs/matmul.md says why it works.

#include "modular_tile.cuh"

// Some kernels name the blocks that a multiprocessor is to hold at least, 0 for none: where the compiler chose for itself
// it spilled registers.
constexpr int THREADS = 256;
constexpr int ROWS_AT_A_TIME = 64;  // of B, by a thread of largest_in_columns
constexpr int RASTER = 8;           // tiles below one another that are multiplied together, for the sake of the cache

__device__ inline i64 thread_number() { return i64(blockIdx.x) * blockDim.x + threadIdx.x; }

// A warp for each row.
template <typename F>
__global__ void __launch_bounds__(THREADS)
largest_in_rows(const typename F::Storage* __restrict__ values, i64 lines, i64 inner, typename F::Large* largest,
                int* some_wild) {
    const i64 line = thread_number() / 32;
    if (line >= lines) return;
    typename F::Large found = 0;
    for (i64 k = threadIdx.x % 32; k < inner; k += 32)
        found = max(found, typename F::Large(values[line * inner + k] & (F::SIGN - 1)));
    for (int distance = 16; distance; distance /= 2) found = max(found, __shfl_xor_sync(~0u, found, distance));
    if (threadIdx.x % 32 == 0) {
        largest[line] = max(largest[line], found);
        if (F::wild(found)) atomicOr(some_wild, 1);
    }
}

// A thread for some rows of each column.
template <typename F>
__global__ void __launch_bounds__(THREADS)
largest_in_columns(const typename F::Storage* __restrict__ values, i64 lines, i64 inner, i64 columns,
                   typename F::Large* largest, int* some_wild) {
    const i64 line = thread_number();
    if (line >= lines) return;
    const i64 first = i64(blockIdx.y) * ROWS_AT_A_TIME, last = min(first + ROWS_AT_A_TIME, inner);
    const typename F::Storage* const column = values + line / columns * inner * columns + line % columns;
    typename F::Large found = 0;
    for (i64 k = first; k < last; ++k) found = max(found, typename F::Large(column[k * columns] & (F::SIGN - 1)));
    atomicMax(&largest[line], found);
    if (F::wild(found)) atomicOr(some_wild, 1);
}

// Each thread 16 numbers of a line. Those past `length` are zeros; `block` numbers of each line are in memory.
template <typename F, int COUNT, bool COLUMNS>
__global__ void __launch_bounds__(THREADS, F::PIECES == 3 ? 3 : 0)
split(const typename F::Storage* __restrict__ values, const typename F::Large* __restrict__ largest, i64 lines, i64 columns,
      i64 block, i64 first, int length, int padded, i8* __restrict__ planes) {
    constexpr int SIZE = 16;
    const int groups = padded / SIZE;
    const i64 number = thread_number();
    if (number >= lines * groups) return;
    const i64 line = COLUMNS ? number % lines : number / groups;
    const int start = SIZE * int(COLUMNS ? number / lines : number % groups);
    const i64 step = COLUMNS ? columns : 1;
    const i64 begin = COLUMNS ? line / columns * block * columns + line % columns : line * block;
    const typename F::Storage* const from = values + begin + (first + start) * step;
    const int exponent = F::exponent(largest[line]);

    float pieces[SIZE][F::PIECES];
#pragma unroll
    for (int i = 0; i < SIZE; ++i) {
        const typename F::Whole whole = start + i < length ? F::whole(from[i * step], exponent) : 0;
#pragma unroll
        for (int k = 0; k < F::PIECES; ++k) {
            const typename F::Whole upper = whole >> (PIECE * k);
            pieces[i][k] = float(k < F::PIECES - 1 ? int(upper & ((1 << PIECE) - 1)) : int(upper));
        }
    }
#pragma unroll
    for (int modulus = 0; modulus < COUNT; ++modulus) {
        float powers[F::PIECES];
#pragma unroll
        for (int k = 0; k < F::PIECES; ++k) powers[k] = float(power(k, MODULI[modulus]));
        u32 words[SIZE / 4] = {};
#pragma unroll
        for (int i = 0; i < SIZE; ++i) words[i / 4] |= residue(pieces[i], MODULI[modulus], powers) << (8 * (i % 4));
        i8* const to = planes + (modulus * lines + line) * padded + start;
        *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

// A block for each tile of C, matrix of the stack and modulus. `stride` from plane to plane of the products.
template <int BM, int BN, int WM, int WN, int STAGES>
__global__ void __launch_bounds__(Tile<BM, BN, WM, WN, STAGES>::THREADS)
multiply(const i8* __restrict__ a, const i8* __restrict__ b, const int* __restrict__ a_of, const int* __restrict__ b_of,
         i64 lines_a, i64 lines_b, int rows, int columns, int padded, i64 first, i64 stride, int add, u8* products) {
    extern __shared__ uint4 shared[];
    const int down = (rows + BM - 1) / BM, across = (columns + BN - 1) / BN;
    const int band = int(blockIdx.x) / (RASTER * across), height = min(RASTER, down - band * RASTER);
    const int inside = int(blockIdx.x) - band * RASTER * across;
    const int row = (band * RASTER + inside % height) * BM, column = inside / height * BN;
    const i64 matrix = first + blockIdx.y;
    const int modulus = MODULI[blockIdx.z];
    Tile<BM, BN, WM, WN, STAGES> tile(
        reinterpret_cast<u8*>(shared), a + (blockIdx.z * lines_a + i64(a_of[matrix]) * rows) * padded,
        b + (blockIdx.z * lines_b + i64(b_of[matrix]) * columns) * padded, rows, columns, row, column, padded);
    tile.run(padded / DEPTH);
    tile.reduce(modulus);
    u8* const result = products + blockIdx.z * stride + matrix * rows * columns;
    tile.store(result, rows, columns, row, column, modulus, add, columns % CHUNK == 0);
}

// Where an element of the stack of products comes from: a line of A and one of B.
struct Lines {
    i64 a, b;
    __device__ Lines(i64 element, i64 rows, i64 columns, const int* a_of, const int* b_of) {
        const i64 matrix = element / (rows * columns), place = element % (rows * columns);
        a = a_of[matrix] * rows + place / columns;
        b = b_of[matrix] * columns + place % columns;
    }
};

enum Term : u8 { UPWARDS = 1, DOWNWARDS = 2, UNDEFINED = 4 };

// Which of them a product is: none where it is finite.
template <typename F> __device__ int term(typename F::Storage a, typename F::Storage b) {
    const u64 large = a & (F::SIGN - 1), other = b & (F::SIGN - 1);
    if (!F::wild(large) && !F::wild(other)) return 0;
    if (large > F::INFINITE || other > F::INFINITE || large == 0 || other == 0) return UNDEFINED;
    return (a ^ b) & F::SIGN ? DOWNWARDS : UPWARDS;
}

template <typename F>
__global__ void __launch_bounds__(THREADS)
wild_terms(const typename F::Storage* __restrict__ a, const typename F::Storage* __restrict__ b,
           const typename F::Large* __restrict__ largest_a, const typename F::Large* __restrict__ largest_b,
           const int* __restrict__ a_of, const int* __restrict__ b_of, const int* __restrict__ some_wild, i64 size, i64 rows,
           i64 inner, i64 columns, int add, u8* terms) {
    const i64 element = thread_number();
    if (!*some_wild || element >= size) return;
    const Lines lines(element, rows, columns, a_of, b_of);
    if (!F::wild(largest_a[lines.a]) && !F::wild(largest_b[lines.b])) return;
    const typename F::Storage* const row = a + lines.a * inner;
    const typename F::Storage* const column = b + lines.b / columns * inner * columns + lines.b % columns;
    int found = add ? terms[element] : 0;
    for (i64 k = 0; k < inner; ++k) found |= term<F>(row[k], column[k * columns]);
    terms[element] = u8(found);
}

// Residues of four elements, those past `size` zero.
__device__ inline u32 four_residues(const u8* plane, i64 element, i64 size) {
    if (element + 4 <= size) return *reinterpret_cast<const u32*>(plane + element);
    u32 word = 0;
    for (int i = 0; element + i < size; ++i) word |= u32(plane[element + i]) << (8 * i);
    return word;
}

// The integers of four elements, each handed to a function of its number and its words.
template <int COUNT, typename Use>
__device__ void with_integers(const u8* products, i64 stride, i64 size, Use use) {
    constexpr Weights<COUNT> table;
    constexpr int WORDS = Weights<COUNT>::WORDS;
    const i64 element = 4 * thread_number();
    u64 sums[4][WORDS] = {}, shares[4] = {};
#pragma unroll
    for (int modulus = 0; modulus < COUNT; ++modulus) {
        const u32 four = four_residues(products + modulus * stride, element, size);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 residue = four >> (8 * i) & 0xff;
            shares[i] += u64(table.share[modulus]) * residue;
#pragma unroll
            for (int k = 0; k < WORDS; ++k) sums[i][k] += u64(table.weight[modulus][k]) * residue;
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (element + i >= size) return;
        u32 words[WORDS];
        to_integer<COUNT>(sums[i], shares[i], words);
        use(element + i, words);
    }
}

template <typename F, int COUNT>
__global__ void __launch_bounds__(THREADS, 3)
finish_floats(const u8* __restrict__ products, i64 stride, i64 size, i64 rows, i64 columns, const int* __restrict__ a_of,
              const int* __restrict__ b_of, const typename F::Large* __restrict__ largest_a,
              const typename F::Large* __restrict__ largest_b, const u8* __restrict__ terms, typename F::Storage* result) {
    with_integers<COUNT>(products, stride, size, [=](i64 element, u32(&words)[Weights<COUNT>::WORDS]) {
        const Lines lines(element, rows, columns, a_of, b_of);
        const u64 a = largest_a[lines.a], b = largest_b[lines.b];
        if (F::wild(a) || F::wild(b)) {
            const int found = terms[element];
            const bool undefined = found != UPWARDS && found != DOWNWARDS;
            result[element] = typename F::Storage(undefined           ? F::NOT_A_NUMBER
                                                  : found == UPWARDS ? F::INFINITE
                                                                     : F::SIGN | F::INFINITE);
        } else {
            result[element] = to_float<F>(words, F::exponent(a) + F::exponent(b) - 2 * F::KEPT);
        }
    });
}

template <typename T, int COUNT>
__global__ void __launch_bounds__(THREADS, COUNT == MOST_MODULI ? 2 : 3)
finish_integers(const u8* __restrict__ products, i64 stride, i64 size, T* result, int* too_large) {
    with_integers<COUNT>(products, stride, size, [=](i64 element, u32(&words)[Weights<COUNT>::WORDS]) {
        T value;
        if (!to_fitting(words, value)) atomicOr(too_large, 1);
        result[element] = value;
    });
}
