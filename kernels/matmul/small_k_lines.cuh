// 64 rows of A and groups of columns of B, cut into digits.
//
// For each digit, 64 rows or the columns of a group are lines of 128 bytes, swizzled. The lines of all digits follow each
// other, the magnitudes last, and then those of the next 128 numbers. Numbers of a line are permuted so that lanes load many
// numbers of A at once. Digits of B are unsigned, even the last: 2^KEPT is added to each number, and its contribution is
// subtracted from the sums.
#pragma once

#include "matmul/operands.cuh"
#include "matmul/digits_wgmma.cuh"

constexpr int GROUP = 128;  // threads of a warpgroup
constexpr int CONSUMERS = 2, PRODUCERS = 2;  // warpgroups of a block: those that multiply, those that cut columns
constexpr int STAGES = 3;  // groups of columns in shared memory
constexpr int STATE_BYTES = 4096;  // of shared memory, besides digits

template <typename F, int PIECES> struct SmallKLines {
    using T = typename F::Storage;
    using D = Digits<F>;
    using Of = Scaling<sizeof(T)>;
    static constexpr int INNER = WIDE * PIECES;
    using Sums = Sum<F, INNER>;
    using Scale = decltype(Sums::scale(0));
    static constexpr int ROWS = 64, COLUMNS = 16, EIGHTS = COLUMNS / 8;
    static constexpr int THREADS = (CONSUMERS + PRODUCERS) * GROUP;
    static constexpr int SLOTS = 2 * STAGES;  // for what is known of columns: longer than their digits are kept
    static constexpr int EACH = INNER / 32;  // numbers of a row per lane
    static constexpr int AT_ONCE = sizeof(T) == 8 ? 2 : 4, LOADS = EACH / AT_ONCE;
    static constexpr int OF_WARP = COLUMNS / 4, SHARE = INNER * OF_WARP / 32;  // columns per warp; numbers of one per lane
    // Sums of magnitudes have so many steps of 32 products: usually enough.
    static constexpr int STEPS_OF_MAGNITUDES = Nearness<F>::MOVED > 0 ? WIDE / 32 : 2;
    static constexpr int PIECE_A = D::COUNT * ROWS * WIDE, PIECE_B = D::COUNT * COLUMNS * WIDE;
    // Including the magnitudes of the first 128 numbers.
    static constexpr int BYTES_A = PIECE_A * PIECES + ROWS * WIDE, BYTES_B = PIECE_B * PIECES + COLUMNS * WIDE;
    static constexpr int BYTES = BYTES_A + STAGES * BYTES_B;
    static constexpr int ZERO = -(1 << 20), STRANGE = 1 << 22;  // sizes of lines of zeros, and of lines that are not cut
    using Values = T[SHARE];

    // What is known of lines.
    struct State {
        u64 full[STAGES], empty[STAGES];  // barriers
        Scale scale_a[ROWS], scale_b[SLOTS][COLUMNS];
        int exponent_a[ROWS], exponent_b[SLOTS][COLUMNS];
        i64 bias_a[ROWS][2];  // what the bias of B adds to a sum, negated: from word KEPT / 32 on
        int size_a[ROWS], size_b[SLOTS][COLUMNS];  // sums of magnitudes, or ZERO, or STRANGE
    };
    static_assert(sizeof(State) <= STATE_BYTES, "small_k.py allocates as many");

    u8* const of_a;  // digits
    State& state;
    const Matrix<F> of;
    const int warp, lane;
    u8* of_b;  // those of the group of columns at this stage
    int stage = 0;
    u32 parity = 0;  // of how often the stage was used before

    __device__ SmallKLines(u8* memory, const Matrix<F>& of)
        : of_a(memory), state(*reinterpret_cast<State*>(memory + BYTES)), of(of), warp(int(threadIdx.x) / 32),
          lane(int(threadIdx.x) % 32), of_b(memory + BYTES_A) {}

    __device__ void begin() {
        if (threadIdx.x == 0)
            for (int i = 0; i < STAGES; ++i) {
                begin_barrier(state.full + i, PRODUCERS * GROUP);
                begin_barrier(state.empty + i, GROUP);
            }
    }
    // The next group of columns.
    __device__ void next() {
        of_b += BYTES_B;
        if (++stage < STAGES) return;
        stage = 0;
        parity ^= 1;
        of_b = of_a + BYTES_A;
    }

    __device__ int slot() const { return stage + STAGES * int(parity); }

    static __device__ typename Of::Bits bits(T value) { return bits_of<F>(value); }
    static __device__ u32 low_word(T value) { return sizeof(T) == 8 ? u32(u64(value)) : 0; }

    // Digits and magnitudes of four numbers of a line with this key, and the sum of their integers; zeros if its
    // exponent is not moderate.
    static __device__ i64 cut(const T (&values)[4], u32 key, bool moderate, u32 (&digits)[D::ALL]) {
        const auto factor = Of::factor(Of::POWER - (key >> Of::FIELD));
        typename Of::Whole wholes[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) wholes[i] = moderate ? Of::whole(bits(values[i]), factor) : 0;
        D::cut(wholes, digits);
        return i64(wholes[0]) + wholes[1] + (i64(wholes[2]) + wholes[3]);
    }
    static __device__ int exponent(u32 key) { return key >> Of::FIELD ? int(key >> Of::FIELD) - Of::BIAS : 0; }
    static __device__ int size_of(int size, u32 key, bool moderate) { return !moderate ? STRANGE : key ? size : ZERO; }

    // A warp cuts row after row, TOGETHER at a time.
    template <bool WHOLE> __device__ void cut_rows() {
        constexpr int WARPS = THREADS / 32, TOGETHER = 4;
        static_assert(ROWS % (TOGETHER * WARPS) == 0, "all warps have the same number of rows");
#pragma unroll 1
        for (int first = warp; first < ROWS; first += TOGETHER * WARPS) {
            T values[TOGETHER][EACH];
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) load_row<WHOLE>(first + i * WARPS, values[i]);
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) cut_row(first + i * WARPS, values[i]);
        }
        publish();
    }
    template <bool WHOLE> __device__ void load_row(int row, T (&values)[EACH]) const {
#pragma unroll
        for (int m = 0; m < LOADS; ++m) {
            const int k = AT_ONCE * (32 * m + lane);
            const T* const from = of.a + row * of.inner + k;
            if constexpr (WHOLE) {
                const auto pack = *reinterpret_cast<const Pack<T, AT_ONCE>*>(from);
#pragma unroll
                for (int i = 0; i < AT_ONCE; ++i) values[m * AT_ONCE + i] = pack.items[i];
            } else {
#pragma unroll
                for (int i = 0; i < AT_ONCE; ++i)
                    values[m * AT_ONCE + i] = row < of.rows && k + i < of.inner ? from[i] : T(0);
            }
        }
    }
    __device__ void cut_row(int row, const T (&values)[EACH]) {
        u32 key = 0, low = 0;
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            key = max(key, Of::key(bits(values[i])));
            low |= low_word(values[i]);
        }
        key = __reduce_max_sync(~0u, key);
        const bool moderate = Of::is_moderate(key, u32(__any_sync(~0u, low != 0)));
        u32 digits[EACH / 4][D::ALL];
        i64 sum = 0;
        int size = 0;
