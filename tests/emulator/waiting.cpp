// Threads that wait for each other: barriers of a block, and collective operations of the lanes of a warp.

#include "threads.h"

#include <cstring>

namespace {

unsigned last_votes;

// What each lane gets from the others' values; `here` are the participating lanes.
void answer(Fiber* lanes, unsigned here, HostWarp operation) {
    unsigned ballot = 0;
    std::uint32_t known[WARP] = {};
    for (unsigned lane = 0; lane < WARP; ++lane) {
        if (!(here >> lane & 1)) continue;
        ballot |= unsigned(lanes[lane].value[0] & 1) << lane;
        for (unsigned k = 0; k < WARP && operation == HOST_SYNC; ++k)
            if (lanes[lane].clock[k] > known[k]) known[k] = lanes[lane].clock[k];
    }
    for (unsigned lane = 0; lane < WARP; ++lane) {
        if (!(here >> lane & 1)) continue;
        Fiber& fiber = lanes[lane];
        const bool given = fiber.source >= 0 && fiber.source < int(WARP) && (here >> fiber.source & 1);
        if (operation == HOST_SYNC) {
            std::memcpy(fiber.clock, known, sizeof known);
            ++fiber.clock[lane];
        } else if (operation == HOST_BALLOT) {
            std::memcpy(fiber.result, &ballot, sizeof ballot);
        } else if (given) {
            std::memcpy(fiber.result, lanes[fiber.source].value, fiber.bytes);
        } else {  // undefined: a value that corrupts any result
            std::memset(fiber.result, 0xa5, fiber.bytes);
        }
    }
}

}  // namespace

// Deadlock: no thread can continue, though not all have ended. Names two threads that wait for different things.
[[noreturn]] void stuck() {
    constexpr const char* DOES[] = {"runs", "waits at a barrier", "waits for its warp", "has ended"};
    const Fiber *one = fibers, *other = nullptr;
    while (one->state == State::DONE) ++one;
    for (const Fiber* fiber = fibers; fiber < fibers + threads; ++fiber)
        if (fiber->state != one->state) other = fiber;
    if (!other) fault(nullptr, "divergence: lanes of a warp wait for each other with different masks");
    fault(nullptr, "divergence: thread %u of block %u %s, thread %u %s", one->number, block_number,
          DOES[int(one->state)], other->number, DOES[int(other->state)]);
}

void release_barrier() {
    const Fiber* one = fibers;
    while (one->state == State::DONE) ++one;
    for (const Fiber* other = fibers; other < fibers + threads; ++other) {
        if (other->state == State::DONE)
            fault(nullptr, "divergence: thread %u of block %u ended without reaching the barrier in line %d, where "
                  "thread %u waits", other->number, block_number, one->line, one->number);
        if (other->line != one->line)
            fault(nullptr, "divergence: thread %u of block %u waits at the barrier in line %d, thread %u at that in "
                  "line %d", one->number, block_number, one->line, other->number, other->line);
    }
    last_votes = votes;
    at_barrier = votes = 0;
    ++epoch;
    all_ready();
}

void try_warp(const Fiber& one) {
    const HostWarp operation = one.operation;
    Fiber* const lanes = fibers + one.warp * WARP;
    const auto is_missing = [&](unsigned lane) {
        const Fiber& other = lanes[lane];
        return one.warp * WARP + lane < threads && one.mask >> lane & 1 && other.state != State::DONE &&
               (other.state != State::WARP_OPERATION || other.mask != one.mask || other.operation != operation);
    };
    static unsigned missed;  // checked first: it is most likely still missing
    if (is_missing(missed)) return;
    unsigned here = 0, woken[WARP], count = 0;
    for (unsigned lane = 0; lane < WARP && one.warp * WARP + lane < threads; ++lane) {
        const Fiber& other = lanes[lane];
        if (!(one.mask >> lane & 1) || other.state == State::DONE) continue;
        if (is_missing(lane)) {
            missed = lane;
            return;
        }
        here |= 1u << lane;
        woken[count++] = other.number;
    }
    answer(lanes, here, operation);
    if (order >= WARPS) shuffle(woken, count);
    for (unsigned i = 0; i < count; ++i) make_ready(fibers[woken[order == DESCENDING ? count - 1 - i : i]]);
}

extern "C" {

unsigned host_existing_lanes() {
    unsigned lanes = 0;
    for (unsigned lane = 0; lane < WARP && current->warp * WARP + lane < threads; ++lane)
        lanes |= unsigned(fibers[current->warp * WARP + lane].state != State::DONE) << lane;
    return lanes;
}
unsigned host_active_lanes() { return 1u << current->lane; }  // lanes may diverge anywhere: no kernel may rely on more

int host_barrier_vote(int line, int predicate) {
    count_access(nullptr);
    current->state = State::BARRIER;
    current->line = line;
    votes += predicate;
    if (++at_barrier == alive) release_barrier();
    go_on();
    return int(last_votes);
}
void host_barrier(int line) { host_barrier_vote(line, 0); }

void host_warp(HostWarp operation, unsigned mask, void* value, unsigned bytes, int source) {
    Fiber& me = *current;
    if (!(mask >> me.lane & 1))
        fault(__builtin_return_address(0), "divergence: lane %u is not in the mask %#x that it passes", me.lane, mask);
    if (bytes) std::memcpy(me.value, value, bytes);
    me.state = State::WARP_OPERATION;
    me.operation = operation;
    me.mask = mask;
    me.bytes = bytes;
    me.source = source;
    try_warp(me);
    go_on();
    if (bytes) std::memcpy(value, me.result, bytes);
}

}  // extern "C"
