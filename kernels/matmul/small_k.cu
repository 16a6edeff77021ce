// Exact products of stacks of matrices of floats with few products in a sum, on Hopper: only the result is written.
//
//   multiply_small_k     64 rows of one matrix per block, group of columns after group
//
// A block keeps its rows of A, cut into digits of eight bits, in shared memory. Some warpgroups load groups of columns
// and cut them; others take turns: while the tensor cores multiply the digits of one group, another is rounded. If a
// quick bound does not cover all elements, the kernel reports it, and all are computed from residues. small_k.py
// launches the kernel, docs/matmul.md says what is computed.

#include "matmul/small_k.cuh"

// Matrix m of the stack of products comes from matrices a_of[m] and b_of[m] if they are listed, else from m and m. Sums have
// up to 128 * PIECES products.
template <typename F, int PIECES, bool WHOLE>
__global__ void __launch_bounds__((SmallK<F, PIECES>::THREADS), 1)
multiply_small_k(const typename F::Storage* __restrict__ a, const typename F::Storage* __restrict__ b,
                 const int* __restrict__ a_of, const int* __restrict__ b_of, int listed, int rows, int inner, int columns,
                 int groups_of_block, typename F::Storage* result, u64* uncertain) {
    using S = SmallK<F, PIECES>;
    extern __shared__ __align__(1024) u8 memory[];
    const int down = (rows + S::ROWS - 1) / S::ROWS, all = (columns + S::COLUMNS - 1) / S::COLUMNS;
    const int across = (all + groups_of_block - 1) / groups_of_block;
    const int first_row = int(blockIdx.x) % down * S::ROWS, first = int(blockIdx.x) / down % across * groups_of_block;
    const i64 matrix = int(blockIdx.x) / down / across;
    const int groups = min(groups_of_block, all - first);
    const i64 of_a = listed ? a_of[matrix] : matrix, of_b = listed ? b_of[matrix] : matrix;
    const Matrix<F> of{a + (of_a * rows + first_row) * inner, b + of_b * inner * columns,
                       result + (matrix * rows + first_row) * columns, min(rows - first_row, S::ROWS), inner, columns};
    const int warpgroup = __shfl_sync(~0u, int(threadIdx.x) / GROUP, 0);
    S work(memory, of);
    work.begin();
    work.template cut_rows<WHOLE>();
    __syncthreads();
    if (warpgroup >= CONSUMERS) {
#pragma unroll 1
        for (int group = 0; group < groups; ++group, work.next())
            work.template fill<WHOLE>((first + group) * S::COLUMNS, group % PRODUCERS == warpgroup - CONSUMERS);
        return;
    }
    bool certain = true;
#pragma unroll 1
    for (int group = 0; group < groups; ++group, work.next()) {
        if (group % CONSUMERS == warpgroup) certain &= work.template drain<WHOLE>((first + group) * S::COLUMNS);
        else stage_is_sent();  // to others
    }
    if (!__all_sync(~0u, certain) && threadIdx.x % 32 == 0) atomicAdd(uncertain, u64(1));
}