#pragma unroll
        for (int i = 0; i < EACH / 4; ++i) {
            const T four[4] = {values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]};
            sum += cut(four, key, moderate, digits[i]);
            size = int(__dp4a(digits[i][D::COUNT], 0x01010101u, u32(size)));
        }
        const int begin = lane * EACH;
        u8* const to = of_a + begin / WIDE * PIECE_A + swizzled(row, begin % WIDE / 16) + begin % 16;
#pragma unroll
        for (int d = 0; d < D::ALL; ++d) {
            if (d == D::COUNT && begin >= WIDE) break;
            u8* const of_digit = to + (d < D::COUNT ? d * ROWS * WIDE : PIECES * PIECE_A);
            if constexpr (EACH == 8) *reinterpret_cast<uint2*>(of_digit) = make_uint2(digits[0][d], digits[1][d]);
            else *reinterpret_cast<u32*>(of_digit) = digits[0][d];
        }
        // Of 32 lanes, in three parts that do not overflow.
        constexpr int PART = 26;
        const i64 top = int(__reduce_add_sync(~0u, u32(sum >> 2 * PART)));
        const i64 middle = __reduce_add_sync(~0u, u32(sum >> PART) & ((1 << PART) - 1));
        sum = (top * (1 << PART) + middle) * (1 << PART) + __reduce_add_sync(~0u, u32(sum) & ((1 << PART) - 1));
        size = int(__reduce_add_sync(~0u, u32(size)));
        if (lane) return;
        constexpr int SHIFT = F::KEPT % 32, REST = 32 - SHIFT;
        state.bias_a[row][0] = -((sum & ((i64(1) << REST) - 1)) << SHIFT);
        state.bias_a[row][1] = -(sum >> REST);
        state.size_a[row] = size_of(size, key, moderate);
        state.exponent_a[row] = exponent(key);
        state.scale_a[row] = Sums::scale(exponent(key));
    }

    // A warp has some columns, a lane some numbers of one of them; neighbouring lanes have neighbouring columns.
    __device__ int column_of_lane() const { return warp % 4 * OF_WARP + lane % OF_WARP; }
    __device__ int first_of_lane() const {
        const int share = lane / OF_WARP;  // so that lanes that store at once cover all banks
        return (OF_WARP == 4 ? (share & 4) | (share & 1) << 1 | (share >> 1 & 1) : share) * SHARE;
    }

    // In the order in which lanes hold the numbers of a row of A.
    template <bool WHOLE> __device__ void load_columns(int column, Values& values) const {
        const int own = column + column_of_lane(), start = AT_ONCE * (first_of_lane() / EACH);
#pragma unroll
        for (int m = 0; m < LOADS; ++m) {
            int k = 32 * AT_ONCE * m + start;
            const T* from = of.b + (k * of.columns + own);
#pragma unroll
            for (int i = 0; i < SHARE / LOADS; ++i, ++k, from += of.columns)
                values[i / AT_ONCE * EACH + m * AT_ONCE + i % AT_ONCE] =
                    WHOLE || (k < of.inner && own < of.columns) ? *from : T(0);
        }
    }
    __device__ void cut_columns(const Values& values) {
        const int column = column_of_lane(), start = first_of_lane();
        u32 key = 0, low = 0;
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            key = max(key, Of::key(bits(values[i])));
            low |= low_word(values[i]);
        }
        for (int distance = OF_WARP; distance < 32; distance *= 2) {
            key = max(key, __shfl_xor_sync(~0u, key, distance));
            low |= __shfl_xor_sync(~0u, low, distance);
        }
        const bool moderate = Of::is_moderate(key, low);
        int size = 0;
