// The right results of operations on elements, by integer arithmetic alone, for check.py.
//
// There is no arithmetic on floats: to stay unnoticed, an error of a machine, a compiler or a rounding mode would have
// to happen to integers too, with the same bits.

#include <cstddef>
#include <cstdint>

#include "check_float.hpp"

namespace {

using std::size_t;

// --- floats ----------------------------------------------------------------------------------------------------------

template <class F>
struct Floats {
    typedef typename F::Bits Bits;
    static Bits add(Bits a, Bits b) { return float_sum<F>(a, b); }
    static Bits subtract(Bits a, Bits b) { return float_sum<F>(a, b ^ F::SIGN); }
    static Bits multiply(Bits a, Bits b) { return float_product<F>(a, b); }
    static Bits multiply_add(Bits a, Bits b, Bits c) { return float_sum<F>(float_product<F>(a, b), c); }
    static Bits minimum(Bits a, Bits b) {
        return is_nan<F>(a) || is_nan<F>(b) ? F::NOT_A_NUMBER : float_key<F>(b) < float_key<F>(a) ? b : a;
    }
    static Bits maximum(Bits a, Bits b) {
        return is_nan<F>(a) || is_nan<F>(b) ? F::NOT_A_NUMBER : float_key<F>(a) < float_key<F>(b) ? b : a;
    }
};

// --- integers --------------------------------------------------------------------------------------------------------

template <class T>
struct Keys {
    typedef T Bits;
    static T minimum(T a, T b) { return a < b ? a : b; }
    static T maximum(T a, T b) { return a < b ? b : a; }
};

// Up to 32 bits: the exact result, of which the lowest bits are kept.
template <class T, class Exact>
struct Narrow : Keys<T> {
    static T add(T a, T b) { return static_cast<T>(Exact(a) + Exact(b)); }
    static T subtract(T a, T b) { return static_cast<T>(Exact(a) - Exact(b)); }
    static T multiply(T a, T b) { return static_cast<T>(Exact(a) * Exact(b)); }
    static T multiply_add(T a, T b, T c) { return static_cast<T>(Exact(a) * Exact(b) + Exact(c)); }
};

// 64 bits: digits of 32 bits, with carries, modulo 2**64.
template <class T>
struct Digits : Keys<T> {
    static constexpr uint64_t LOW = 0xffffffff;
    static uint64_t low(T x) { return static_cast<uint64_t>(x) & LOW; }
    static uint64_t high(T x) { return static_cast<uint64_t>(x) >> 32; }
    static T joined(uint64_t upper, uint64_t lower) {
        return static_cast<T>((upper + (lower >> 32)) << 32 | (lower & LOW));
    }
    static T add(T a, T b) { return joined(high(a) + high(b), low(a) + low(b)); }
    // Of -b the digits are those of ~b, and 1 is added.
    static T subtract(T a, T b) { return joined(high(a) + (high(b) ^ LOW), low(a) + (low(b) ^ LOW) + 1); }
    static T multiply(T a, T b) { return joined(low(a) * high(b) + high(a) * low(b), low(a) * low(b)); }
    static T multiply_add(T a, T b, T c) { return add(multiply(a, b), c); }
};

// --- conversions -----------------------------------------------------------------------------------------------------

// A number between two types: without its sign `size` * 2**`place`, or infinite, or NaN.
struct Number {
    enum Kind { FINITE, INFINITE, NOT_A_NUMBER } kind;
    bool negative;
    uint64_t size;
    int place;
};

template <class T>
struct Integer {
    typedef T Bits;
    static Number taken(T x) {
        const uint64_t word = static_cast<uint64_t>(x);
        return {Number::FINITE, x < 0, x < 0 ? 0 - word : word, 0};
    }
    static T given(const Number& x) { return static_cast<T>(x.negative ? 0 - x.size : x.size); }
};

template <class F>
struct Real {
    typedef typename F::Bits Bits;
    static Number taken(Bits x) {
        const Bits size = x & Bits(~F::SIGN);
        const Number::Kind special = size > F::INFINITE ? Number::NOT_A_NUMBER : Number::INFINITE;
        const Number::Kind kind = size < F::INFINITE ? Number::FINITE : special;
        return {kind, (x & F::SIGN) != 0, F::significand(size), F::place(size) - F::ONE};
    }
    static Bits given(const Number& x) {
        const bool wide = x.size >> 62;  // as for products, the last bit kept stands for those that are lost
        const uint64_t kept = wide ? x.size >> 2 | ((x.size & 3) != 0) : x.size;
        const Bits finite = rounded<F>(kept, x.place + F::ONE + (wide ? 2 : 0));
        const Bits size = x.kind == Number::FINITE ? finite : F::INFINITE;
        return x.kind == Number::NOT_A_NUMBER ? F::NOT_A_NUMBER : Bits(size | (x.negative ? F::SIGN : Bits(0)));
    }
};

constexpr size_t BLOCK = 512;  // numbers between two types, in the L1 cache

template <class From>
void take(const void* x, size_t n, Number* numbers) {
    for (size_t i = 0; i < n; ++i) numbers[i] = From::taken(static_cast<const typename From::Bits*>(x)[i]);
}

template <class To>
void give(const Number* numbers, size_t n, void* out) {
    for (size_t i = 0; i < n; ++i) static_cast<typename To::Bits*>(out)[i] = To::given(numbers[i]);
}

// --- arrays ----------------------------------------------------------------------------------------------------------

// Operations and types, numbered as in check.py.
enum Operation { ADD, SUBTRACT, MULTIPLY, MULTIPLY_ADD, MINIMUM, MAXIMUM };
enum Type { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64 };

template <class Of>
void fill(int operation, const void* a, const void* b, const void* c, void* out, size_t n) {
    typedef typename Of::Bits T;
    const T *__restrict__ x = static_cast<const T*>(a), *__restrict__ y = static_cast<const T*>(b);
    const T* __restrict__ z = static_cast<const T*>(c);
    T* __restrict__ to = static_cast<T*>(out);
    switch (operation) {
// Without the pragma GCC 13 and 14 vectorize no sums of floats.
#define EACH(OPERATION, RESULT) \
    case OPERATION: \
        _Pragma("omp simd") for (size_t i = 0; i < n; ++i) to[i] = RESULT; \
        break;
        EACH(ADD, Of::add(x[i], y[i]))
        EACH(SUBTRACT, Of::subtract(x[i], y[i]))
        EACH(MULTIPLY, Of::multiply(x[i], y[i]))
        EACH(MULTIPLY_ADD, Of::multiply_add(x[i], y[i], z[i]))
        EACH(MINIMUM, Of::minimum(x[i], y[i]))
        EACH(MAXIMUM, Of::maximum(x[i], y[i]))
#undef EACH
    }
}

}  // namespace

