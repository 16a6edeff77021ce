// Products of the rows of a matrix of integers with a few vectors, modulo primes, for check_integers.py.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

using std::size_t;

// As in check_integers.py.
constexpr size_t VECTORS = 4;
constexpr size_t BLOCK = 1024;  // numbers that are split at a time
constexpr size_t MOST = size_t(1) << 18;  // products of 32 bits and 13 bits that 64 bits can add up

// The sums of products of numbers of 32 bits with the vectors, below 2**13.
template <class T>
void add_products(const T* x, size_t n, const int32_t* const (&vectors)[VECTORS], size_t at, int64_t (&sums)[VECTORS]) {
    for (size_t v = 0; v < VECTORS; ++v) {
        const int32_t* vector = vectors[v] + at;
        int64_t sum = 0;
        for (size_t j = 0; j < n; ++j) sum += static_cast<int64_t>(x[j]) * vector[j];
        sums[v] += sum;
    }
}

// The lower and upper halves of numbers of 64 bits; others as they are, or as their lower halves.
template <class T, class Upper>
struct Row {
    static constexpr bool WIDE = sizeof(T) == 8;

    static void times(const T* x, size_t n, const int32_t* const (&vectors)[VECTORS], const int64_t* primes,
                      const int64_t* powers, int64_t* out) {
        int64_t totals[VECTORS] = {};
        for (size_t start = 0; start < n; start += MOST) {
            int64_t lower[VECTORS] = {}, upper[VECTORS] = {};
            const size_t end = n - start < MOST ? n : start + MOST;
            for (size_t at = start; at < end; at += BLOCK) {
                const size_t some = end - at < BLOCK ? end - at : BLOCK;
                if (!WIDE) {
                    add_products(x + at, some, vectors, at, lower);
                    continue;
                }
                uint32_t low[BLOCK];
                Upper high[BLOCK];
                for (size_t j = 0; j < some; ++j) {
                    const uint64_t bits = static_cast<uint64_t>(x[at + j]);
                    low[j] = static_cast<uint32_t>(bits);
                    high[j] = static_cast<Upper>(bits >> 32);
                }
                add_products(low, some, vectors, at, lower);
                add_products(high, some, vectors, at, upper);
            }
            for (size_t v = 0; v < VECTORS; ++v) {
                totals[v] += lower[v] % primes[v];
                if (WIDE) totals[v] += upper[v] % primes[v] * powers[v];
                if (WIDE || n > MOST) totals[v] %= primes[v];
            }
        }
        for (size_t v = 0; v < VECTORS; ++v) out[v] = (totals[v] + primes[v]) % primes[v];
    }
};

// Matrices, whose rows and matrices are so many numbers apart; `of` has the number of each.
struct Stack {
    const void* numbers;
    size_t rows, columns, row, matrix;
    const int64_t* of;
};

template <class T, class Upper>
void stack_times(const Stack& stack, size_t matrices, const int32_t* vectors, const int64_t* of_vectors,
                 const int64_t* primes, int64_t* out) {
    int64_t powers[VECTORS];
    for (size_t v = 0; v < VECTORS; ++v) powers[v] = (int64_t(1) << 32) % primes[v];
    for (size_t m = 0; m < matrices; ++m) {
        const int32_t* all[VECTORS];
        for (size_t v = 0; v < VECTORS; ++v)
            all[v] = vectors + (static_cast<size_t>(of_vectors[m]) * VECTORS + v) * stack.columns;
        const T* x = static_cast<const T*>(stack.numbers) + static_cast<size_t>(stack.of[m]) * stack.matrix;
        for (size_t i = 0; i < stack.rows; ++i, x += stack.row, out += VECTORS)
            Row<T, Upper>::times(x, stack.columns, all, primes, powers, out);
    }
}

}  // namespace

// Numbered as in check_integers.py.
enum Type { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64 };

// Of each matrix out[row][vector], not negative, of vectors[vector][column]: those with its number in `of_vectors`.
extern "C" void times(int type, const void* numbers, size_t matrices, size_t rows, size_t columns, size_t row,
                      size_t matrix, const int64_t* of, const int32_t* vectors, const int64_t* of_vectors,
                      const int64_t* primes, int64_t* out) {
    const Stack stack{numbers, rows, columns, row, matrix, of};
    switch (type) {
        case INT8: stack_times<int8_t, int32_t>(stack, matrices, vectors, of_vectors, primes, out); break;
        case UINT8: stack_times<uint8_t, int32_t>(stack, matrices, vectors, of_vectors, primes, out); break;
        case INT16: stack_times<int16_t, int32_t>(stack, matrices, vectors, of_vectors, primes, out); break;
        case UINT16: stack_times<uint16_t, int32_t>(stack, matrices, vectors, of_vectors, primes, out); break;
        case INT32: stack_times<int32_t, int32_t>(stack, matrices, vectors, of_vectors, primes, out); break;
        case UINT32: stack_times<uint32_t, int32_t>(stack, matrices, vectors, of_vectors, primes, out); break;
        case INT64: stack_times<int64_t, int32_t>(stack, matrices, vectors, of_vectors, primes, out); break;
        case UINT64: stack_times<uint64_t, uint32_t>(stack, matrices, vectors, of_vectors, primes, out); break;
    }
}
