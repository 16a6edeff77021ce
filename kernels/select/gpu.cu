// Copies the samples that a condition keeps, in their order, in one read: kernels/select/compact.cuh. What jobs run is
// that kernel with a generated condition; this is the same with one of its own, for tests and to inspect.

#include "select/condition.cuh"
#include "select/compact.cuh"
