// Sums of floats whose exponents lie far apart: the leading bits of all elements make a layer, the leading bits of what
// is left the next one, and so on, until what is still left cannot change a result.
#pragma once

#include "stencil/terms.cuh"

// Cuts a number at a grid `coarse` into a multiple of it and a remainder, which is rounded to the grid `fine`.
struct Cutter {
    static constexpr int SHIFT = 64;  // large numbers are divided by 2^SHIFT: sums stay finite
    double scale, coarse, fine;       // 1.5 * 2^52 units of the grids, by which numbers times `scale` are cut
    int grid, low;                    // exponents of the units, before scaling

    Cutter() = default;
    // For numbers below 2^top: sums of 2^bits of them are exact.
    __device__ Cutter(int top, int bits, double scale) : scale(scale) {
        const int by = scale == 1 ? 0 : SHIFT;
        grid = max(top + bits - 53, -1074), low = max(grid + bits - 54, -1074);
        coarse = 1.5 * power_of_two(grid + 52 - by), fine = 1.5 * power_of_two(low + 52 - by);
    }
    __device__ Cuts cut(double x) const {
        const double high = fma(x, scale, coarse) - coarse;
        return {high, fma(x, scale, -high) + fine - fine};
    }
    __device__ double up() const { return scale == 1 ? 1 : power_of_two(SHIFT); }
    // At least 2^exponent, scaled.
    __device__ double power(int exponent) const {
        return power_of_two(max(exponent - (scale == 1 ? 0 : SHIFT), -1074));
    }
};

// The first layer. Every element fits that is at most twice as large as those seen before.
template <typename T> struct Layers : Grid<T> {
    static constexpr bool LAYERED = true;
    using Part = Cuts;
    using Whole = Cuts;
    using Mark = Tally;
    Cutter cutter;
    int bits, of_window;  // a sum has at most 2^bits terms, a window 2^of_window elements

    Layers() = default;
    // For elements at places up to `high`.
    __device__ Layers(int high, int bits, int of_window) : bits(bits), of_window(of_window) {
        const int top = max(high, 1) + Float<T>::BIAS + Float<T>::BITS;
        cutter = Cutter(top, bits, top + bits > 1023 ? power_of_two(-Cutter::SHIFT) : 1);
        this->reach(0, high);
    }
    __device__ bool choose(int, int high, int spare, i64 radius, i64, int tile) {
        const i64 width = 2 * radius + 1, most = max(width, min(2 * width, i64(2 * tile)));
        *this = Layers(min(high + spare, Float<T>::PLACES), max(bits_of(most), 2), max(bits_of(width), 1));
        return true;
    }
    static __device__ int bits_of(i64 count) { return 64 - __clzll(count - 1); }
    __device__ Part term(T x) const { return cutter.cut(x); }
    // More than all that a window has below the layer.
    __device__ double most() const { return cutter.power(cutter.low + of_window - 1); }
};

// What elements have below the layers so far; `choose` makes a layer of its leading bits, `descend` leaves it behind.
template <typename T> struct Remainder {
    static constexpr bool ADAPTS = false;
    static constexpr int LARGE = 800;  // above 2^LARGE sums stay scaled, below nothing is lost by scaling them back
    using Part = Cuts;
    using Whole = Cuts;
    Cutter cutter;
    int bits, of_window;
    double limit, bound, down, up;  // numbers from `limit` on have no bits below the layers; `bound` rounds others
    double before, rescaled;        // what a window has less than below; what sums so far are multiplied by

    __device__ explicit Remainder(const Layers<T>& first)
        : cutter(first.cutter), bits(first.bits + 5), of_window(first.of_window) {
        descend();
    }
    __device__ void descend() {
        const int place = cutter.low + 52, by = place > LARGE ? Cutter::SHIFT : 0;
        limit = place > 1023 ? __longlong_as_double(INFINITY_BITS) : power_of_two(place);
        bound = power_of_two(place - by), down = power_of_two(-by), up = power_of_two(by);
    }
    __device__ double of(T x) const {
        const double size = fabs(double(x)), rest = size < limit ? fma(bound - fma(size, down, bound), up, size) : 0;
        return Float<T>::negative(x) ? -rest : rest;
    }
    // A remainder is below 2^(place - 1023); 0 if there is none.
    __device__ int place(T x) const {
        const double rest = of(x);
        return rest == 0 ? 0 : Float<double>::exponent(rest) + 1;
    }
    __device__ void choose(int place) {
        const int top = place - 1023;
        const double scale = cutter.scale;
        before = cutter.power(top + of_window);
        cutter = Cutter(top, bits, top > LARGE ? scale : 1);
        rescaled = cutter.scale == scale ? 1 : power_of_two(Cutter::SHIFT);
    }
    __device__ Part term(T x) const { return cutter.cut(of(x)); }
};

