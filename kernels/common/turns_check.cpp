// Gives samples of rows that take turns to compiled checks, one for each row, for turns_check.py.
//
// Lines of samples that belong to one row are gathered in a buffer, so that each call of a check gets many.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

using std::size_t;

struct Check {
    void (*add)(void* state, const void* samples, size_t n, int64_t first);
    void* state;
};

constexpr size_t TILE = 16384;  // bytes: half of the L1 cache

}  // namespace

// As in turns_check.py.
struct Turns {
    const Check* checks;
    uint64_t rows, itemsize;
    char* lines;           // of each row, one after the other
    uint64_t capacity;     // samples of a line
    int64_t start;         // added to the indices of samples
    int64_t begin, end;    // indices of the samples that lines hold; column 0 is that of the turn of `begin`
    uint64_t* samples;     // of each row, given to its check
};

namespace {

int64_t turn_of(const Turns& t, int64_t index) { return index / static_cast<int64_t>(t.rows); }
size_t row_of(const Turns& t, int64_t index) { return static_cast<size_t>(index % static_cast<int64_t>(t.rows)); }

void give(Turns& t) {
    const int64_t base = turn_of(t, t.begin), last = turn_of(t, t.end);
    const size_t first_row = row_of(t, t.begin), end_row = row_of(t, t.end);
    for (size_t row = 0; row < t.rows; ++row) {
        const int64_t from = base + (row < first_row), to = last + (row < end_row);
        if (from >= to) continue;
        const char* line = t.lines + (row * t.capacity + static_cast<size_t>(from - base)) * t.itemsize;
        t.checks[row].add(t.checks[row].state, line, static_cast<size_t>(to - from), from);
        t.samples[row] += static_cast<uint64_t>(to - from);
    }
    t.begin = t.end;
}

// `turns` whole turns, to column `column`.
template <size_t SIZE>
void transpose(const Turns& t, const char* from, size_t turns, size_t column) {
    const size_t high = TILE / (t.rows * SIZE) + 1;
    for (size_t turn = 0; turn < turns; turn += high) {
        const size_t end = turn + high < turns ? turn + high : turns;
        for (size_t row = 0; row < t.rows; ++row) {
            char* line = t.lines + (row * t.capacity + column) * SIZE;
            for (size_t i = turn; i < end; ++i) std::memcpy(line + i * SIZE, from + (i * t.rows + row) * SIZE, SIZE);
        }
    }
}

void transpose(const Turns& t, const char* from, size_t turns, size_t column) {
    switch (t.itemsize) {
        case 1: return transpose<1>(t, from, turns, column);
        case 2: return transpose<2>(t, from, turns, column);
        case 4: return transpose<4>(t, from, turns, column);
        case 8: return transpose<8>(t, from, turns, column);
    }
}

}  // namespace

extern "C" {

void give_lines(Turns* turns) { give(*turns); }

void add_turns(Turns* turns, const void* samples, size_t n, int64_t first) {
    Turns& t = *turns;
    const char* from = static_cast<const char*>(samples);
    first += t.start;
    if (first != t.end) {
        give(t);
        t.begin = t.end = first;
    }
    while (n) {
        size_t column = static_cast<size_t>(turn_of(t, t.end) - turn_of(t, t.begin));
        if (column == t.capacity) {
            give(t);
            column = 0;
        }
        const size_t row = row_of(t, t.end);
        size_t taken = 1;
        if (row || n < t.rows) {
            std::memcpy(t.lines + (row * t.capacity + column) * t.itemsize, from, t.itemsize);
        } else {
            const size_t whole = n / t.rows, room = t.capacity - column, number = whole < room ? whole : room;
            transpose(t, from, number, column);
            taken = number * t.rows;
        }
        from += taken * t.itemsize, n -= taken, t.end += static_cast<int64_t>(taken);
    }
}
}
