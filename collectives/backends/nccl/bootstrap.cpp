#include "collectives/backends/nccl/bootstrap.h"

#include "base/interfaces.h"
#include "base/milliseconds.h"
#include "collectives/quiet_thread.h"

#include <unistd.h>
#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

namespace dtrun::collectives::nccl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLookForFailures{500};
constexpr std::size_t kNamedMax = 3;

std::string place_key(const std::string& prefix, std::uint32_t rank) {
    return fmt::format("{}nccl-rank/{}", prefix, rank);
}

std::string failed_key(const std::string& prefix) {
    return prefix + "nccl-failed";
}

/// Making one communicator.
class Bootstrap {
public:
    Bootstrap(const NcclLibrary& library, const GroupSpec& spec, const Settings& settings)
        : library_(library),
          spec_(spec),
          settings_(settings),
          deadline_(Clock::now() + spec.timeout),
          next_look_(Clock::now() + kLookForFailures) {}

    Result<Communicators> run(int device);

private:
    Result<void> make(Communicators& made);
    Result<UniqueId> make_id() const;
    Result<std::vector<UniqueId>> share_ids();
    Result<void> publish();
    Result<std::vector<UniqueId>> fetch_ids();
    Result<void> init(Communicators& made, std::vector<UniqueId>& ids);
    Result<void> split(Communicators& made);
    Result<void> settle(NcclComm* comm, NcclResult result, const char* what);
    Result<void> look_for_failures();
    Error explain(NcclComm* comm, NcclResult result, const char* what) const;
    Result<std::vector<std::string>> all_places() const;
    std::string sharing_one_gpu() const;
    Error too_late(const char* what) const;
    milliseconds time_left() const;
    std::string id_key(std::uint32_t number) const {
        return fmt::format("{}nccl-id/{}", spec_.prefix, number);
    }
    const NcclLibrary& library_;
    const GroupSpec& spec_;
    const Settings& settings_;
    const Clock::time_point deadline_;
    Clock::time_point next_look_;
    std::string place_;  ///< host and GPU of this rank
};

Result<Communicators> Bootstrap::run(int device) {
    place_ = place_of(library_, device);
    Communicators made;
    const auto ok = make(made);
    if (ok) return made;
    // First the reason: to the others, which find it then, an abort looks like a lost peer.
    report_failure(spec_, ok.error());
    abort_all(library_, made, settings_.abort_within);
    return std::unexpected(ok.error());
}

Result<void> Bootstrap::make(Communicators& made) {
    auto ids = share_ids();
    if (!ids) return std::unexpected(ids.error());
    if (auto ok = init(made, *ids); !ok) return ok;
    if (settings_.blocking_operations && library_.nccl.comm_split != nullptr) return split(made);
    return {};
}

Result<UniqueId> Bootstrap::make_id() const {
    UniqueId id{};
    if (const NcclResult made = library_.nccl.get_unique_id(&id); made != NcclResult::success)
        return std::unexpected(explain(nullptr, made, "ncclGetUniqueId"));
    return id;
}

/// One rank may have no store: nobody else needs its id.
Result<std::vector<UniqueId>> Bootstrap::share_ids() {
    if (spec_.size == 1) {
        const auto id = make_id();
        if (!id) return std::unexpected(id.error());
        return std::vector<UniqueId>{*id};
    }
    if (auto ok = publish(); !ok) return std::unexpected(ok.error());
    return fetch_ids();
}

/// Publishes where this rank is, and a unique id if it makes one.
Result<void> Bootstrap::publish() {
    std::vector<KeyStore::Pair> pairs{{place_key(spec_.prefix, spec_.rank), place_}};

    const std::uint32_t ids =
        ids_for(spec_.size, settings_, library_.nccl.comm_init_rank_scalable != nullptr);
    if (const auto number = id_made_by(spec_.rank, spec_.size, ids)) {
        const auto id = make_id();
        if (!id) return std::unexpected(id.error());
        pairs.emplace_back(id_key(*number), encode_id(*id, library_.version));
    }
    if (auto ok = spec_.store->set(pairs); !ok) return fail(ok.error(), "the job's store");
    return {};
}

Result<std::vector<UniqueId>> Bootstrap::fetch_ids() {
    std::vector<std::string> keys;
    const std::uint32_t count =
        ids_for(spec_.size, settings_, library_.nccl.comm_init_rank_scalable != nullptr);
    for (std::uint32_t i = 0; i < count; ++i) keys.push_back(id_key(i));
    std::vector<std::string> found;
    while (true) {
        const milliseconds wait = std::min(time_left(), 2 * kLookForFailures);
        auto values = spec_.store->get(keys, wait);
        if (values) {
            found = std::move(*values);
            break;
        }
        if (values.error().code != Errc::timed_out) return fail(values.error(), "the job's store");
        if (auto ok = look_for_failures(); !ok) return std::unexpected(ok.error());
        if (time_left() == milliseconds(0))
            return std::unexpected(too_late("waiting for the unique id"));
    }
    std::vector<UniqueId> ids;
    for (const std::string& text : found) {
        auto id = decode_id(text, library_);
        if (!id) return std::unexpected(id.error());
        ids.push_back(*id);
    }
    return ids;
}

