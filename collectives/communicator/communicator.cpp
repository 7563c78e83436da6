#include "collectives/communicator/communicator.h"

#include "collectives/backends/backends.h"
#include "collectives/communicator/host_address.h"
#include "collectives/communicator/self_group.h"
#include "collectives/user_text.h"
#include "worker/include/dtrun.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>

namespace dtrun::collectives {
namespace {

std::string facts_text(const std::string& backend, const GroupFacts& facts) {
    std::string text = fmt::format("backend: {}\n", backend);
    if (!facts.version.empty()) text += fmt::format("version: {}\n", facts.version);
    text += fmt::format("transport: {}\n", facts.transport);
    for (const auto& [name, value] : facts.details) text += fmt::format("{}: {}\n", name, value);
    return text;
}

/// Whether the job was started with --encrypt.
bool wants_encryption() {
    const char* const value = std::getenv("DTRUN_ENCRYPT");
    return value != nullptr && std::string_view(value) == "1";
}

/// What this rank tells the others of itself.
Member introduce(dtrun_worker* worker, const CommunicatorOptions& options) {
    Member own;
    own.host = dtrun_host_name(worker);
    own.address = own_address(options.interfaces);
    own.wish = options.backend;
    own.device = options.device;
    own.fabric =
        has_infiniband() && !wants_encryption();  // MPI would be taken, which does not encrypt
    if (options.backend != "auto") {
        own.backends.emplace_back(options.backend, probe_backend(options.backend, Advice::given));
    } else if (dtrun_world_size(worker) > 1 || options.device) {
        const bool lasting = dtrun_can_rejoin(worker) != 0;
        for (const std::string& backend :
             backend_order(options.device, lasting, wants_encryption()))
            own.backends.emplace_back(backend, probe_backend(backend, Advice::none));
    }
    return own;
}

std::string prefix_of_all(dtrun_worker* worker) {
    return fmt::format("dtrun/comm/{}/{}", dtrun_job(worker), dtrun_generation(worker));
}

int count_made(dtrun_worker* worker, std::int64_t change, std::int64_t* number) {
    const std::string key = fmt::format("{}/made/{}", prefix_of_all(worker), dtrun_rank(worker));
    return dtrun_add(worker, {key.data(), key.size()}, change, number);
}

/// The prefix of the store keys of this rank's next communicator. Ranks make communicators in the
/// same order, so each rank's own count is the same on all. Job and generation are in the prefix
/// because a store may outlive both.
Result<std::string> next_prefix(dtrun_worker* worker) {
    std::int64_t number = 0;
    const int code = count_made(worker, 1, &number);
    if (code == DTRUN_NO_LAUNCHER && dtrun_world_size(worker) == 1)
        return prefix_of_all(worker) + "/alone";
    if (code != DTRUN_OK) return worker_error(code);
    return fmt::format("{}/{}", prefix_of_all(worker), number);
}

/// What all ranks say of themselves, by rank.
Result<std::vector<Member>> meet(dtrun_worker* worker, const std::string& name, const Member& own,
                                 std::chrono::milliseconds timeout) {
    const std::string bytes = encode(own);
    dtrun_list list{};
    const int code = dtrun_fence(worker, {name.data(), name.size()}, {bytes.data(), bytes.size()},
                                 timeout.count(), &list);
    if (code == DTRUN_FORKED) {
        // Undoes the forked child's count, so that the parent's next number agrees with other
        // ranks'.
        auto error = worker_error(code);
        std::int64_t number = 0;
        count_made(worker, -1, &number);
        return error;
    }
    if (code == DTRUN_TIMED_OUT)
        return fail(Errc::timed_out,
                    "not all ranks have come to make a communicator within {} s (timeout_ms): {}",
                    std::chrono::duration<double>(timeout).count(), dtrun_error_text());
    if (code == DTRUN_CANCELLED)  // another rank has given up, or has ended
        return fail(Errc::closed, "{}", dtrun_error_text());
    if (code != DTRUN_OK) return worker_error(code);
    std::vector<Member> members;
    Result<void> done;
    for (std::size_t rank = 0; rank < list.count && done; ++rank) {
        auto member =
            decode_member({static_cast<const char*>(list.items[rank].data), list.items[rank].size});
        if (member)
            members.push_back(std::move(*member));
        else
            done = fail(member.error(), "rank {}", rank);
    }
    dtrun_free(list.items);
    if (!done) return std::unexpected(done.error());
    return members;
}

std::string member_key(const std::string& prefix, std::size_t place) {
    return fmt::format("{}/member/{}", prefix, place);
}

/// The place of a rank among those that make a communicator. Errc: invalid_input
Result<std::uint32_t> place_among(const NamedRanks& named, std::uint32_t rank,
                                  std::uint32_t world_size) {
    std::vector<std::uint32_t> sorted = named.ranks;
    std::ranges::sort(sorted);
    if (sorted.back() >= world_size || std::ranges::adjacent_find(sorted) != sorted.end())
        return fail(Errc::invalid_input,
                    "the ranks of a communicator are different ones of 0 to {}, not {}",
                    world_size - 1, fmt::join(named.ranks, ", "));
    const auto found = std::ranges::find(named.ranks, rank);
    if (found == named.ranks.end())
        return fail(Errc::invalid_input, "rank {} is not among the ranks {} of the communicator",
                    rank, fmt::join(named.ranks, ", "));
    return static_cast<std::uint32_t>(found - named.ranks.begin());
}

/// What some ranks say of themselves, by their place among them. A fence is for all ranks of a job, so that these
/// read each other's key.
Result<std::vector<Member>> meet(WorkerStore& store, const NamedRanks& named, std::uint32_t place,
                                 const std::string& prefix, const Member& own,
                                 std::chrono::milliseconds timeout) {
    if (named.ranks.size() == 1) return std::vector{own};
    const KeyStore::Pair card{member_key(prefix, place), encode(own)};
    if (auto set = store.set({&card, 1}); !set) return std::unexpected(set.error());
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < named.ranks.size(); ++i) keys.push_back(member_key(prefix, i));
    const auto cards = store.get(keys, timeout);
    if (!cards && cards.error().code == Errc::timed_out) {
        std::vector<std::uint32_t> missing;
        for (std::size_t i = 0; i < keys.size(); ++i)
            if (const auto there = store.find(keys[i]); there && !*there)
                missing.push_back(named.ranks[i]);
        return fail(Errc::timed_out,
                    "not all ranks have come to make the communicator \"{}\" within {} s "
                    "(timeout_ms); not there: {}",
                    named.name, std::chrono::duration<double>(timeout).count(),
                    fmt::join(missing, ", "));
    }
    if (!cards) return std::unexpected(cards.error());
    std::vector<Member> members;
    for (std::size_t i = 0; i < cards->size(); ++i) {
        auto member = decode_member((*cards)[i]);
        if (!member) return fail(member.error(), "rank {}", named.ranks[i]);
        members.push_back(std::move(*member));
    }
    return members;
}

std::string backend_wish(std::string wish) {
    const char* const variable = std::getenv("DTRUN_BACKEND");
    if ((wish.empty() || wish == "auto") && variable != nullptr) wish = variable;
    return wish.empty() ? "auto" : wish;
}

/// As the variables of Horovod say, which dtrun.torch reads, too; 0: never.
std::chrono::milliseconds stall_limit_from_environment() {
    constexpr double kDefault = 60, kYear = 365.0 * 24 * 3'600;
    const auto number = [](const char* variable) {
        const char* const text = std::getenv(variable);
        return text == nullptr ? 0 : std::strtod(text, nullptr);
    };
    if (number("HOROVOD_STALL_CHECK_DISABLE") > 0) return {};
    const double given = number("HOROVOD_STALL_CHECK_TIME_SECONDS");
    const std::chrono::duration<double> limit(given > 0 ? std::min(given, kYear) : kDefault);
    return std::chrono::ceil<std::chrono::milliseconds>(limit);
}

/// The order in which backends are tried, the same on all ranks: that of rank 0, as not every rank need have
/// said that it can rejoin.
std::vector<std::string> common_order(const Member& first, bool device) {
    if (first.wish != "auto") return backend_order(device, false);
    std::vector<std::string> order;
    for (const auto& [name, availability] : first.backends) order.push_back(name);
    return order;
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::create(dtrun_worker* worker,
                                                           CommunicatorOptions options,
                                                           NamedRanks named) {
    auto shared = SharedWorker::of(worker);
    if (!shared) return std::unexpected(shared.error());
    options.backend = backend_wish(std::move(options.backend));
    if (options.interfaces.empty()) options.interfaces = interfaces_from_environment();
    Plan plan;
    plan.rank = dtrun_rank(shared->get());
    const bool of_all = named.ranks.empty();
    if (!of_all) {
        const auto place = place_among(named, plan.rank, dtrun_world_size(shared->get()));
        if (!place) return std::unexpected(place.error());
        plan.rank = *place;
        plan.prefix = fmt::format("{}/named/{}", prefix_of_all(shared->get()), named.name);
    } else {
        auto prefix = next_prefix(shared->get());
        if (!prefix) return std::unexpected(prefix.error());
        plan.prefix = std::move(*prefix);
    }
    const Member own = introduce(shared->get(), options);
    WorkerStore store(shared->get());
    const auto members = of_all ? meet(shared->get(), plan.prefix, own, options.timeout)
                                : meet(store, named, plan.rank, plan.prefix, own, options.timeout);
    if (!members) return std::unexpected(members.error());
    for (const Member& member : *members) {
        const auto place = static_cast<std::uint32_t>(plan.ranks.size());
        plan.ranks.push_back({of_all ? place : named.ranks[place], member.host, member.address});
    }
    if (members->size() == 1 && options.backend == "auto" && !options.device) {
        plan.choice = {"none", "one rank needs none"};
    } else {
        auto choice = choose_backend(*members, common_order(members->front(), options.device));
        if (!choice && choice.error().code == Errc::not_found && wants_encryption() &&
            options.backend == "auto" && !options.device)
            return fail(choice.error(), "with --encrypt none but dtrun's own backend is taken");
        if (!choice) return std::unexpected(choice.error());
        plan.choice = std::move(*choice);
    }
    plan.options = std::move(options);
    auto made = connect(std::move(*shared), std::move(plan), nullptr);
    if (made && !of_all) (*made)->store_.own({member_key((*made)->prefix_, (*made)->rank_)});
    return made;
}

Result<std::unique_ptr<Communicator>> Communicator::connect(
    SharedWorker worker, Plan plan, std::shared_ptr<const std::atomic<bool>> given_up) {
    const Rank& own = plan.ranks[plan.rank];
    GroupSpec spec;
    spec.rank = plan.rank;
    spec.size = static_cast<std::uint32_t>(plan.ranks.size());
    for (const Rank& rank : plan.ranks) spec.members.push_back(rank.world);
    std::map<std::string_view, std::uint32_t> numbers;
    std::vector<std::uint32_t> hosts;
    for (const Rank& rank : plan.ranks)
        hosts.push_back(
            numbers.emplace(rank.host, static_cast<std::uint32_t>(numbers.size())).first->second);
    spec.topology = Topology(plan.rank, std::move(hosts));
    spec.prefix = plan.prefix;
    spec.gpu = plan.options.gpu;
    spec.generation = dtrun_generation(worker.get());
    spec.timeout = plan.options.timeout;
    spec.interrupted = plan.options.interrupted;
    if (spec.topology.one_host()) {
        spec.address = "127.0.0.1";
    } else {
        spec.encrypt = wants_encryption();
        spec.interfaces = plan.options.interfaces;
        spec.address = own.address;
    }
    spec.local_rank = dtrun_local_rank(worker.get());
    if (spec.local_rank == DTRUN_UNKNOWN) spec.local_rank = spec.topology.place();
    auto communicator =
        std::unique_ptr<Communicator>(new Communicator(std::move(worker), std::move(plan)));
    spec.store = &communicator->store_;
    communicator->store_.cancel_by(std::move(given_up));
    if (auto joined = communicator->join(spec); !joined) return std::unexpected(joined.error());
    communicator->store_.cancel_by(nullptr);
    communicator->store_.joined();
    return communicator;
}

Communicator::~Communicator() {
    const auto turn = work_.wait_for_turn();  // behind everything that was started
    const bool has_joined = watchdog_ != nullptr;
    loss_hook_.reset();
    watchdog_.reset();  // which may be about to say something in the store, and to give up
    // After a failure others still read what this rank has left there.
    if (has_joined && !broken_ && !*ended_) store_.erase_own();
}

bool Communicator::is_interruptible() const {
    return choice_.backend == kOwnBackend;
}

Communicator::Communicator(SharedWorker worker, Plan plan)
    : worker_(std::move(worker)),
      store_(worker_.get()),
      options_(std::move(plan.options)),
      prefix_(std::move(plan.prefix)),
      choice_(std::move(plan.choice)),
      ranks_(std::move(plan.ranks)),
      rank_(plan.rank),
      apart_(Topology::apart(rank_, size())),
      compresses_(compresses_from_environment()) {}

Communicator::Compresses Communicator::compresses_from_environment() {
    const char* const variable = std::getenv("DTRUN_COMPRESS");
    const std::string_view wish = variable != nullptr ? variable : "";
    if (wish == "always") return Compresses::always;
    return wish == "hosts" ? Compresses::what_leaves : Compresses::what_gains;
}

Result<void> Communicator::join(const GroupSpec& spec) {
    if (choice_.backend == "none") {
        group_ = std::make_unique<SelfGroup>();
    } else {
        const auto backend = load_backend(choice_.backend);
        if (!backend) return std::unexpected(backend.error());
        auto group = backend->connect(spec);
        if (!group) return fail(group.error(), "{}", choice_.backend);
        group_ = std::move(*group);
        if (!group_->on_device()) {
            auto arranged = find_host_topology(spec, *group_);
            if (!arranged) return std::unexpected(arranged.error());
            host_topology_ = std::move(*arranged);
            if (auto done = group_->set_topology(host_topology_); !done) return done;
        }
    }
    facts_ = facts_text(choice_.backend, group_->facts());
    Watchdog::Options watch;
    watch.store = &store_;
    watch.prefix = prefix_;
    watch.rank = rank_;
    watch.size = size();
    for (const Rank& rank : ranks_) watch.ranks.push_back(rank.world);
    watch.timeout = options_.operation_timeout;
    watch.stall.limit = options_.stall_limit.value_or(stall_limit_from_environment());
    watch.stall.tell_user = [](const std::string& line) { tell_user_who_waits({&line, 1}); };
    watch.stall.report = [this](const auto& what, auto waited) { tell_stall(what, waited); };
    watch.name = [this](std::uint32_t rank) {
        return fmt::format("rank {} on {}", ranks_[rank].world, ranks_[rank].host);
    };
    watch.abort = [this] {
        *ended_ = true;
        group_->abort();
    };
    // Ranks have other numbers in other generations.
    watch.whereabouts = [this, all = prefix_of_all(worker_.get())](std::uint32_t rank) {
        return fmt::format("{}/waits/{}", all, ranks_[rank].world);
    };
    watchdog_ = std::make_unique<Watchdog>(std::move(watch));
    store_.own(watchdog_->keys());
    if (size() > 1)
        loss_hook_.emplace(worker_.get(), [watch = watchdog_.get()] { watch->membership_ended(); });
    return {};
}

void Communicator::set_operation_timeout(std::chrono::milliseconds timeout) {
    watchdog_->set_timeout(timeout);
}

void Communicator::tell_stall(const std::string& what,
                              std::optional<std::chrono::milliseconds> waited) {
    constexpr std::size_t kBytesMax = 1'024;  // of dtrun_stall()
    const dtrun_view text{what.data(), std::min(what.size(), kBytesMax)};
    // Nobody has to know.
    static_cast<void>(waited ? dtrun_stall(worker_.get(), text, waited->count())
                             : dtrun_stall_end(worker_.get(), text));
}

// ---- splitting ------------------------------------------------------------------------------

Result<std::unique_ptr<Communicator>> Communicator::split(std::int32_t colour, std::int32_t key) {
    struct Wish {
        std::int32_t colour;
        std::int32_t key;
    };
    std::vector<Wish> wishes(size());
    wishes[rank_] = {colour, key};
    const std::string prefix = fmt::format("{}/split/{}", prefix_, splits_++);
    Result<std::unique_ptr<Communicator>> part;
    // Connecting waits for other ranks, too, so it also runs under the watchdog.
    const auto done = perform({.operation = "split"}, [&](std::uint64_t) -> Result<void> {
        auto exchanged = group_->allgather_on_host(&wishes[rank_], wishes.data(), sizeof(Wish));
        if (!exchanged || colour < 0) return exchanged;
        std::vector<std::uint32_t> chosen;
        for (std::uint32_t rank = 0; rank < size(); ++rank)
            if (wishes[rank].colour == colour) chosen.push_back(rank);
        std::ranges::stable_sort(chosen, {}, [&](std::uint32_t rank) { return wishes[rank].key; });
        part = connect_part(chosen, fmt::format("{}/{}/of", prefix, colour));
        if (!part && part.error().code == Errc::cancelled) return std::unexpected(part.error());
        return {};
    });
    if (!done) return std::unexpected(done.error());
    return part;
}

Result<std::unique_ptr<Communicator>> Communicator::connect_part(
    std::span<const std::uint32_t> chosen, std::string prefix) {
    auto worker = SharedWorker::of(worker_.get());
    if (!worker) return std::unexpected(worker.error());
    Plan plan{options_,
              std::move(prefix),
              {choice_.backend, "that of the communicator it was split from"},
              {},
              0};
    plan.options.operation_timeout = watchdog_->timeout();
    for (const std::uint32_t rank : chosen) {
        if (rank == rank_) plan.rank = static_cast<std::uint32_t>(plan.ranks.size());
        plan.ranks.push_back(ranks_[rank]);
    }
    return connect(std::move(*worker), std::move(plan), ended_);
}

Result<std::unique_ptr<Communicator>> Communicator::split_by_host() {
    const auto first = std::ranges::find(ranks_, ranks_[rank_].host, &Rank::host);
    return split(static_cast<std::int32_t>(first - ranks_.begin()), 0);
}

}  // namespace dtrun::collectives
