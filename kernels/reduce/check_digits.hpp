// Cubes and fourth powers of unsigned integers, from products of their digits, for check_powers.cpp and check_rows.cpp.

#pragma once

#include "check_buckets.hpp"

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace {

constexpr int CUBE_BITS = 3264, FOURTH_BITS = 4352, CUBE_WORDS = 100, FOURTH_WORDS = 133;  // as in powers.py
typedef Buckets<CUBE_WORDS, CUBE_BITS> Cubes;
typedef Buckets<FOURTH_WORDS, FOURTH_BITS> Fourths;

// A number, or several; products of the lower halves, which compilers would make out of three.
#ifdef __AVX512F__
typedef u64 Lanes __attribute__((vector_size(64), may_alias));
inline Lanes times(Lanes x, Lanes y) { return Lanes(_mm512_maskz_mul_epu32(0xff, __m512i(x), __m512i(y))); }
#else
typedef u64 Lanes __attribute__((vector_size(32), may_alias));
#ifdef __AVX2__
inline Lanes times(Lanes x, Lanes y) { return Lanes(_mm256_mul_epu32(__m256i(x), __m256i(y))); }
#else
inline Lanes times(Lanes x, Lanes y) { return (x & 0xffffffff) * (y & 0xffffffff); }
#endif
#endif
inline u64 times(u64 x, u64 y) { return (x & 0xffffffff) * (y & 0xffffffff); }

template <class U>
U low(U product) {
    return product & 0xffffffff;
}
template <class U>
U high(U product) {
    return product >> 32;
}

inline u64 total(u64 sum) { return sum; }
inline u64 total(Lanes sums) {
    u64 sum = 0;
    for (size_t i = 0; i < sizeof sums / sizeof sum; ++i) sum += sums[i];
    return sum;
}

// Numbers below 2**32 times 2**power; `minus` has all bits set where a cube is to be subtracted. They are a whole number
// of `Of`, aligned.
template <class Of>
void add_short(const u64* numbers, const u64* minus, size_t n, int power, Cubes& cubes, Fourths& fourths) {
    Of c0{}, c1{}, c2{}, f0{}, f1{}, f2{}, f3{};
    for (size_t i = 0; i < n; i += sizeof(Of) / sizeof(u64)) {
        const Of a = *reinterpret_cast<const Of*>(numbers + i), sign = *reinterpret_cast<const Of*>(minus + i);
        const Of p = times(a, a), q = high(p);
        const Of pa = times(p, a), qa = times(q, a), pp = times(p, p), pq = times(p, q), qq = times(q, q);
        c0 += (low(pa) ^ sign) - sign;
        c1 += ((high(pa) + low(qa)) ^ sign) - sign;
        c2 += (high(qa) ^ sign) - sign;
        f0 += low(pp);
        f1 += high(pp) + 2 * low(pq);
        f2 += 2 * high(pq) + low(qq);
        f3 += high(qq);
    }
    const Of cube[3] = {c0, c1, c2}, fourth[4] = {f0, f1, f2, f3};
    for (int k = 0; k < 3; ++k) cubes.add(static_cast<int64_t>(total(cube[k])), 3 * power + 32 * k);
    for (int k = 0; k < 4; ++k) fourths.add(total(fourth[k]), 4 * power + 32 * k);
}

// The same of any numbers.
template <class Of>
void add_long(const u64* numbers, const u64* minus, size_t n, int power, Cubes& cubes, Fourths& fourths) {
    Of c0{}, c1{}, c2{}, c3{}, c4{}, c5{}, f0{}, f1{}, f2{}, f3{}, f4{}, f5{}, f6{}, f7{};
    for (size_t i = 0; i < n; i += sizeof(Of) / sizeof(u64)) {
        const Of a = *reinterpret_cast<const Of*>(numbers + i), sign = *reinterpret_cast<const Of*>(minus + i);
        const Of b = high(a), aa = times(a, a), ab = times(a, b), bb = times(b, b);
        const Of second = high(aa) + 2 * low(ab), third = high(second) + 2 * high(ab) + low(bb);
        const Of p = aa, q = second, r = third, s = high(third) + high(bb);  // their lower halves
        const Of pa = times(p, a), pb = times(p, b), qa = times(q, a), qb = times(q, b);
        const Of ra = times(r, a), rb = times(r, b), sa = times(s, a), sb = times(s, b);
        c0 += (low(pa) ^ sign) - sign;
        c1 += ((high(pa) + low(pb) + low(qa)) ^ sign) - sign;
        c2 += ((high(pb) + high(qa) + low(qb) + low(ra)) ^ sign) - sign;
        c3 += ((high(qb) + high(ra) + low(rb) + low(sa)) ^ sign) - sign;
        c4 += ((high(rb) + high(sa) + low(sb)) ^ sign) - sign;
        c5 += (high(sb) ^ sign) - sign;
        const Of pp = times(p, p), pq = times(p, q), pr = times(p, r), ps = times(p, s), qq = times(q, q);
        const Of qr = times(q, r), qs = times(q, s), rr = times(r, r), rs = times(r, s), ss = times(s, s);
        f0 += low(pp);
        f1 += high(pp) + 2 * low(pq);
        f2 += 2 * (high(pq) + low(pr)) + low(qq);
        f3 += 2 * (high(pr) + low(ps) + low(qr)) + high(qq);
        f4 += 2 * (high(ps) + high(qr) + low(qs)) + low(rr);
        f5 += 2 * (high(qs) + low(rs)) + high(rr);
        f6 += 2 * high(rs) + low(ss);
        f7 += high(ss);
    }
    const Of cube[6] = {c0, c1, c2, c3, c4, c5}, fourth[8] = {f0, f1, f2, f3, f4, f5, f6, f7};
    for (int k = 0; k < 6; ++k) cubes.add(static_cast<int64_t>(total(cube[k])), 3 * power + 32 * k);
    for (int k = 0; k < 8; ++k) fourths.add(total(fourth[k]), 4 * power + 32 * k);
}

}  // namespace
