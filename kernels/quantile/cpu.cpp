// Counts of keys for cpu.py, which describes keys, cells and what each function counts.
//
//   count_top      all samples, by the upper bits of their keys
//   count_cells    samples of a few cells; the others, nearly all, are passed over 64 at a time
//   count_around   samples below, between and above some keys, and equal to each
//
// Slots of a piece of samples are computed first, vectorized, and counted in several tables in turn: a sample that hits
// the same counter as the one before would wait for its store.

#include "cpu_keys.hpp"

namespace {

constexpr size_t GROUP = 64;     // samples that are passed over if none is in a cell
constexpr size_t FEW_CELLS = 8;  // up to so many, each is looked for in turn: that vectorizes
constexpr size_t ABREAST = 16;   // samples searched side by side

template <class Kind>
void top(const void* data, size_t n, int shift, const Tables& tables) {
    typedef typename Kind::Key Key;
    u32 slot[PIECE];
    in_pieces<Kind>(data, n, [&](const Key* keys, size_t length) {
        for (size_t i = 0; i < length; ++i) slot[i] = static_cast<u32>(keys[i] >> shift);
        tables.add(slot, length);
    });
}

}  // namespace

// As in cpu.py: what cells.py calls a lookup.
struct Cells {
    const u32* starts;
    u64 step, number;
    const void *firsts, *sizes, *shifts;
    const u32* bases;
};

namespace {

// Slot of a key, if the cell that begins last before it has it.
template <class Key>
struct Slots {
    const u32* starts;
    u32 step;
    const Key *firsts, *sizes, *shifts;
    const u32* bases;

    explicit Slots(const Cells& cells)
        : starts(cells.starts), step(static_cast<u32>(cells.step)), firsts(static_cast<const Key*>(cells.firsts)),
          sizes(static_cast<const Key*>(cells.sizes)), shifts(static_cast<const Key*>(cells.shifts)), bases(cells.bases) {}

    // Returns whether it has one.
    bool operator()(Key key, u32& slot) const {
        u32 cell = starts[key >> (8 * sizeof(Key) - 16)];
        for (u32 half = step; half; half >>= 1) cell += firsts[cell + half] <= key ? half : 0;
        const Key offset = static_cast<Key>(key - firsts[cell]);
        slot = bases[cell] + static_cast<u32>(offset >> shifts[cell]);
        return offset < sizes[cell];
    }
};

// Slots of one cell only.
template <class Key>
struct OneSlot {
    Key first, size, shift;

    bool operator()(Key key, u32& slot) const {
        const Key offset = static_cast<Key>(key - first);
        slot = static_cast<u32>(offset >> shift);
        return offset < size;
    }
};

// Where samples that are in cells go: their slots to tables or, if there is room for any, their keys.
// `number` keys there are, of which the first `most` are kept.
template <class Key>
struct Inside {
    const Tables& tables;
    Key* keys;
    size_t most, number;

    // A piece of samples: those not within `reach` of `first` are in no cell that `find` knows.
    template <class Find>
    void add(const Key* piece, size_t length, Key first, Key reach, u32 base, Find find) {
        u32 slot[PIECE + 1];
        Key kept[PIECE + 1];
        size_t inside = 0;
        for (size_t start = 0; start < length; start += GROUP) {
            const size_t end = length - start < GROUP ? length : start + GROUP;
            Key near = 0;
            for (size_t i = start; i < end; ++i) near += static_cast<Key>(piece[i] - first) <= reach;
            if (!near) continue;
            if (near == GROUP && dense(find, piece + start, slot + inside, kept + inside)) {
                inside += GROUP;
                continue;
            }
            for (size_t i = start; i < end; ++i) {
                kept[inside] = piece[i];
                inside += find(piece[i], slot[inside]);
            }
        }
        if (keys) return gather(kept, inside);
        for (size_t i = 0; i < inside; ++i) slot[i] += base;
        tables.add(slot, inside);
    }

    // A group that is all in one cell.
    static bool dense(const OneSlot<Key>& cell, const Key* piece, u32* slot, Key* kept) {
        for (size_t i = 0; i < GROUP; ++i) cell(piece[i], slot[i]), kept[i] = piece[i];
        return true;
    }
    static bool dense(const Slots<Key>&, const Key*, u32*, Key*) { return false; }