inline __device__ double next_above(double x) {  // of a number that is not zero
    const i64 bits = __double_as_longlong(x);
    return __longlong_as_double(bits + (bits >= 0 ? 1 : -1));
}

// A sum whose lower bits are not known yet: value + rest, exactly, where `value` is what that rounds to. Once it is
// known to lie next to the middle between two results, the distance from there is kept instead.
struct Rounding {
    double value, rest, below;  // `below` is the lower one of the two results
    bool halfway;

    static __device__ Rounding of(Cuts sum) {
        Rounding rounding{sum.high, 0, 0, false};
        rounding.add(sum.low);
        return rounding;
    }
    // Exact as long as the sum is a multiple of a number of which `value` has less than 2^106.
    __device__ void add(double x) {
        const double sum = value + x, of_x = sum - value, tail = rest + ((value - (sum - of_x)) + (x - of_x));
        value = sum + tail;
        const double of_tail = value - sum;
        rest = (sum - (value - of_tail)) + (tail - of_tail);
    }
    // Whether less than `most` does not change the result; a result is `up` times what is added up here.
    __device__ bool settled(double most, double up, double& result) {
        const double slack = 2 * most + fabs(rest) * 0x1p-52;  // more than what rounding it below may lose
        if (halfway) {
            if (fabs(value) <= 2 * slack) return false;
            result = value > 0 ? next_above(below) : below;
            return true;
        }
        const double low = value + (rest - slack), high = value + (rest + slack);
        result = low * up;
        if (result == high * up) return true;
        const double half = (next_above(low) - low) / 2;
        if (slack <= half / 2) value = value - low - half + rest, rest = 0, below = result, halfway = true;
        return false;
    }
    // The next layer.
    template <typename Layer> __device__ bool add(const Layer& layer, Cuts sum, double& result) {
        const double up = layer.cutter.up();
        if (settled(layer.before, up * layer.rescaled, result)) return true;
        value *= layer.rescaled, rest *= layer.rescaled;
        add(sum.high);
        if (settled(layer.cutter.power(layer.cutter.grid + layer.of_window - 1), up, result)) return true;
        add(sum.low);
        return settled(layer.cutter.power(layer.cutter.low + layer.of_window - 1), up, result);
    }
    // The result if nothing is left.
    __device__ double all(double up) const {
        if (!halfway) return value * up;
        return value > 0 || (value == 0 && __double_as_longlong(below) & 1) ? next_above(below) : below;
    }
};

// The sum of a window of few elements, by one thread; false if the first layer does not decide it, unless ALL.
template <bool ALL, typename T> __device__ bool sum_of_few(const T* elements, int radius, int bits, double& result) {
    const int width = 2 * radius + 1;
    u32 most = 0;
    for (int k = 0; k < width; ++k) most = max(most, Float<T>::key(elements[k]));
    const int high = int(most >> Float<T>::KEY_BITS);
    if (high > Float<T>::PLACES) {
        Marks marks{};
        for (int k = 0; k < width; ++k) marks = marks + mark_of<Marks>(elements[k]);
        result = marks.value();
        return true;
    }
    const Layers<T> first(high, bits, bits);
    Cuts sum{};
    for (int k = 0; k < width; ++k) sum = sum + first.term(elements[k]);
    Rounding rounding = Rounding::of(sum);
    const bool settled = rounding.settled(first.most(), first.cutter.up(), result);
    if (settled || !ALL) return settled;
    Remainder<T> left(first);
    while (true) {
        int place = 0;
        for (int k = 0; k < width; ++k) place = max(place, left.place(elements[k]));
        if (place == 0) break;
        left.choose(place);
        sum = {};
        for (int k = 0; k < width; ++k) sum = sum + left.term(elements[k]);
        if (rounding.add(left, sum, result)) return true;
        left.descend();
    }
    result = rounding.all(left.cutter.up());
    return true;
}
