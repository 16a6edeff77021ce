// Calibrated samples for check.py, which shares no code with apply.py: logarithms are those of long double.

#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

using std::size_t;

// Bound of the relative error of a logarithm of long double, twice what libraries promise.
constexpr int MARGIN = 2 - LDBL_MANT_DIG;

}  // namespace

// These as in check.py.
enum Type { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64 };
enum Transform { NONE, ABS, SQUARE, SQRT, LOG, LOG2, LOG10 };

namespace {

double from_half(uint16_t half) {
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const double sign = half >> 15 ? -1 : 1;
    if (exponent == 31) return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24));
}

template <class T>
void scale(const void* samples, size_t n, double gain, double bias, double* __restrict out) {
    const T* some = static_cast<const T*>(samples);
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<double>(some[i]) * gain + bias;
}

void scale(int type, const void* samples, size_t n, double gain, double bias, double* out) {
    switch (type) {
        case INT8: return scale<int8_t>(samples, n, gain, bias, out);
        case UINT8: return scale<uint8_t>(samples, n, gain, bias, out);
        case INT16: return scale<int16_t>(samples, n, gain, bias, out);
        case UINT16: return scale<uint16_t>(samples, n, gain, bias, out);
        case INT32: return scale<int32_t>(samples, n, gain, bias, out);
        case UINT32: return scale<uint32_t>(samples, n, gain, bias, out);
        case INT64: return scale<int64_t>(samples, n, gain, bias, out);
        case UINT64: return scale<uint64_t>(samples, n, gain, bias, out);
        case FLOAT32: return scale<float>(samples, n, gain, bias, out);
        case FLOAT64: return scale<double>(samples, n, gain, bias, out);
        case FLOAT16:
            for (size_t i = 0; i < n; ++i) {
                uint16_t half;
                std::memcpy(&half, static_cast<const char*>(samples) + 2 * i, sizeof half);
                out[i] = from_half(half) * gain + bias;
            }
    }
}

}  // namespace

// Writes calibrated samples. Of those whose rounding is not certain it writes the numbers into `unsure`, the arguments
// of the transform in their places, and returns how many they are.
extern "C" size_t calibrate_samples(int type, const void* samples, size_t n, double gain, double bias, int transform,
                                    double* out, int64_t* unsure) {
    scale(type, samples, n, gain, bias, out);
    size_t number = 0;
    switch (transform) {
        case ABS:
            for (size_t i = 0; i < n; ++i) out[i] = std::fabs(out[i]);
            break;
        case SQUARE:
            for (size_t i = 0; i < n; ++i) out[i] *= out[i];
            break;
        case SQRT:
            for (size_t i = 0; i < n; ++i) out[i] = std::sqrt(out[i]);
            break;
        case LOG:
        case LOG2:
        case LOG10:
            for (size_t i = 0; i < n; ++i) {
                const long double wide = out[i];
                const long double log = transform == LOG ? std::log(wide) : transform == LOG2 ? std::log2(wide)
                                                                                              : std::log10(wide);
                const long double margin = std::ldexp(std::fabs(log), MARGIN);
                const double low = static_cast<double>(log - margin), high = static_cast<double>(log + margin);
                if (low < high) unsure[number++] = static_cast<int64_t>(i);
                else out[i] = std::isinf(log) ? static_cast<double>(log) : low;
            }
    }
    return number;
}
