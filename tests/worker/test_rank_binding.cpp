#include "tests/support/catch.h"
#include "tests/support/skip.h"
#include "worker/agent/rank_binding.h"
#include "worker/binding/cpu_list.h"

#include <sched.h>
#include <unistd.h>
#include <algorithm>
#include <future>
#include <thread>

namespace dtrun {

using agent::RankBinding;
using binding::CpuList;
namespace {

/// Gives this process back the processors that it had.
class Affinity {
public:
    Affinity() { ::sched_getaffinity(0, sizeof before_, &before_); }
    ~Affinity() { ::sched_setaffinity(0, sizeof before_, &before_); }

private:
    cpu_set_t before_{};
};

RankBinding::Options shares(std::string& told) {
    RankBinding::Options options;
    options.request.to = BindTo::share;
    options.request.ranks = {1};
    options.variable = [](std::string_view) { return std::nullopt; };
    options.tell = [&told](const std::string& text) { told += text + "\n"; };
    return options;
}

CpuList offered(RankBinding& binding, std::uint32_t places, std::uint8_t place) {
    Assign world;
    world.places = places;
    RankSlot slot;
    slot.place = SlotIndex{place};
    ranks::RankOffer offer;
    REQUIRE(binding.offer(world, slot, offer).has_value());
    return offer.cpus;
}

}  // namespace

TEST_CASE(
    "a host that gets a second slot gives it half of its processors, which the first rank gives up",
    "[worker][binding]") {
    const auto all = binding::cpus_of(::getpid());
    REQUIRE(all.has_value());
    if (all->size() < 2) return skip_case("one processor cannot be shared out");
    const Affinity restored;
    std::string told;
    RankBinding binding(shares(told));
    contracts::ContractFacts facts;
    REQUIRE(binding.open(facts).has_value());
    CHECK(offered(binding, 1, 0) == *all);

    // This process is the first rank. A thread of it has chosen a processor by itself.
    const unsigned own = all->back();
    std::promise<pid_t> pinned;
    std::promise<void> done;
    std::thread thread([&] {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(own, &one);
        ::sched_setaffinity(0, sizeof one, &one);
        pinned.set_value(::gettid());
        done.get_future().wait();
    });
    const pid_t pinned_thread = pinned.get_future().get();
    RankPid first;
    first.pid = ::getpid();
    binding.started(first);

    const CpuList second = offered(binding, 2, 1);
    CHECK(second.size() == all->size() / 2);
    const auto kept = binding::cpus_of(::getpid());
    REQUIRE(kept.has_value());
    CHECK(*kept == offered(binding, 2, 0));
    for (const unsigned cpu : second) CHECK(std::ranges::find(*kept, cpu) == kept->end());
    CHECK(binding::cpus_of(pinned_thread) == CpuList{own});
    done.set_value();
    thread.join();
    CHECK(told.empty());
}

}  // namespace dtrun