Result<void> Bootstrap::init(Communicators& made, std::vector<UniqueId>& ids) {
    NcclConfig config;
    config.blocking = 0;
    config.split_share = 1;  // of parent and `work`, which are aborted together
    const int size = static_cast<int>(spec_.size);
    const int rank = static_cast<int>(spec_.rank);
    const NcclResult begun =
        ids.size() == 1
            ? library_.nccl.comm_init_rank_config(&made.work, size, ids.front(), rank, &config)
            : library_.nccl.comm_init_rank_scalable(
                  &made.work, size, rank, static_cast<int>(ids.size()), ids.data(), &config);
    return settle(made.work, begun, "ncclCommInitRankConfig");
}

/// Splits off a blocking communicator, which needs no thread for each operation. It shares its
/// resources with the first one, which can be aborted when an operation does not return.
Result<void> Bootstrap::split(Communicators& made) {
    NcclConfig config;
    config.blocking = 1;
    made.parent = std::exchange(made.work, nullptr);
    made.splitting = std::make_shared<NcclComm*>(nullptr);
    const NcclResult begun = library_.nccl.comm_split(made.parent, 0, static_cast<int>(spec_.rank),
                                                      made.splitting.get(), &config);
    if (auto ok = settle(made.parent, begun, "ncclCommSplit"); !ok) return ok;
    made.work = *std::exchange(made.splitting, nullptr);
    if (made.work == nullptr) return fail(Errc::internal, "ncclCommSplit has made nothing");
    return {};
}

/// Waits until a communicator's asynchronous call has ended. Only the communicator knows when that is:
/// ncclCommSplit() returns `success` although its work is under way.
Result<void> Bootstrap::settle(NcclComm* comm, NcclResult result, const char* what) {
    std::chrono::microseconds pause(100);
    while (!is_error(result)) {
        const NcclResult asked = library_.nccl.comm_get_async_error(comm, &result);
        if (asked != NcclResult::success) result = asked;
        if (result != NcclResult::in_progress) break;
        if (time_left() == milliseconds(0)) return std::unexpected(too_late(what));
        if (auto ok = look_for_failures(); !ok) return ok;
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(5'000));
    }
    if (result == NcclResult::success) return {};
    next_look_ = Clock::now();  // another rank's failure may be the reason, and says more
    if (auto ok = look_for_failures(); !ok) return ok;
    return std::unexpected(explain(comm, result, what));
}

Result<void> Bootstrap::look_for_failures() {
    if (Clock::now() < next_look_ || spec_.size == 1) return {};
    next_look_ = Clock::now() + kLookForFailures;
    const auto failed = spec_.store->find(failed_key(spec_.prefix));
    if (!failed && (failed.error().code == Errc::cancelled || failed.error().code == Errc::closed))
        return fail(failed.error(), "the job's store");
    if (failed && *failed) return fail(Errc::closed, "{}", **failed);
    return {};
}

Error Bootstrap::explain(NcclComm* comm, NcclResult result, const char* what) const {
    std::string text = library_.nccl_error(result, comm);
    if (result == NcclResult::invalid_usage)
        if (const std::string more = sharing_one_gpu(); !more.empty())
            return {Errc::invalid_input, more};
    const Errc code = result == NcclResult::remote_error ? Errc::closed : Errc::internal;
    return {code, fmt::format("{}: {}", what, text)};
}

/// The places of all ranks, if all have come.
Result<std::vector<std::string>> Bootstrap::all_places() const {
    if (spec_.size == 1) return std::vector<std::string>{place_};
    std::vector<std::uint32_t> all(spec_.size);
    std::iota(all.begin(), all.end(), 0u);
    return places(*spec_.store, spec_.prefix, all, kLookForFailures);
}

/// NCCL refuses two ranks on one GPU, and does not name the other one in all versions.
std::string Bootstrap::sharing_one_gpu() const {
    const auto all = all_places();
    if (!all) return {};
    std::string ranks;
    for (std::uint32_t rank = 0; rank < spec_.size; ++rank)
        if ((*all)[rank] == place_) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
    if (ranks.find(',') == std::string::npos) return {};
    const auto space = place_.find(' ');
    return fmt::format(
        "ranks {} of {} are on one GPU ({}), and NCCL needs one for each: start as many ranks on a "
        "host as it has GPUs (--slots), or let each see another one (CUDA_VISIBLE_DEVICES)",
        ranks, place_.substr(0, space), place_.substr(space + 1));
}

Error Bootstrap::too_late(const char* what) const {
    const std::string time = in_seconds(spec_.timeout);
    std::string missing;
    std::size_t count = 0;
    const bool all = all_places().has_value();
    for (std::uint32_t rank = 0; !all && rank < spec_.size && count < kNamedMax; ++rank) {
        const auto place = spec_.store->find(place_key(spec_.prefix, rank));
        if (!place || *place) continue;
        missing += fmt::format("{}{}", count == 0 ? "" : ", ", rank);
        ++count;
    }
    if (count > 0)
        return {
            Errc::timed_out,
            fmt::format("not all {} ranks have come within {}: {} {} {} missing", spec_.size, time,
                        count == 1 ? "rank" : "ranks", missing, count == 1 ? "is" : "are")};
    return {Errc::timed_out,
            fmt::format("all {} ranks are there, but {} has not ended within {}: can they reach "
                        "each other through the interfaces of NCCL_SOCKET_IFNAME? (NCCL_DEBUG=INFO "
                        "tells more)",
                        spec_.size, what, time)};
}

milliseconds Bootstrap::time_left() const {
    const auto left = std::chrono::ceil<milliseconds>(deadline_ - Clock::now());
    return std::max(left, milliseconds(0));
}

}  // namespace