    void gather(const Key* some, size_t n) {
        for (size_t i = 0; i < n && number + i < most; ++i) keys[number + i] = some[i];
        number += n;
    }
};

template <class Kind>
size_t in_cells(const void* data, size_t n, const Cells& cells, void* keys, size_t most, const Tables& tables) {
    typedef typename Kind::Key Key;
    const Slots<Key> slots(cells);
    Inside<Key> inside{tables, static_cast<Key*>(keys), most, 0};
    const Key first = slots.firsts[1], last = slots.firsts[cells.number] + (slots.sizes[cells.number] - 1);
    in_pieces<Kind>(data, n, [&](const Key* piece, size_t length) {
        if (cells.number > FEW_CELLS) return inside.add(piece, length, first, static_cast<Key>(last - first), 0, slots);
        for (size_t j = 1; j <= cells.number; ++j) {
            const OneSlot<Key> cell{slots.firsts[j], slots.sizes[j], slots.shifts[j]};
            inside.add(piece, length, cell.first, static_cast<Key>(cell.size - 1), slots.bases[j], cell);
        }
    });
    return inside.number;
}

// Few keys: every sample is compared with each.
template <class Kind>
void around_few(const void* data, size_t n, const typename Kind::Key* keys_of, size_t number, int64_t* counts) {
    typedef typename Kind::Key Key;
    in_pieces<Kind>(data, n, [&](const Key* keys, size_t length) {
        Key before = 0;  // samples of this piece up to the key before
        for (size_t j = 0; j < number; ++j) {
            const Key value = keys_of[j];
            Key less = 0, upto = 0;
            for (size_t i = 0; i < length; ++i) less += keys[i] < value, upto += keys[i] <= value;
            counts[2 * j] += less - before, counts[2 * j + 1] += upto - less;
            before = upto;
        }
        Key nan = 0;
        if (Kind::NAN_LAST)
            for (size_t i = 0; i < length; ++i) nan += keys[i] == static_cast<Key>(~Key(0));
        counts[2 * number] += static_cast<int64_t>(length - before - nan), counts[2 * number + 1] += nan;
    });
}

// Many: the number of keys up to a sample, each step halves the candidates.
template <class Kind>
void around_many(const void* data, size_t n, const typename Kind::Key* keys_of, size_t number, const Tables& tables) {
    typedef typename Kind::Key Key;
    u32 slot[PIECE];
    auto search = [=](const Key* keys, u32* __restrict slots, size_t length) {
        u32 upto[ABREAST] = {};
        size_t left = number;
        for (; left > 1; left -= left / 2) {
            const u32 half = static_cast<u32>(left / 2);
            for (size_t i = 0; i < length; ++i) upto[i] += half & -static_cast<u32>(keys_of[upto[i] + half - 1] <= keys[i]);
        }
        for (size_t i = 0; i < length; ++i) upto[i] += keys_of[upto[i]] <= keys[i];
        for (size_t i = 0; i < length; ++i) {
            slots[i] = 2 * upto[i] - (upto[i] && keys_of[upto[i] - 1] == keys[i]);
            if (Kind::NAN_LAST) slots[i] += keys[i] == static_cast<Key>(~Key(0));
        }
    };
    in_pieces<Kind>(data, n, [&](const Key* keys, size_t length) {
        size_t i = 0;
        for (; i + ABREAST <= length; i += ABREAST) search(keys + i, slot + i, ABREAST);
        search(keys + i, slot + i, length - i);
        tables.add(slot, length);
    });
}

template <class Kind>
void around(const void* data, size_t n, const void* keys, size_t number, int64_t* counts, const Tables& tables) {
    typedef typename Kind::Key Key;
    if (counts)
        around_few<Kind>(data, n, static_cast<const Key*>(keys), number, counts);
    else
        around_many<Kind>(data, n, static_cast<const Key*>(keys), number, tables);
}

}  // namespace

// Sample types, numbered as in cpu.py.
enum Type { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64 };

extern "C" {

// Fewer than 2**32 samples.
void count_top(int type, const void* samples, size_t n, int shift, u32* counters, size_t stride, int number) {
    const Tables tables{counters, stride, number};
    switch (type) {
        case INT8: return top<Signed<uint8_t>>(samples, n, shift, tables);
        case UINT8: return top<Unsigned<uint8_t>>(samples, n, shift, tables);
        case INT16: return top<Signed<uint16_t>>(samples, n, shift, tables);
        case UINT16: return top<Unsigned<uint16_t>>(samples, n, shift, tables);
        case INT32: return top<Signed<u32>>(samples, n, shift, tables);
        case UINT32: return top<Unsigned<u32>>(samples, n, shift, tables);
        case INT64: return top<Signed<u64>>(samples, n, shift, tables);
        case UINT64: return top<Unsigned<u64>>(samples, n, shift, tables);
        case FLOAT16: return top<Half>(samples, n, shift, tables);
        case FLOAT32: return top<Single>(samples, n, shift, tables);
        case FLOAT64: return top<Double>(samples, n, shift, tables);
    }
}

// Fewer than 2**32 samples, of 16 bits or more. Where `keys` are given, those of the first `most` samples in cells go there,
// and nothing is counted but their number, which is returned.
size_t count_cells(int type, const void* samples, size_t n, const Cells* cells, void* keys, size_t most, u32* counters,
                   size_t stride, int number) {
    const Tables tables{counters, stride, number};
    switch (type) {
        case INT16: return in_cells<Signed<uint16_t>>(samples, n, *cells, keys, most, tables);
        case UINT16: return in_cells<Unsigned<uint16_t>>(samples, n, *cells, keys, most, tables);
        case FLOAT16: return in_cells<Half>(samples, n, *cells, keys, most, tables);
        case INT32: return in_cells<Signed<u32>>(samples, n, *cells, keys, most, tables);
        case UINT32: return in_cells<Unsigned<u32>>(samples, n, *cells, keys, most, tables);
        case INT64: return in_cells<Signed<u64>>(samples, n, *cells, keys, most, tables);
        case UINT64: return in_cells<Unsigned<u64>>(samples, n, *cells, keys, most, tables);
        case FLOAT32: return in_cells<Single>(samples, n, *cells, keys, most, tables);
        case FLOAT64: return in_cells<Double>(samples, n, *cells, keys, most, tables);
    }
    return 0;
}

// Fewer than 2**32 samples, of 32 or 64 bits, around `number` keys, ascending: where `counts` is none, in the tables.
void count_around(int type, const void* samples, size_t n, const void* keys, size_t number, int64_t* counts, u32* counters,
                  size_t stride, int tables_) {
    const Tables tables{counters, stride, tables_};
    switch (type) {
        case INT32: return around<Signed<u32>>(samples, n, keys, number, counts, tables);
        case UINT32: return around<Unsigned<u32>>(samples, n, keys, number, counts, tables);
        case INT64: return around<Signed<u64>>(samples, n, keys, number, counts, tables);
        case UINT64: return around<Unsigned<u64>>(samples, n, keys, number, counts, tables);
        case FLOAT32: return around<Single>(samples, n, keys, number, counts, tables);
        case FLOAT64: return around<Double>(samples, n, keys, number, counts, tables);
    }
}
}
