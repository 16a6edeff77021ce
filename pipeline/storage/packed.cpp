// Unpacks samples of 10, 12 and 14 bits; called by packed.py, which defines the two bit orders.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

template <int BITS, bool BIG, bool SIGNED>
void unpack(const std::uint8_t* stored, std::size_t groups, std::uint16_t* samples) {
    constexpr int NUMBER = BITS == 12 ? 2 : 4, BYTES = NUMBER * BITS / 8, SPARE = 16 - BITS;
    const auto group = [&](std::uint64_t word) {
        for (int k = 0; k < NUMBER; ++k) {
            const auto high = static_cast<std::uint16_t>(word >> BITS * (BIG ? NUMBER - 1 - k : k) << SPARE);
            *samples++ = SIGNED ? static_cast<std::uint16_t>(static_cast<std::int16_t>(high) >> SPARE) : high >> SPARE;
        }
    };
    std::size_t done = 0;
    for (; (groups - done) * BYTES >= 8; ++done, stored += BYTES) {
        std::uint64_t word;
        std::memcpy(&word, stored, 8);
        group(BIG ? __builtin_bswap64(word) >> (64 - 8 * BYTES) : word);
    }
    for (; done < groups; ++done, stored += BYTES) {  // eight bytes would end after the last one
        std::uint64_t word = 0;
        for (int i = 0; i < BYTES; ++i) word |= std::uint64_t{stored[i]} << 8 * (BIG ? BYTES - 1 - i : i);
        group(word);
    }
}

template <int BITS>
void unpack_any(bool big, bool is_signed, const std::uint8_t* stored, std::size_t groups, std::uint16_t* samples) {
    if (big) return (is_signed ? unpack<BITS, true, true> : unpack<BITS, true, false>)(stored, groups, samples);
    (is_signed ? unpack<BITS, false, true> : unpack<BITS, false, false>)(stored, groups, samples);
}

}  // namespace

extern "C" void unpack_groups(int bits, bool big, bool is_signed, const std::uint8_t* stored, std::size_t groups,
                              std::uint16_t* samples) {
    const auto of_bits = bits == 10 ? unpack_any<10> : bits == 12 ? unpack_any<12> : unpack_any<14>;
    of_bits(big, is_signed, stored, groups, samples);
}
