#include "collectives/host/host_group.h"

#include "base/fd.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <ctime>

namespace dtrun::collectives {
namespace {

using Clock = std::chrono::steady_clock;

/// What all slots of a host take together: they are to stay in its caches, and a host with many ranks has not
/// more memory.
constexpr std::size_t kSlotsBytes = 8UL << 20;
constexpr std::size_t kSlotBytesMax = 1UL << 20;
constexpr std::size_t kSlotBytesMin = 64UL << 10;
/// Looks at what another rank has posted, some 20 ns each, before the processor is given to others.
constexpr int kLoops = 200;
/// Turns of giving the processor to others before this rank sleeps.
constexpr int kYields = 500;
/// How long a rank sleeps until it looks whether the others are still there.
constexpr long kSleepNs = 50'000'000;

std::size_t slot_bytes_for(std::uint32_t places) {
    const std::size_t even = kSlotsBytes / 2 / places / kPageBytes * kPageBytes;
    // A slot has at least a line for each rank.
    return std::max(std::clamp(even, kSlotBytesMin, kSlotBytesMax),
                    (places * kCacheLine + kPageBytes - 1) / kPageBytes * kPageBytes);
}

std::size_t bytes_per_rank(std::size_t slot_bytes) {
    return sizeof(RankPage) + 2 * slot_bytes;
}

/// When a process was started, in ticks since the machine was; 0 if it has ended. Of its first thread, for which that is
/// the same: for a process qemu makes up what it may read of itself, with a start that nobody else sees.
std::uint64_t start_of(pid_t pid) {
    const auto stat = read_file(fmt::format("/proc/{0}/task/{0}/stat", pid));
    if (!stat) return 0;
    // "PID (NAME) STATE ..."; the name may have anything in it. The start is the twentieth field behind it.
    std::size_t at = stat->rfind(')');
    if (at == stat->npos || at + 2 >= stat->size()) return 0;
    const char state = (*stat)[at + 2];
    if (state == 'Z' || state == 'X') return 0;
    for (int field = 0; field < 20 && at != stat->npos; ++field) at = stat->find(' ', at + 1);
    if (at == stat->npos) return 0;
    std::uint64_t start = 0;
    std::from_chars(stat->data() + at + 1, stat->data() + stat->size(), start);
    return start;
}

void rest() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace

HostGroup::HostGroup(SharedMemory memory, std::uint32_t place, std::uint32_t places,
                     std::size_t slot_bytes)
    : memory_(std::move(memory)), place_(place), places_(places), slot_bytes_(slot_bytes) {}

Result<std::unique_ptr<HostGroup>> HostGroup::join(const GroupSpec& spec, Locality locality) {
    const Topology& topology = spec.topology;
    auto group =
        meet(spec, {topology.place(), topology.places(), fmt::format("host/{}", topology.host())});
    if (!group) return group;
    if (auto done = (*group)->join_levels(spec, locality); !done)
        return std::unexpected(done.error());
    (*group)->deadline_ = Clock::time_point::max();
    return group;
}

Result<std::unique_ptr<HostGroup>> HostGroup::meet(const GroupSpec& spec, const Sharers& sharers) {
    const std::size_t slot_bytes = slot_bytes_for(sharers.places);
    auto memory = SharedMemory::meet(
        spec, sharers, sizeof(HostPage) + sharers.places * bytes_per_rank(slot_bytes));
    if (!memory) return std::unexpected(memory.error());
    std::unique_ptr<HostGroup> group(
        new HostGroup(std::move(*memory), sharers.place, sharers.places, slot_bytes));
    group->decide_patience();
    group->interrupted_ = spec.interrupted;
    group->tell_who();
    // Those who have not come yet cannot be asked whether they are still there.
    group->deadline_ = Clock::now() + spec.timeout;
    if (auto met = group->barrier(); !met) return std::unexpected(met.error());
    return group;
}

HostGroup::~HostGroup() {
    if (memory_.data() == nullptr || own().pid != ::getpid())
        return;  // a forked child says nothing
    own().left = 1;
    for (std::uint32_t place = 0; place < places_; ++place) ring(page(place));
}

void HostGroup::take_over() {
    tell_who();
    in_levels([](HostGroup& level) { level.take_over(); });
}

/// Lets the others see whether this process is still there.
void HostGroup::tell_who() {
    own().started = start_of(::getpid());
    own().pid = ::getpid();
}

/// Ranks that have a processor each look in a loop; where they have not, whoever waits would take it from the
/// one that is waited for.
void HostGroup::decide_patience() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    // A rank that is bound to its own processors shares them with nobody, as far as one can see from here.
    const auto processors = static_cast<std::uint32_t>(CPU_COUNT(&allowed));
    const auto all = static_cast<std::uint32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
    const bool bound = processors < all && std::uint64_t{processors} * places_ <= all;
    loops_ = bound || processors >= places_ ? kLoops : 1;
}

RankPage& HostGroup::page(std::uint32_t place) const {
    return *reinterpret_cast<RankPage*>(memory_.data() + sizeof(HostPage) +
                                        place * bytes_per_rank(slot_bytes_));
}

std::byte* HostGroup::slot_of(std::uint32_t place, std::uint64_t step) const {
    return reinterpret_cast<std::byte*>(&page(place)) + sizeof(RankPage) + (step & 1) * slot_bytes_;
}

// ---- steps ----------------------------------------------------------------------------------

Result<void> HostGroup::claim() {
    ++step_;
    const std::uint64_t needed = step_ - 2;
    if (known_ >= needed) return {};
    for (std::uint32_t place = 0; place < places_; ++place) {
        if (place == place_) continue;
        const std::atomic<std::uint64_t>& finished = page(place).finished;
        auto waited =
            wait(place, [&] { return finished.load(std::memory_order_acquire) >= needed; });
        if (!waited) return waited;
    }
    known_ = needed;
    return {};
}

void HostGroup::post() {
    // Sequentially consistent, so that a rank that goes to sleep now is seen.
    own().posted[step_ & 1].word.exchange(word());
    tell(own());
}

void HostGroup::finish() {
    own().finished.exchange(step_);
    tell(own());
}

Result<void> HostGroup::await(std::uint32_t place) {
    const std::atomic<std::uint64_t>& posted = page(place).posted[step_ & 1].word;
    const std::uint64_t expected = word();
    if (posted.load(std::memory_order_acquire) == expected) return {};
    return wait(place, [&] { return posted.load(std::memory_order_acquire) == expected; });
}

Result<void> HostGroup::await_others() {
    for (std::uint32_t place = 0; place < places_; ++place)
        if (place != place_)
            if (auto come = await(place); !come) return come;
    return {};
}

// ---- waiting --------------------------------------------------------------------------------

template <class Ready>
Result<void> HostGroup::wait(std::uint32_t place, const Ready& ready) {
    for (int loop = 0; loop < loops_; ++loop) {
        if (ready()) return {};
        rest();
    }
    for (int turn = 0; turn < kYields; ++turn) {
        if (ready()) return {};
        ::sched_yield();
    }
    RankPage& whose = page(place);
    for (;;) {
        whose.sleepers.fetch_add(1);
        std::atomic_thread_fence(
            std::memory_order_seq_cst);  // who posts from now on sees the sleeper
        const std::uint32_t heard = whose.bell.load();
        const bool sleeps = !ready() && host().ended.load() == 0 && whose.left.load() == 0;
        if (sleeps) {
            const timespec span{0, kSleepNs};
            ::syscall(SYS_futex, &whose.bell, FUTEX_WAIT, heard, &span, nullptr, 0);
        }
        whose.sleepers.fetch_sub(1);
        if (ready()) return {};
        const auto trouble = look_around(place);
        const bool gone = has_gone(place);
        if (ready()) return {};  // it may have said its last word before it left
        if (trouble) return std::unexpected(*trouble);
        if (gone) return std::unexpected(give_up_for(place));
    }
}

/// Why it makes no sense to wait any longer, whoever is waited for.
std::optional<Error> HostGroup::look_around(std::uint32_t place) {
    if (aborted_) return Error{Errc::cancelled, "aborted"};
    if (interrupted_ && interrupted_()) return Error{Errc::cancelled, "interrupted"};
    const std::uint32_t ended = host().ended.load();
    if (ended != 0) {
        lost_ = ended - 1;
        return Error{Errc::closed, "it has given up"};
    }
    if (Clock::now() > deadline_)
        return Error{Errc::timed_out, fmt::format("place {} of this host has not come", place)};
    return std::nullopt;
}

/// Whether the rank of a place will say nothing any more. Before it has come it cannot be asked.
bool HostGroup::has_gone(std::uint32_t place) const {
    const RankPage& whose = page(place);
    if (whose.left.load() != 0) return true;
    const pid_t pid = whose.pid.load();
    return pid != 0 && start_of(pid) != whose.started.load();
}

Error HostGroup::give_up_for(std::uint32_t place) {
    std::uint32_t none = 0;
    host().ended.compare_exchange_strong(none, place + 1);
    lost_ = none == 0 ? place : none - 1;
    for (std::uint32_t other = 0; other < places_; ++other) ring(page(other));
    return {Errc::closed, "it has gone away"};
}

/// Wakes up whoever sleeps on what a rank says.
void HostGroup::tell(RankPage& page) {
    if (page.sleepers.load(std::memory_order_seq_cst) != 0) ring(page);
}

void HostGroup::ring(RankPage& page) noexcept {
    page.bell.fetch_add(1);
    ::syscall(SYS_futex, &page.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void HostGroup::end_for_all() noexcept {
    aborted_ = true;
    std::uint32_t none = 0;
    host().ended.compare_exchange_strong(none, place_ + 1);
    for (std::uint32_t place = 0; place < places_; ++place) ring(page(place));
    in_levels([](HostGroup& level) { level.end_for_all(); });
}

}  // namespace dtrun::collectives