#pragma unroll
        for (int chunk = 0; chunk < SHARE / 16; ++chunk) {
            u32 digits[4][D::ALL];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int at = 16 * chunk + 4 * i;
                const T four[4] = {values[at], values[at + 1], values[at + 2], values[at + 3]};
                cut(four, key, moderate, digits[i]);
                size = int(__dp4a(digits[i][D::COUNT], 0x01010101u, u32(size)));
                digits[i][D::COUNT - 1] ^= 0x80808080;
            }
            const int begin = start + 16 * chunk;
            u8* const to = of_b + begin / WIDE * PIECE_B + swizzled(column, begin % WIDE / 16);
#pragma unroll
            for (int d = 0; d < D::ALL; ++d) {
                if (d == D::COUNT && begin >= WIDE) break;
                *reinterpret_cast<uint4*>(to + (d < D::COUNT ? d * COLUMNS * WIDE : PIECES * PIECE_B)) =
                    make_uint4(digits[0][d], digits[1][d], digits[2][d], digits[3][d]);
            }
        }
        publish();
        for (int distance = OF_WARP; distance < 32; distance *= 2) size += __shfl_xor_sync(~0u, size, distance);
        if (lane >= OF_WARP) return;
        state.size_b[slot()][column] = size_of(size, key, moderate);
        state.exponent_b[slot()][column] = exponent(key);
        state.scale_b[slot()][column] = Sums::scale(exponent(key));
    }
    // By a producer, once the stage is free; all producers say so of all stages, which are thus filled in order.
    template <bool WHOLE> __device__ void fill(int column, bool own) {
        if (own) {
            Values values;
            load_columns<WHOLE>(column, values);
            wait_for_phase(state.empty + stage, parity ^ 1);
            cut_columns(values);
        } else {
            wait_for_phase(state.empty + stage, parity ^ 1);
        }
        arrive(state.full + stage);
        stage_is_sent();
    }
};
