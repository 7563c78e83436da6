#include "collectives/backends/oneccl/bootstrap.h"

#include "base/milliseconds.h"
#include "collectives/quiet_thread.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>

namespace dtrun::collectives::oneccl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kNamedMax = 8;
/// Other ranks wait this much longer than rank 0, so that they hear of its timeout.
constexpr milliseconds kForTheAnswer{2'000};
constexpr milliseconds kLook{500};
constexpr char kMeetAt = 'a';
constexpr char kRefused = 'r';
constexpr char kLate = 'l';

std::string rank_key(const GroupSpec& spec, std::uint32_t rank) {
    return fmt::format("{}oneccl/rank/{}", spec.prefix, rank);
}

std::string answer_key(const GroupSpec& spec) {
    return spec.prefix + "oneccl/answer";
}

/// While it lives, standard output goes to standard error: oneCCL prints a warning of a setting
/// without which it would print many more.
class OutputAside {
public:
    OutputAside() : output_(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)) {
        if (output_ >= 0) ::dup2(STDERR_FILENO, STDOUT_FILENO);
    }
    ~OutputAside() {
        if (output_ < 0) return;
        ::dup2(output_, STDOUT_FILENO);
        ::close(output_);
    }
    OutputAside(const OutputAside&) = delete;
    OutputAside& operator=(const OutputAside&) = delete;

private:
    int output_;
};

/// The error that names the ranks that have not come.
Error too_late(const GroupSpec& spec) {
    std::string missing;
    std::size_t count = 0;
    for (std::uint32_t rank = 0; rank < spec.size && count < kNamedMax; ++rank) {
        const auto came = spec.store->find(rank_key(spec, rank));
        if (!came || *came) continue;
        missing += fmt::format("{}{}", count == 0 ? "" : ", ", rank);
        ++count;
    }
    return {Errc::timed_out,
            fmt::format("not all {} ranks have come within {}: {} {} missing", spec.size,
                        in_seconds(spec.timeout), count == 1 ? "rank" : "ranks", missing)};
}

/// On rank 0: waits until all ranks have come, and checks that all can take part.
Result<void> hear_all(const GroupSpec& spec, const RankStatus& mine, Clock::time_point deadline) {
    std::vector<std::string> keys;
    for (std::uint32_t rank = 0; rank < spec.size; ++rank) keys.push_back(rank_key(spec, rank));
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    const auto all = spec.store->get(keys, std::max(left, milliseconds(0)));
    if (!all && all.error().code == Errc::timed_out) return std::unexpected(too_late(spec));
    if (!all) return fail(all.error(), "the job's store");
    for (std::uint32_t rank = 0; rank < spec.size; ++rank) {
        const auto one = RankStatus::decode((*all)[rank]);
        if (!one) return fail(one.error(), "rank {}", rank);
        if (!one->problem.empty())
            return fail(Errc::invalid_input, "rank {}: {}", rank, one->problem);
        if (one->library != mine.library)
            return fail(Errc::invalid_input,
                        "rank 0 has {}, rank {} {}: all ranks need the same version", mine.library,
                        rank, one->library);
    }
    return {};
}

/// On rank 0: opens the meeting point. \param address  set for the other ranks
Result<std::shared_ptr<Kvs>> open_meeting(OnecclRuntime& runtime, const Library& library,
                                          std::string& address) {
    const auto turn = runtime.turn();
    if (!turn) return std::unexpected(turn.error());
    std::shared_ptr<Kvs> kvs;
    auto made = guarded("create_main_kvs", [&] {
        const OutputAside aside;
        kvs = library.call.create_main_kvs(*library.attributes.kvs);
        const Address found = library.call.address_of(kvs.get());
        address.assign(found.bytes, ::strnlen(found.bytes, sizeof found.bytes));
    });
    if (!made) return std::unexpected(made.error());
    return kvs;
}

/// On rank 0: tells the others where to meet, or why not.
Result<std::shared_ptr<Kvs>> invite(OnecclRuntime& runtime, const Library& library,
                                    const GroupSpec& spec, const RankStatus& mine,
                                    Clock::time_point deadline) {
    std::string address;
    if (spec.size == 1 && !mine.problem.empty())
        return fail(Errc::invalid_input, "{}", mine.problem);
    if (spec.size == 1) return open_meeting(runtime, library, address);
    const auto heard = hear_all(spec, mine, deadline);
    auto kvs = heard ? open_meeting(runtime, library, address)
                     : Result<std::shared_ptr<Kvs>>(std::unexpected(heard.error()));
    KeyStore::Pair answer{answer_key(spec), kMeetAt + address};
    if (!kvs)
        answer.second =
            (kvs.error().code == Errc::timed_out ? kLate : kRefused) + kvs.error().message;
    const auto told = spec.store->set({&answer, 1});
    if (kvs && !told) return fail(told.error(), "the job's store");
    return kvs;
}

