// Threads of a block as fibers of one host thread, in an order that a seed decides.

#include "threads.h"

#include <sys/mman.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

#ifdef HOST_SANITIZED
#include <sanitizer/common_interface_defs.h>
#endif

Launch launch;
Report* report;
Fiber fibers[MAX_THREADS];
Fiber* current;
std::uint32_t block_number, epoch;

unsigned threads, alive, at_barrier, votes, order;

extern "C" void host_run_fiber();

namespace {

// Average number of shared accesses between switches; 0: threads switch only where they wait.
constexpr unsigned INTERVALS[] = {0, 1, 3, 10, 50, 300};

unsigned ready[MAX_THREADS], first_ready, count_ready;  // a ring of threads, in the order in which they run
unsigned interval;
std::uint64_t until_switch;
i64_ ticks;
bool failed;
Random source_of_random;
Context main_context;
uint3 block_index;
void** kernel_arguments;

#ifdef HOST_SANITIZED
const void* main_stack;
std::size_t main_stack_size;
void leave(const Fiber* next) {
    __sanitizer_start_switch_fiber(nullptr, next ? next->stack : main_stack, next ? STACK : main_stack_size);
}
void arrive() {
    const void* bottom;
    std::size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    if (!main_stack) main_stack = bottom, main_stack_size = size;  // the first stack to be left is the launch's own
}
#else
void leave(const Fiber*) {}
void arrive() {}
#endif

// Switches to a fiber, or to the launch if it is null.
void switch_to(Fiber* next) {
    Fiber* const previous = current;
    if (previous == next) return;
    ++report->switches;
    current = next;
    leave(next);
    exchange(previous ? previous->context : main_context, next ? next->context : main_context);
    arrive();
}

}  // namespace

// --- who is next ------------------------------------------------------------------------------------------------------

void make_ready(Fiber& fiber) {
    fiber.state = State::READY;
    ready[(first_ready + count_ready++) % MAX_THREADS] = fiber.number;
}

void go_on() {
    if (!count_ready) {
        if (alive) stuck();
        switch_to(nullptr);
        return;
    }
    const unsigned number = ready[first_ready];
    first_ready = (first_ready + 1) % MAX_THREADS;
    --count_ready;
    switch_to(&fibers[number]);
}

void shuffle(unsigned* values, unsigned count) {
    for (unsigned i = count; i > 1; --i) {
        const unsigned j = source_of_random.below(i), value = values[i - 1];
        values[i - 1] = values[j];
        values[j] = value;
    }
}

// Makes all threads of the block that have not ended ready, in the seed's order.
void all_ready() {
    const unsigned warps = (threads + WARP - 1) / WARP;
    unsigned warp_at[WARP], numbers[MAX_THREADS], count = 0;
    for (unsigned w = 0; w < warps; ++w) warp_at[w] = order == DESCENDING ? warps - 1 - w : w;
    if (order >= WARPS) shuffle(warp_at, warps);
    for (unsigned w = 0; w < warps; ++w) {
        for (unsigned k = 0; k < WARP; ++k) {
            const bool backwards = order == DESCENDING || order == WARPS_DESCENDING;
            const unsigned number = warp_at[w] * WARP + (backwards ? WARP - 1 - k : k);
            if (number < threads && fibers[number].state != State::DONE) numbers[count++] = number;
        }
    }
    if (order == ANY) shuffle(numbers, count);
    for (unsigned i = 0; i < count; ++i) make_ready(fibers[numbers[i]]);
}