std::uint32_t ids_for(std::uint32_t size, const Settings& settings, bool scalable) {
    if (!scalable) return 1;
    return std::max<std::uint32_t>(1, (size + settings.ranks_per_id - 1) / settings.ranks_per_id);
}

std::optional<std::uint32_t> id_made_by(std::uint32_t rank, std::uint32_t size, std::uint32_t ids) {
    const std::uint32_t share = size / ids;
    const std::uint32_t larger = size % ids;  // shares that have one rank more
    const std::uint32_t in_larger = larger * (share + 1);
    if (rank < in_larger)
        return rank % (share + 1) == 0 ? std::optional(rank / (share + 1)) : std::nullopt;
    const std::uint32_t behind = rank - in_larger;
    return behind % share == 0 ? std::optional(larger + behind / share) : std::nullopt;
}

std::string place_of(const NcclLibrary& library, int device) {
    char bus_id[32] = "";
    library.gpu.device_get_pci_bus_id(bus_id, sizeof bus_id, device);
    return fmt::format("{} {}", host_name(), bus_id);
}

Result<std::vector<std::string>> places(KeyStore& store, const std::string& prefix,
                                        std::span<const std::uint32_t> ranks,
                                        milliseconds timeout) {
    std::vector<std::string> keys;
    for (const std::uint32_t rank : ranks) keys.push_back(place_key(prefix, rank));
    return store.get(keys, timeout);
}

std::string encode_id(const UniqueId& id, int version) {
    std::string text = fmt::format("{} ", version);
    for (const char byte : id.bytes)
        text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return text;
}

Result<UniqueId> decode_id(std::string_view text, const NcclLibrary& library) {
    UniqueId id{};
    int version = 0;
    const char* const end = text.data() + text.size();
    const auto number = std::from_chars(text.data(), end, version);
    const char* at = number.ptr;
    bool good = number.ec == std::errc() && end - at == 1 + 2 * sizeof id.bytes && *at++ == ' ';
    for (char& byte : id.bytes) {
        unsigned char value = 0;
        if (!good) break;
        const auto hex = std::from_chars(at, at + 2, value, 16);
        good = hex.ec == std::errc() && hex.ptr == at + 2;
        byte = static_cast<char>(value);
        at += 2;
    }
    if (!good) return fail(Errc::invalid_input, "the store has no unique id, but \"{}\"", text);
    if (version != library.version)
        return fail(Errc::invalid_input,
                    "rank 0 has {}, this rank {}: all ranks need the same version",
                    version_text(version), version_text(library.version));
    return id;
}

Result<Communicators> bootstrap(const NcclLibrary& library, const GroupSpec& spec,
                                const Settings& settings, int device) {
    return Bootstrap(library, spec, settings).run(device);
}

void report_failure(const GroupSpec& spec, const Error& error) {
    if (spec.size == 1 || error.code == Errc::closed) return;
    const KeyStore::Pair failed{failed_key(spec.prefix),
                                fmt::format("rank {}: {}", spec.rank, error.message)};
    // Without a store the job is over, and nobody waits.
    static_cast<void>(spec.store->set({&failed, 1}));
}

bool abort_all(const NcclLibrary& library, Communicators& communicators, milliseconds within) {
    struct Progress {
        std::mutex mutex;
        std::condition_variable changed;
        bool ended = false;
    };
    const Communicators given_up = std::exchange(communicators, {});
    if (given_up.parent == nullptr && given_up.work == nullptr) return true;
    const auto progress = std::make_shared<Progress>();
    quiet_thread([progress, given_up, abort = library.nccl.comm_abort] {
        if (given_up.parent != nullptr) abort(given_up.parent);
        // That ends a split, which may have made `work` until then.
        NcclComm* const work = given_up.splitting != nullptr ? *given_up.splitting : given_up.work;
        if (work != nullptr) abort(work);
        const std::lock_guard lock(progress->mutex);
        progress->ended = true;
        progress->changed.notify_all();
    }).detach();
    std::unique_lock lock(progress->mutex);
    return progress->changed.wait_for(lock, within, [&] { return progress->ended; });
}

}  // namespace dtrun::collectives::nccl
