// Transpose on the CPU, for cpu.py.
//
// Arrays are transposed box by box, boxes tile by tile: pieces of rows are copied to a buffer in the L1 cache, whose
// columns are written as pieces of rows of the transpose. So each cache line of either array is touched once, even
// where rows are a power of two apart, and while a tile is written, lines of the next are prefetched.

#include <cstddef>
#include <cstring>

namespace {

using std::size_t;

constexpr size_t MOST_AXES = 64;  // NumPy's
constexpr size_t LINE = 64;       // bytes of a cache line
constexpr size_t ACROSS = 256;    // bytes of a piece of a row, at most
constexpr size_t DOWN = 32;       // rows of a tile
// Padded, so that rows of a tile do not map to the same cache set.
constexpr size_t PITCH = ACROSS + LINE;

size_t least(size_t a, size_t b) { return a < b ? a : b; }

// One matrix; strides of its rows and those of its transpose are in bytes.
struct Matrix {
    const char* from;
    char* to;
    size_t rows, columns, from_stride, to_stride;
};

template <size_t SIZE>
void transpose_narrow(const Matrix& m) {
    for (size_t k = 0; k < m.columns; ++k) {
        const char* from = m.from + k * SIZE;
        char* to = m.to + k * m.to_stride;
        for (size_t i = 0; i < m.rows; ++i) std::memcpy(to + i * SIZE, from + i * m.from_stride, SIZE);
    }
}

template <size_t SIZE>
void transpose_matrix(const Matrix& m) {
    if (m.columns * SIZE <= LINE) return transpose_narrow<SIZE>(m);  // rows may share a line
    constexpr size_t WIDE = ACROSS / SIZE;
    char tile[DOWN * PITCH];
    for (size_t row = 0; row < m.rows; row += DOWN) {
        const size_t high = least(DOWN, m.rows - row);
        for (size_t column = 0; column < m.columns; column += WIDE) {
            const size_t wide = least(WIDE, m.columns - column);
            const char* from = m.from + row * m.from_stride + column * SIZE;
            char* to = m.to + column * m.to_stride + row * SIZE;
            for (size_t i = 0; i < high; ++i, from += m.from_stride) {
                for (size_t at = 0; at < ACROSS; at += LINE) __builtin_prefetch(from + ACROSS + at);
                std::memcpy(tile + i * PITCH, from, wide * SIZE);
            }
            for (size_t k = 0; k < wide; ++k, to += m.to_stride) {
                for (size_t at = 0; at < DOWN * SIZE; at += LINE) __builtin_prefetch(to + WIDE * m.to_stride + at, 1);
                for (size_t i = 0; i < high; ++i) std::memcpy(to + i * SIZE, tile + i * PITCH + k * SIZE, SIZE);
            }
        }
    }
}

void transpose_large(const Matrix& m, size_t itemsize) {
    for (size_t i = 0; i < m.rows; ++i)
        for (size_t k = 0; k < m.columns; ++k)
            std::memcpy(m.to + k * m.to_stride + i * itemsize, m.from + i * m.from_stride + k * itemsize, itemsize);
}

void transpose_any(const Matrix& m, size_t itemsize) {
    switch (itemsize) {
        case 1: return transpose_matrix<1>(m);
        case 2: return transpose_matrix<2>(m);
        case 3: return transpose_matrix<3>(m);
        case 4: return transpose_matrix<4>(m);
        case 6: return transpose_matrix<6>(m);
        case 8: return transpose_matrix<8>(m);
        case 12: return transpose_matrix<12>(m);
        case 16: return transpose_matrix<16>(m);
        default: return transpose_large(m, itemsize);
    }
}

// Advances an index, the last axis first; false at the end.
bool next(size_t* place, const size_t* length, const size_t* step, size_t first, size_t end) {
    for (size_t axis = end; axis-- > first;) {
        place[axis] += step[axis];
        if (place[axis] < length[axis]) return true;
        place[axis] = 0;
    }
    return false;
}

}  // namespace

// Reverses the axes, 2 to 64 of them and none empty, of an array of this shape with elements of `itemsize` bytes. It is
// cut into boxes of these lengths, each of which is a sequence of matrices along its first and last axis.
extern "C" void transpose(const void* array, void* result, size_t itemsize, size_t axes, const size_t* shape,
                          const size_t* box) {
    size_t from_stride[MOST_AXES], to_stride[MOST_AXES], start[MOST_AXES] = {}, ones[MOST_AXES], length[MOST_AXES];
    const size_t last = axes - 1;
    from_stride[last] = to_stride[0] = itemsize;
    for (size_t axis = 0; axis < last; ++axis) {
        to_stride[axis + 1] = to_stride[axis] * shape[axis];
        from_stride[last - axis - 1] = from_stride[last - axis] * shape[last - axis];
        ones[axis] = 1;
    }
    do {
        size_t inside[MOST_AXES] = {};
        for (size_t axis = 0; axis < axes; ++axis) length[axis] = least(box[axis], shape[axis] - start[axis]);
        do {
            size_t from = 0, to = 0;
            for (size_t axis = 0; axis < axes; ++axis) {
                from += (start[axis] + inside[axis]) * from_stride[axis];
                to += (start[axis] + inside[axis]) * to_stride[axis];
            }
            const Matrix matrix{static_cast<const char*>(array) + from, static_cast<char*>(result) + to,
                                length[0], length[last], from_stride[0], to_stride[last]};
            transpose_any(matrix, itemsize);
        } while (next(inside, length, ones, 1, last));
    } while (next(start, shape, box, 0, axes));
}