/// On other ranks: waits for rank 0's answer.
Result<Address> accept(const GroupSpec& spec) {
    const std::string key = answer_key(spec);
    const auto found = spec.store->get({&key, 1}, spec.timeout + kForTheAnswer);
    if (!found && found.error().code == Errc::timed_out) return std::unexpected(too_late(spec));
    if (!found) return fail(found.error(), "the job's store");
    const std::string& answer = found->front();
    Address address{};
    if (answer.empty() || answer[0] != kMeetAt || answer.size() > sizeof address.bytes) {
        const bool late = !answer.empty() && answer[0] == kLate;
        return fail(late ? Errc::timed_out : Errc::invalid_input, "{}",
                    answer.empty() ? "rank 0 has said nothing" : answer.substr(1));
    }
    answer.copy(address.bytes, answer.size() - 1, 1);
    return address;
}

/// A communicator that a thread of its own makes, since nothing ends its wait for a rank that has
/// gone in the meantime. After a timeout that thread is left behind.
struct Making {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Result<void>> ended;
    JoinedComm meeting;
};

/// \param meeting  has a Kvs on rank 0 already; other ranks make theirs from `address`
Result<void> meet(OnecclRuntime& runtime, const Library& library, JoinedComm& meeting,
                  const Address& address, int size, int rank) {
    auto turn = runtime.turn();
    if (!turn) return std::unexpected(turn.error());
    const Functions& call = library.call;
    const Attributes& attributes = library.attributes;
    return guarded("create_communicator", [&] {
        if (meeting.kvs == nullptr) meeting.kvs = call.create_kvs(address, *attributes.kvs);
        meeting.comm = call.create_communicator(size, rank, meeting.kvs, *attributes.comm);
    });
}

Result<JoinedComm> make(OnecclRuntime& runtime, const std::shared_ptr<const Library>& library,
                        const GroupSpec& spec, std::shared_ptr<Kvs> kvs, Address address,
                        Clock::time_point deadline) {
    const auto making = std::make_shared<Making>();
    const int size = static_cast<int>(spec.size);
    const int rank = static_cast<int>(spec.rank);
    quiet_thread([making, library, kvs = std::move(kvs), address, size, rank, &runtime] {
        JoinedComm meeting{kvs, {}};
        auto ended = meet(runtime, *library, meeting, address, size, rank);
        const std::lock_guard lock(making->mutex);
        making->meeting = std::move(meeting);
        making->ended = std::move(ended);
        making->changed.notify_one();
    }).detach();
    std::unique_lock lock(making->mutex);
    const auto ended = [&] { return making->ended.has_value(); };
    while (!making->changed.wait_until(lock, std::min(deadline, Clock::now() + kLook), ended)) {
        if (Clock::now() < deadline) {
            if (spec.size == 1) continue;
            // Nobody comes any more if the membership is over.
            const auto there = spec.store->find(answer_key(spec));
            if (there) continue;
            const Errc code = there.error().code;
            if (code != Errc::closed && code != Errc::cancelled) continue;
            runtime.give_up();
            return fail(there.error(), "the job's store");
        }
        runtime.give_up();
        return fail(Errc::timed_out,
                    "all {} ranks are there, but have not met within {}: can they reach each "
                    "other through {}? (CCL_LOG_LEVEL=info tells more)",
                    spec.size, in_seconds(spec.timeout), runtime.settings());
    }
    if (!*making->ended) return std::unexpected(making->ended->error());
    return std::move(making->meeting);
}

}  // namespace

Result<JoinedComm> bootstrap(OnecclRuntime& runtime, const std::shared_ptr<const Library>& library,
                             const GroupSpec& spec, const RankStatus& mine) {
    const auto deadline = Clock::now() + spec.timeout;
    const KeyStore::Pair said{rank_key(spec, spec.rank), mine.encode()};
    if (spec.size > 1)
        if (auto told = spec.store->set({&said, 1}); !told)
            return fail(told.error(), "the job's store");
    std::shared_ptr<Kvs> kvs;
    Address address{};
    if (spec.rank == 0) {
        auto made = invite(runtime, *library, spec, mine, deadline);
        if (!made) return std::unexpected(made.error());
        kvs = std::move(*made);
    } else {
        const auto found = accept(spec);
        if (!found) return std::unexpected(found.error());
        address = *found;
    }
    return make(runtime, library, spec, std::move(kvs), address, deadline);
}

}  // namespace dtrun::collectives::oneccl
