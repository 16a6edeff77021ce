// Whether one array is the transpose of another, for check.py.
//
// Arrays are compared box by box, boxes tile by tile: a tile of one array is transposed into a buffer in the L1 cache,
// whose rows are compared with the other array byte for byte. So each cache line of either array is touched once, even
// where rows are a power of two apart and would evict each other. Hardware prefetchers do not follow such strides:
// while a tile is compared, lines of the next are prefetched, which makes this three times as fast.

#include <cstddef>
#include <cstring>

namespace {

using std::size_t;

constexpr size_t MOST_AXES = 64;  // NumPy's
constexpr size_t TILE = 8192;    // bytes: a quarter of the L1 cache
constexpr size_t ROW = 256;      // bytes of a row of a tile, at most
constexpr size_t LINE = 64;      // bytes of a cache line

size_t least(size_t a, size_t b) { return a < b ? a : b; }

// May reach beyond an array: prefetching invalid addresses has no effect.
void prefetch(const char* first, size_t nbytes) {
    for (size_t at = 0; at < nbytes; at += LINE) __builtin_prefetch(first + at);
}

struct Arrays {
    size_t itemsize, axes;
    const size_t *shape, *box;                      // of one array; the other one's are reversed
    size_t of_one[MOST_AXES], of_other[MOST_AXES];  // strides of each axis, in bytes
    size_t length[MOST_AXES];                       // of the box being compared
    size_t equal = 0;                               // elements compared so far, all of them equal

    Arrays(size_t itemsize, size_t axes, const size_t* shape, const size_t* box)
        : itemsize(itemsize), axes(axes), shape(shape), box(box) {
        for (size_t stride = itemsize, axis = 0; axis < axes; stride *= shape[axis++]) of_other[axis] = stride;
        for (size_t stride = itemsize, axis = axes; axis-- > 0; stride *= shape[axis]) of_one[axis] = stride;
    }

    // The first and the last axis of a box: `rows` of one array, of `columns` elements each.
    template <size_t SIZE>
    bool same_tiled(const char* one, const char* other, size_t rows, size_t columns) {
        constexpr size_t WIDE = ROW / SIZE, HIGH = TILE / ROW;
        const size_t down = of_one[0], across = of_other[axes - 1];
        char buffer[WIDE * HIGH * SIZE];
        for (size_t row = 0; row < rows; row += HIGH) {
            const size_t high = least(HIGH, rows - row);
            for (size_t column = 0; column < columns; column += WIDE) {
                const size_t wide = least(WIDE, columns - column);
                for (size_t i = 0; i < high; ++i) {
                    const char* from = one + (row + i) * down + column * SIZE;
                    prefetch(from + ROW, ROW);
                    for (size_t k = 0; k < wide; ++k) std::memcpy(buffer + (k * HIGH + i) * SIZE, from + k * SIZE, SIZE);
                }
                for (size_t k = 0; k < wide; ++k) {
                    const char* with = other + (column + k) * across + row * SIZE;
                    prefetch(with + WIDE * across, HIGH * SIZE);
                    if (std::memcmp(buffer + k * HIGH * SIZE, with, high * SIZE)) return false;
                }
                equal += high * wide;
            }
        }
        return true;
    }

    bool same_one_by_one(const char* one, const char* other, size_t rows, size_t columns) {
        const size_t down = of_one[0], across = of_other[axes - 1];
        for (size_t i = 0; i < rows; ++i)
            for (size_t k = 0; k < columns; ++k, ++equal)
                if (std::memcmp(one + i * down + k * itemsize, other + k * across + i * itemsize, itemsize)) return false;
        return true;
    }

    bool same_tiles(const char* one, const char* other) {
        const size_t rows = length[0], columns = length[axes - 1];
        switch (itemsize) {
            case 1: return same_tiled<1>(one, other, rows, columns);
            case 2: return same_tiled<2>(one, other, rows, columns);
            case 3: return same_tiled<3>(one, other, rows, columns);
            case 4: return same_tiled<4>(one, other, rows, columns);
            case 6: return same_tiled<6>(one, other, rows, columns);
            case 8: return same_tiled<8>(one, other, rows, columns);
            case 12: return same_tiled<12>(one, other, rows, columns);
            case 16: return same_tiled<16>(one, other, rows, columns);
            default: return same_one_by_one(one, other, rows, columns);
        }
    }

    // Every index of the axes between the first and the last one of a box.
    bool same_box(const char* one, const char* other, size_t axis) {
        if (axis + 1 >= axes) return same_tiles(one, other);
        for (size_t i = 0; i < length[axis]; ++i)
            if (!same_box(one + i * of_one[axis], other + i * of_other[axis], axis + 1)) return false;
        return true;
    }

    bool same(const char* one, const char* other, size_t axis = 0) {
        if (axis == axes) return same_box(one, other, 1);
        for (size_t start = 0; start < shape[axis]; start += box[axis]) {
            length[axis] = least(box[axis], shape[axis] - start);
            if (!same(one + start * of_one[axis], other + start * of_other[axis], axis + 1)) return false;
        }
        return true;
    }
};

}  // namespace

// Number of elements in tiles that are equal, up to the first tile that is not: all elements where `other` is the
// transpose of `one`, an array of 1 to 64 axes of this shape, with elements of `itemsize` bytes. It is cut into boxes
// of these lengths.
extern "C" size_t equal_elements(const void* one, const void* other, size_t itemsize, size_t axes, const size_t* shape,
                                 const size_t* box) {
    if (axes == 1) return std::memcmp(one, other, shape[0] * itemsize) ? 0 : shape[0];
    Arrays arrays(itemsize, axes, shape, box);
    arrays.same(static_cast<const char*>(one), static_cast<const char*>(other));
    return arrays.equal;
}