// The results of an operation on n elements of each array, all of one type. `c` is read by MULTIPLY_ADD only.
extern "C" void right_results(int type, int operation, const void* a, const void* b, const void* c, void* out,
                              size_t n) {
    switch (type) {
        case INT8: fill<Narrow<int8_t, int64_t>>(operation, a, b, c, out, n); break;
        case UINT8: fill<Narrow<uint8_t, uint64_t>>(operation, a, b, c, out, n); break;
        case INT16: fill<Narrow<int16_t, int64_t>>(operation, a, b, c, out, n); break;
        case UINT16: fill<Narrow<uint16_t, uint64_t>>(operation, a, b, c, out, n); break;
        case INT32: fill<Narrow<int32_t, int64_t>>(operation, a, b, c, out, n); break;
        case UINT32: fill<Narrow<uint32_t, uint64_t>>(operation, a, b, c, out, n); break;
        case INT64: fill<Digits<int64_t>>(operation, a, b, c, out, n); break;
        case UINT64: fill<Digits<uint64_t>>(operation, a, b, c, out, n); break;
        case FLOAT16: fill<Floats<Half>>(operation, a, b, c, out, n); break;
        case FLOAT32: fill<Floats<Single>>(operation, a, b, c, out, n); break;
        case FLOAT64: fill<Floats<Double>>(operation, a, b, c, out, n); break;
    }
}

// n elements of one type as another: integers as integers with the same bits modulo their size, integers and floats as
// floats rounded to nearest. Floats are not converted to integers.
extern "C" void converted(int from, int to, const void* x, void* out, size_t n) {
    Number numbers[BLOCK];
    const char* in = static_cast<const char*>(x);
    char* result = static_cast<char*>(out);
    for (size_t start = 0; start < n; start += BLOCK) {
        const size_t count = n - start < BLOCK ? n - start : BLOCK;
#define OF_TYPE(WITH, TYPE, KIND) \
    case TYPE: WITH(KIND); break;
#define OF_INTEGERS(WITH) \
    OF_TYPE(WITH, INT8, Integer<int8_t>) OF_TYPE(WITH, UINT8, Integer<uint8_t>) \
    OF_TYPE(WITH, INT16, Integer<int16_t>) OF_TYPE(WITH, UINT16, Integer<uint16_t>) \
    OF_TYPE(WITH, INT32, Integer<int32_t>) OF_TYPE(WITH, UINT32, Integer<uint32_t>) \
    OF_TYPE(WITH, INT64, Integer<int64_t>) OF_TYPE(WITH, UINT64, Integer<uint64_t>)
#define OF_FLOATS(WITH) \
    OF_TYPE(WITH, FLOAT16, Real<Half>) OF_TYPE(WITH, FLOAT32, Real<Single>) OF_TYPE(WITH, FLOAT64, Real<Double>)
#define TAKE(KIND) take<KIND>(in + start * sizeof(KIND::Bits), count, numbers)
#define GIVE(KIND) give<KIND>(numbers, count, result + start * sizeof(KIND::Bits))
        switch (from) { OF_INTEGERS(TAKE) OF_FLOATS(TAKE) }
        switch (to) { OF_INTEGERS(GIVE) OF_FLOATS(GIVE) }
#undef OF_TYPE
#undef OF_INTEGERS
#undef OF_FLOATS
#undef TAKE
#undef GIVE
    }
}