namespace {

void draw_switch() {
    until_switch = interval ? 1 + source_of_random.below(2 * interval) : ~std::uint64_t(0);
}

// Puts a thread at the end of the ring, or before another one in it.
void let_others_go() {
    make_ready(*current);
    if (order == ANY) {
        const unsigned mine = (first_ready + count_ready - 1) % MAX_THREADS;
        const unsigned other = (first_ready + source_of_random.below(count_ready)) % MAX_THREADS, number = ready[other];
        ready[other] = ready[mine];
        ready[mine] = number;
    }
    go_on();
}

// --- a launch -----------------------------------------------------------------------------------------------------------

void begin_block(unsigned number) {
    block_number = number;
    const auto* grid = launch.grid;
    block_index = {number % grid[0], number / grid[0] % grid[1], number / grid[0] / grid[1]};
    epoch = 1;
    alive = threads;
    at_barrier = votes = first_ready = count_ready = 0;
    for (Fiber* fiber = fibers; fiber < fibers + threads; ++fiber) {
        std::memset(fiber->clock, 0, sizeof fiber->clock);
        fiber->clock[fiber->lane] = 1;
        fiber->state = State::READY;
        prepare(fiber->context, fiber->stack, STACK, host_run_fiber);
    }
    all_ready();
    fences_begin_block();
    memory_begin_block(source_of_random.next());
}

void begin_launch() {
    static char* const stacks = static_cast<char*>(mmap(nullptr, STACK * MAX_THREADS, PROT_READ | PROT_WRITE,
                                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    const auto* block = launch.block;
    threads = block[0] * block[1] * block[2];
    for (unsigned i = 0; i < threads; ++i) {
        fibers[i].stack = stacks + i * STACK;
        fibers[i].index = {i % block[0], i / block[0] % block[1], i / block[0] / block[1]};
        fibers[i].number = i;
        fibers[i].lane = i % WARP;
        fibers[i].warp = i / WARP;
    }
    source_of_random = {launch.seed};
    // Seed 0 is the plain order.
    order = launch.seed ? source_of_random.below(ORDERS) : unsigned(ASCENDING);
    interval = launch.seed ? INTERVALS[source_of_random.below(sizeof INTERVALS / sizeof *INTERVALS)] : 0;
    draw_switch();
    failed = false;
    ticks = 0;
    kernel_arguments = memory_begin();
    fences_begin();
}

}  // namespace

void fault(const void* place, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(report->text, sizeof report->text, format, arguments);
    va_end(arguments);
    report->place = reinterpret_cast<std::uint64_t>(place);
    failed = true;
    switch_to(nullptr);
    __builtin_unreachable();
}

void count_access(const void* place) {
    if (++report->accesses > launch.budget)
        fault(place, "does not end: thread %u of block %u has gone on for too long", current->number, block_number);
}

void switch_sometimes() {
    if (--until_switch) return;
    draw_switch();
    let_others_go();
}

extern "C" {

void host_run_fiber() {
    arrive();
    launch.kernel->invoke(kernel_arguments);
    current->state = State::DONE;
    --alive;
    if (alive && at_barrier == alive) release_barrier();
    Fiber* const lanes = fibers + current->warp * WARP;
    for (unsigned lane = 0; lane < WARP && lanes + lane < fibers + threads; ++lane)
        if (lanes[lane].state == State::WARP_OPERATION) try_warp(lanes[lane]);
    go_on();
}

// Returns 1 if the kernel had a fault, which the report describes.
int host_launch(const Launch* asked, Report* into) {
    launch = *asked;
    report = into;
    *report = {};
    begin_launch();
    const auto* grid = launch.grid;
    const unsigned blocks = grid[0] * grid[1] * grid[2];
    // Every block once, in an order that needs no list: by a step that is coprime to their number.
    std::uint64_t step = order == DESCENDING ? blocks - 1 : 1, at = 0;
    if (order >= WARPS && blocks > 1) {
        const auto divisor = [](std::uint64_t a, std::uint64_t b) {
            while (b) { const std::uint64_t rest = a % b; a = b; b = rest; }
            return a;
        };
        do step = 1 + source_of_random.below(blocks); while (divisor(step, blocks) != 1);
        at = source_of_random.below(blocks);
    }
    for (unsigned i = 0; i < blocks && !failed; ++i, at = (at + step) % blocks) {
        begin_block(unsigned(at));
        go_on();
    }
    memory_end();
    return failed;
}

uint3 host_thread_index() { return current->index; }
uint3 host_block_index() { return block_index; }
uint3 host_block_size() { return {launch.block[0], launch.block[1], launch.block[2]}; }
uint3 host_grid_size() { return {launch.grid[0], launch.grid[1], launch.grid[2]}; }
int host_lane() { return int(current->lane); }
unsigned char host_reached[MAX_MUTANTS];
int host_mutant(int number) {
    host_reached[number % MAX_MUTANTS] = 1;
    return launch.mutant == number;
}

void host_switch_point() { switch_sometimes(); }

i64_ host_clock() {
    ticks += 5000;  // a loop that polls the clock soon ends, but other threads run first
    let_others_go();
    return ticks;
}

}  // extern "C"
