#include "collectives/communicator.h"

#include "collectives/backends.h"
#include "collectives/codec/format_table.h"
#include "collectives/compressed_parts.h"
#include "collectives/host_address.h"
#include "collectives/self_group.h"
#include "worker/include/dtrun.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>

namespace dtrun::collectives {
namespace {

/// Arrays below kAloneBytesMin are fused up to kFusedBytesMax; larger ones lose nothing by going
/// alone.
constexpr std::size_t kFusedBytesMax = 32u << 20;
constexpr std::size_t kAloneBytesMin = 4u << 20;

std::string facts_text(const std::string& backend, const GroupFacts& facts) {
    std::string text = fmt::format("backend: {}\n", backend);
    if (!facts.version.empty()) text += fmt::format("version: {}\n", facts.version);
    text += fmt::format("transport: {}\n", facts.transport);
    for (const auto& [name, value] : facts.details) text += fmt::format("{}: {}\n", name, value);
    return text;
}

/// What this rank tells the others of itself.
Member introduce(dtrun_worker* worker, const CommunicatorOptions& options) {
    Member own;
    own.host = dtrun_host_name(worker);
    own.address = own_address(options.interfaces);
    own.wish = options.backend;
    own.device = options.device;
    own.fabric = has_infiniband();
    if (options.backend != "auto") {
        own.backends.emplace_back(options.backend, probe_backend(options.backend));
    } else if (dtrun_world_size(worker) > 1 || options.device) {
        const bool lasting = dtrun_can_rejoin(worker) != 0;
        for (const std::string& backend : backend_order(options.device, lasting))
            own.backends.emplace_back(backend, probe_backend(backend));
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

std::string backend_wish(std::string wish) {
    const char* const variable = std::getenv("DTRUN_BACKEND");
    if ((wish.empty() || wish == "auto") && variable != nullptr) wish = variable;
    return wish.empty() ? "auto" : wish;
}

/// Whether formats are studied: then compression is not left to what gains by it.
bool compresses_always() {
    const char* const wish = std::getenv("DTRUN_COMPRESS");
    return wish != nullptr && std::string_view(wish) == "always";
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
                                                           CommunicatorOptions options) {
    auto shared = SharedWorker::of(worker);
    if (!shared) return std::unexpected(shared.error());
    options.backend = backend_wish(std::move(options.backend));
    if (options.interfaces.empty()) options.interfaces = interfaces_from_environment();
    auto prefix = next_prefix(shared->get());
    if (!prefix) return std::unexpected(prefix.error());
    const auto members =
        meet(shared->get(), *prefix, introduce(shared->get(), options), options.timeout);
    if (!members) return std::unexpected(members.error());
    Plan plan;
    plan.prefix = std::move(*prefix);
    plan.rank = dtrun_rank(shared->get());
    for (const Member& member : *members)
        plan.ranks.push_back(
            {static_cast<std::uint32_t>(plan.ranks.size()), member.host, member.address});
    if (members->size() == 1 && options.backend == "auto" && !options.device) {
        plan.choice = {"none", "one rank needs none"};
    } else {
        auto choice = choose_backend(*members, common_order(members->front(), options.device));
        if (!choice) return std::unexpected(choice.error());
        plan.choice = std::move(*choice);
    }
    plan.options = std::move(options);
    return connect(std::move(*shared), std::move(plan), nullptr);
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
    // After a failure others still read what this rank has left there.
    if (watch_ && !broken_ && !*ended_) store_.erase_own();
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
      insists_(compresses_always()) {}

Result<void> Communicator::join(const GroupSpec& spec) {
    if (choice_.backend == "none") {
        group_ = std::make_unique<SelfGroup>();
    } else {
        const auto plugin = load_backend(choice_.backend);
        if (!plugin) return std::unexpected(plugin.error());
        auto group = (*plugin)->connect(spec);
        if (!group) return fail(group.error(), "{}", choice_.backend);
        group_ = std::move(*group);
        if (!group_->on_device()) {
            auto arranged = arrange(spec, *group_);
            if (!arranged) return std::unexpected(arranged.error());
            arrangement_ = std::move(*arranged);
            if (auto done = group_->arrange(arrangement_); !done) return done;
        }
    }
    facts_ = facts_text(choice_.backend, group_->facts());
    Watch::Options watch;
    watch.store = &store_;
    watch.prefix = prefix_;
    watch.rank = rank_;
    watch.size = size();
    watch.timeout = options_.operation_timeout;
    watch.name = [this](std::uint32_t rank) {
        return fmt::format("rank {} on {}", ranks_[rank].world, ranks_[rank].host);
    };
    watch.abort = [this] {
        *ended_ = true;
        group_->abort();
    };
    watch_ = std::make_unique<Watch>(std::move(watch));
    store_.own({watch_->at_key(), watch_->message_key()});
    if (size() > 1)
        loss_hook_.emplace(worker_.get(), [watch = watch_.get()] { watch->membership_ended(); });
    return {};
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
    // Connecting waits for other ranks, too, so it also runs under the watch.
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

// ---- operations -----------------------------------------------------------------------------

template <class Body>
Result<void> Communicator::perform(const Call& call, Body body) {
    if (broken_) return fail(broken_->code, "the communicator is broken: {}", broken_->message);
    const std::uint64_t number = watch_->begin(call);
    group_->expect(call.collective ? number : 0);
    Result<void> done;
    try {
        done = body(number);
    } catch (const std::exception& error) {  // out of memory; the others are in the middle of it
        group_->abort();
        done = fail(Errc::internal, "{}", error.what());
    }
    watch_->end();
    if (done) return done;
    if (done.error().code == Errc::invalid_input) {
        watch_->withdraw(call);
        return done;
    }
    broken_ = watch_->explain(done.error(), group_->lost());
    return std::unexpected(*broken_);
}

Result<void> Communicator::check_root(std::uint32_t root) const {
    if (root < size()) return {};
    return fail(Errc::invalid_input, "there is no rank {} among {}", root, size());
}

Result<void> Communicator::check_compression(DType type, Reduce reduce,
                                             const Compression* compression) const {
    if (reduce == Reduce::adasum && !is_float(type))
        return fail(Errc::invalid_input, "Adasum is for floating point, not {}", name_of(type));
    if (reduce == Reduce::adasum && group_->on_device())
        return fail(Errc::invalid_input, "Adasum is for host memory: use mpi or gloo");
    if (compression == nullptr) return {};
    if (reduce != Reduce::sum && reduce != Reduce::average)
        return fail(Errc::invalid_input, "only sum and average can be compressed, not {}",
                    name_of(reduce));
    return check_values(type, compression);
}

Result<void> Communicator::check_values(DType type, const Compression* compression) const {
    if (compression == nullptr || type == DType::f32) return {};
    if (group_->on_device())
        return fail(Errc::invalid_input, "on a GPU only f32 can be compressed, not {}",
                    name_of(type));
    if (type == DType::f16 || type == DType::bf16) return {};
    return fail(Errc::invalid_input, "only f32, f16 and bf16 can be compressed, not {}",
                name_of(type));
}

Result<void> Communicator::check_on_host(const Compression* compression) const {
    if (compression == nullptr || !group_->on_device()) return {};
    return fail(Errc::invalid_input, "on a GPU only allreduce can be compressed");
}

const Compression* Communicator::worth(const Compression* compression, std::size_t count) const {
    // Below that, to encode and to take turns costs more than the wire does.
    constexpr std::size_t kValuesMin = 16UL << 10;
    if (compression == nullptr || group_->on_device()) return compression;
    const bool insists = insists_ || compression->policy == CompressionPolicy::always ||
                         row_of(compression->format).use == FormatRow::Use::study;
    const bool gains = arrangement_.topology.hosts() > 1 && count >= kValuesMin;
    return insists || gains ? compression : nullptr;
}

Communicator::Levels Communicator::levels() const {
    if (arrangement_.topology.one_host()) return {apart_, nullptr};
    return {arrangement_.topology, arrangement_.host.get()};
}

Result<void> Communicator::reduce_one(const void* in, void* out, std::size_t count, DType type,
                                      Reduce reduce) {
    if (reduce == Reduce::adasum)
        return adasum_allreduce(*group_, rank_, size(), in, out, count, type);
    return group_->allreduce(in, out, count, type, reduce);
}

Result<void> Communicator::allreduce(const void* in, void* out, std::size_t count, DType type,
                                     Reduce reduce, const Compression* compression) {
    if (auto checked = check_compression(type, reduce, compression); !checked) return checked;
    compression = worth(compression, count);
    const Call call{.operation = "allreduce",
                    .count = count,
                    .type = type,
                    .reduce = static_cast<int>(reduce),
                    .format = compression != nullptr ? static_cast<int>(compression->format) : 0};
    return perform(call, [&](std::uint64_t number) {
        if (compression == nullptr) return reduce_one(in, out, count, type, reduce);
        const TypedSegment all{in, out, count, compression->error, type};
        return reduce_compressed({&all, 1}, reduce, *compression, number);
    });
}

Result<void> Communicator::allreduce_many(std::span<const Array> arrays, DType type, Reduce reduce,
                                          const Compression* compression) {
    if (auto checked = check_compression(type, reduce, compression); !checked) return checked;
    Call call{
        .operation = "allreduce of many arrays", .type = type, .reduce = static_cast<int>(reduce)};
    std::vector<std::size_t> counts;
    for (const Array& array : arrays) {
        call.count += array.count;
        counts.push_back(array.count);
    }
    call.parts = digest(counts);
    compression = worth(compression, call.count);
    call.format = compression != nullptr ? static_cast<int>(compression->format) : 0;
    return perform(call, [&](std::uint64_t number) -> Result<void> {
        if (compression != nullptr) {
            std::vector<TypedSegment> segments;
            for (const Array& array : arrays)
                segments.push_back({array.data, array.data, array.count, array.error, type});
            return reduce_compressed(segments, reduce, *compression, number);
        }
        if (group_->fuses() && reduce != Reduce::adasum)
            return group_->allreduce_many(arrays, type, reduce);
        for (std::size_t first = 0; first < arrays.size();) {
            const std::size_t number_fused = fused(arrays.subspan(first), type, reduce);
            auto done = reduce_fused(arrays.subspan(first, number_fused), type, reduce);
            if (!done) return done;
            first += number_fused;
        }
        return {};
    });
}

/// How many of the first arrays are fused into one operation.
std::size_t Communicator::fused(std::span<const Array> arrays, DType type, Reduce reduce) const {
    if (reduce == Reduce::adasum) return 1;  // which looks at each by itself
    const auto small = [type](const Array& array) {
        return array.count * bytes_of(type) < kAloneBytesMin;
    };
    std::size_t number = 0;
    std::size_t bytes = 0;
    for (; number < arrays.size() && small(arrays[number]); ++number) {
        bytes += arrays[number].count * bytes_of(type);
        if (bytes > kFusedBytesMax) break;
    }
    return std::max<std::size_t>(number, 1);
}

Result<void> Communicator::reduce_fused(std::span<const Array> arrays, DType type, Reduce reduce) {
    if (arrays.size() == 1) {
        const Array& array = arrays.front();
        return reduce_one(array.data, array.data, array.count, type, reduce);
    }
    std::size_t count = 0;
    for (const Array& array : arrays) count += array.count;
    const std::size_t element = bytes_of(type);
    fusion_.resize(std::max(fusion_.size(), count * element));
    std::byte* at = fusion_.data();
    for (const Array& array : arrays) {
        if (array.count > 0) std::memcpy(at, array.data, array.count * element);
        at += array.count * element;
    }
    auto done = group_->allreduce(fusion_.data(), fusion_.data(), count, type, reduce);
    if (!done) return done;
    at = fusion_.data();
    for (const Array& array : arrays) {
        if (array.count > 0) std::memcpy(array.data, at, array.count * element);
        at += array.count * element;
    }
    return {};
}

Result<void> Communicator::reduce_compressed(std::span<const TypedSegment> segments, Reduce reduce,
                                             const Compression& compression, std::uint64_t call) {
    if (group_->on_device()) {
        std::vector<Segment> floats;
        for (const TypedSegment& one : segments)
            floats.push_back({static_cast<const float*>(one.in), static_cast<float*>(one.out),
                              one.count, one.error});
        return group_->allreduce_compressed(floats, reduce, compression, call);
    }
    const auto [topology, host] = levels();
    return compressed_.run(*group_, topology, host, segments, reduce, compression, call);
}

Result<void> Communicator::reduce(const void* in, void* out, std::size_t count, DType type,
                                  Reduce reduce, std::uint32_t root) {
    if (auto checked = check_root(root); !checked) return checked;
    if (reduce == Reduce::adasum) return fail(Errc::invalid_input, "Adasum is for allreduce");
    const Call call{.operation = "reduce",
                    .count = count,
                    .type = type,
                    .reduce = static_cast<int>(reduce),
                    .root = root};
    return perform(
        call, [&](std::uint64_t) { return group_->reduce(in, out, count, type, reduce, root); });
}

Result<void> Communicator::reduce_scatter(const void* in, void* out, std::size_t count, DType type,
                                          Reduce reduce, const Compression* compression) {
    if (reduce == Reduce::adasum) return fail(Errc::invalid_input, "Adasum is for allreduce");
    if (auto checked = check_compression(type, reduce, compression); !checked) return checked;
    if (auto checked = check_on_host(compression); !checked) return checked;
    compression = worth(compression, count * size());
    const Call call{.operation = "reduce-scatter",
                    .count = count,
                    .type = type,
                    .reduce = static_cast<int>(reduce),
                    .format = compression != nullptr ? static_cast<int>(compression->format) : 0};
    return perform(call, [&](std::uint64_t number) {
        if (compression == nullptr) return group_->reduce_scatter(in, out, count, type, reduce);
        const auto [topology, host] = levels();
        return compressed_reduce_scatter(*group_, topology, host, in, out, count, type, reduce,
                                         *compression, number);
    });
}

Result<void> Communicator::broadcast(void* data, std::size_t count, DType type,
                                     std::uint32_t root) {
    if (auto checked = check_root(root); !checked) return checked;
    const Call call{.operation = "broadcast", .count = count, .type = type, .root = root};
    return perform(
        call, [&](std::uint64_t) { return group_->broadcast(data, count * bytes_of(type), root); });
}

Result<void> Communicator::allgather(const void* in, void* out, std::size_t count, DType type,
                                     const Compression* compression) {
    if (auto checked = check_values(type, compression); !checked) return checked;
    if (auto checked = check_on_host(compression); !checked) return checked;
    compression = worth(compression, count * size());
    const Call call{.operation = "allgather",
                    .count = count,
                    .type = type,
                    .format = compression != nullptr ? static_cast<int>(compression->format) : 0};
    return perform(call, [&](std::uint64_t number) {
        if (compression == nullptr) return group_->allgather(in, out, count * bytes_of(type));
        return compressed_allgather(*group_, levels().topology, in, out, count, type, *compression,
                                    number);
    });
}

Result<void> Communicator::allgatherv(const void* in, void* out,
                                      std::span<const std::size_t> counts, DType type) {
    std::vector<std::size_t> bytes;
    for (const std::size_t count : counts) bytes.push_back(count * bytes_of(type));
    const Call call{.operation = "allgatherv",
                    .count = std::accumulate(counts.begin(), counts.end(), std::size_t{0}),
                    .type = type,
                    .parts = digest(counts)};
    return perform(call, [&](std::uint64_t) { return group_->allgatherv(in, out, bytes); });
}

Result<void> Communicator::gather(const void* in, void* out, std::size_t count, DType type,
                                  std::uint32_t root) {
    if (auto checked = check_root(root); !checked) return checked;
    const Call call{.operation = "gather", .count = count, .type = type, .root = root};
    return perform(
        call, [&](std::uint64_t) { return group_->gather(in, out, count * bytes_of(type), root); });
}

Result<void> Communicator::scatter(const void* in, void* out, std::size_t count, DType type,
                                   std::uint32_t root) {
    if (auto checked = check_root(root); !checked) return checked;
    const Call call{.operation = "scatter", .count = count, .type = type, .root = root};
    return perform(call, [&](std::uint64_t) {
        return group_->scatter(in, out, count * bytes_of(type), root);
    });
}

Result<void> Communicator::alltoall(const void* in, void* out, std::size_t count, DType type) {
    const Call call{.operation = "all-to-all", .count = count, .type = type};
    return perform(
        call, [&](std::uint64_t) { return group_->alltoall(in, out, count * bytes_of(type)); });
}

Result<void> Communicator::barrier() {
    return perform({.operation = "barrier"}, [&](std::uint64_t) { return group_->barrier(); });
}

Result<void> Communicator::message(const Call& call, std::span<const Send> sends,
                                   std::span<const Receive> receives) {
    const auto check = [this](std::uint32_t peer) -> Result<void> {
        if (auto checked = check_root(peer); !checked) return checked;
        if (peer == rank_)
            return fail(Errc::invalid_input, "rank {} has no need to write to itself", rank_);
        return {};
    };
    for (const Send& send : sends)
        if (auto checked = check(send.peer); !checked) return checked;
    for (const Receive& receive : receives)
        if (auto checked = check(receive.peer); !checked) return checked;
    return perform(call, [&](std::uint64_t) -> Result<void> {
        const auto pending = group_->start(sends, receives);
        if (!pending) return std::unexpected(pending.error());
        return (*pending)->wait();
    });
}

Result<void> Communicator::send(const void* data, std::size_t count, DType type, std::uint32_t to) {
    const Send send{to, data, count * bytes_of(type)};
    return message({.operation = "send",
                    .count = count,
                    .type = type,
                    .root = to,
                    .collective = false,
                    .sends = {to, count}},
                   {&send, 1}, {});
}

Result<void> Communicator::receive(void* data, std::size_t count, DType type, std::uint32_t from) {
    const Receive receive{from, data, count * bytes_of(type)};
    return message({.operation = "recv",
                    .count = count,
                    .type = type,
                    .root = from,
                    .collective = false,
                    .receives = {from, count}},
                   {}, {&receive, 1});
}

Result<void> Communicator::sendrecv(const void* out, std::size_t out_count, std::uint32_t to,
                                    void* in, std::size_t in_count, std::uint32_t from,
                                    DType type) {
    const Send send{to, out, out_count * bytes_of(type)};
    const Receive receive{from, in, in_count * bytes_of(type)};
    return message({.operation = "sendrecv",
                    .count = in_count,
                    .type = type,
                    .root = from,
                    .collective = false,
                    .sends = {to, out_count},
                    .receives = {from, in_count}},
                   {&send, 1}, {&receive, 1});
}

}  // namespace dtrun::collectives
