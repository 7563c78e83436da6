#include "collectives/backends/plugin_import.h"

#include "collectives/algorithms/by_messages.h"
#include "collectives/backends/choose.h"
#include "collectives/backends/plugin_texts.h"

#include <dlfcn.h>
#include <dtrun_version.h>
#include <algorithm>
#include <cstddef>
#include <cstring>

namespace dtrun::collectives {
namespace {

static_assert(DTRUN_PLUGIN_PROTOCOL == kProtocol);

/// An array of ours as it crosses; plugin_export.cpp asserts that it is laid out so.
template <class Theirs, class Ours>
const Theirs* crossing(std::span<const Ours> ours) {
    return reinterpret_cast<const Theirs*>(ours.data());
}

constexpr std::uint32_t number(auto value) {
    return static_cast<std::uint32_t>(value);
}

/// A job's store as a plug-in sees it.
dtrun_plugin_store store_for(KeyStore* store) {
    dtrun_plugin_store made{};
    made.size = sizeof made;
    made.store = store;
    made.set = [](void* to, const dtrun_plugin_pair* pairs, std::size_t number,
                  const dtrun_plugin_sink* error) {
        return told(error, [&] {
            std::vector<KeyStore::Pair> copies;
            for (std::size_t i = 0; i < number; ++i)
                copies.emplace_back(view_of(pairs[i].key), view_of(pairs[i].value));
            return static_cast<KeyStore*>(to)->set(copies);
        });
    };
    made.get = [](void* from, const dtrun_plugin_text* keys, std::size_t number,
                  std::int64_t timeout_ms, const dtrun_plugin_sink* values,
                  const dtrun_plugin_sink* error) {
        return told(error, [&]() -> Result<void> {
            std::vector<std::string> copies;
            for (std::size_t i = 0; i < number; ++i) copies.emplace_back(view_of(keys[i]));
            const auto found =
                static_cast<KeyStore*>(from)->get(copies, std::chrono::milliseconds(timeout_ms));
            if (!found) return std::unexpected(found.error());
            for (const std::string& value : *found) put(*values, value);
            return {};
        });
    };
    made.find = [](void* from, dtrun_plugin_text key, const dtrun_plugin_sink* value,
                   const dtrun_plugin_sink* error) {
        return told(error, [&]() -> Result<void> {
            const auto found = static_cast<KeyStore*>(from)->find(std::string(view_of(key)));
            if (!found) return std::unexpected(found.error());
            if (*found) put(*value, **found);
            return {};
        });
    };
    return made;
}

/// Messages that a plug-in has under way.
class PendingThere final : public Pending {
public:
    PendingThere(const dtrun_plugin_calls& calls, void* pending)
        : calls_(calls), pending_(pending) {}
    ~PendingThere() override { calls_.end_pending(pending_); }
    PendingThere(const PendingThere&) = delete;
    PendingThere& operator=(const PendingThere&) = delete;

    void poll() override {
        if (calls_.poll != nullptr) calls_.poll(pending_);
    }
    Result<void> wait() override {
        return asked([&](const dtrun_plugin_sink* error) { return calls_.wait(pending_, error); });
    }

private:
    const dtrun_plugin_calls& calls_;  ///< of the group
    void* pending_;
};

/// A plug-in's group.
class GroupThere final : public Group {
public:
    explicit GroupThere(const dtrun_plugin_calls& calls) : calls_(calls) {}
    ~GroupThere() override {
        if (group_ != nullptr) calls_.free(group_);
    }
    GroupThere(const GroupThere&) = delete;
    GroupThere& operator=(const GroupThere&) = delete;

    Result<void> connect(const dtrun_plugin& plugin, const GroupSpec& spec);

    GroupFacts facts() const override;
    bool on_device() const override { return on_device_; }
    bool fuses() const override { return fuses_; }

    Result<void> run(const Operation& what) override;
    Result<void> allreduce_many(std::span<const Array> arrays, DType type, Reduce reduce) override {
        if (calls_.allreduce_many == nullptr) return Group::allreduce_many(arrays, type, reduce);
        return asked([&](const dtrun_plugin_sink* error) {
            return calls_.allreduce_many(group_, crossing<dtrun_plugin_array>(arrays),
                                         arrays.size(), number(type), number(reduce), error);
        });
    }
    Result<void> allreduce_compressed(std::span<const Segment> segments, Reduce reduce,
                                      const Compression& compression, std::uint64_t call) override;
    Result<void> allgather_on_host(const void* in, void* out, std::size_t bytes) override {
        if (calls_.allgather_on_host == nullptr) return run(op::allgather(in, out, bytes));
        return asked([&](const dtrun_plugin_sink* error) {
            return calls_.allgather_on_host(group_, in, out, bytes, error);
        });
    }
    Result<std::unique_ptr<Pending>> start(std::span<const Send> sends,
                                           std::span<const Receive> receives) override;
    void abort() noexcept override { calls_.abort(group_); }
    std::optional<std::uint32_t> lost() const override {
        std::uint32_t rank = 0;
        if (calls_.lost == nullptr || calls_.lost(group_, &rank) == 0 || rank >= ranks_)
            return std::nullopt;
        return rank;
    }
    std::shared_ptr<void> mark(void* stream) override {
        void* const set = calls_.mark != nullptr ? calls_.mark(group_, stream) : nullptr;
        if (set == nullptr) return nullptr;
        return {set, calls_.end_mark};
    }
    void follow(std::shared_ptr<void> mark) override {
        if (calls_.follow != nullptr) calls_.follow(group_, mark.get());
    }
    void expect(std::uint64_t call) override {
        if (calls_.expect != nullptr) calls_.expect(group_, call);
    }

private:
    const dtrun_plugin_calls calls_;
    dtrun_plugin_store store_{};
    std::function<bool()> interrupted_;
    void* group_ = nullptr;
    std::uint32_t rank_ = 0;
    std::uint32_t ranks_ = 0;
    bool on_device_ = false;
    bool fuses_ = false;
};

Result<void> GroupThere::connect(const dtrun_plugin& plugin, const GroupSpec& spec) {
    std::vector<std::uint32_t> hosts;
    for (std::uint32_t rank = 0; rank < spec.topology.size(); ++rank)
        hosts.push_back(spec.topology.host_of(rank));
    if (hosts.size() != spec.size || spec.members.size() != spec.size || spec.rank >= spec.size)
        return fail(Errc::invalid_input, "rank {} of {}, with {} members on {} hosts", spec.rank,
                    spec.size, spec.members.size(), hosts.size());
    std::vector<dtrun_plugin_text> interfaces;
    for (const std::string& one : spec.interfaces) interfaces.push_back(text_of(one));
    store_ = store_for(spec.store);
    interrupted_ = spec.interrupted;
    rank_ = spec.rank;
    ranks_ = spec.size;
    dtrun_plugin_spec given{};
    given.size = sizeof given;
    given.rank = spec.rank;
    given.ranks = spec.size;
    given.members = spec.members.data();
    given.host_of = hosts.data();
    given.store = spec.store != nullptr ? &store_ : nullptr;
    given.prefix = text_of(spec.prefix);
    given.timeout_ms = spec.timeout.count();
    given.interfaces = interfaces.data();
    given.interface_count = interfaces.size();
    given.address = text_of(spec.address);
    given.local_rank = spec.local_rank;
    given.gpu = spec.gpu;
    given.encrypt = spec.encrypt ? 1 : 0;
    given.generation = spec.generation;
    if (interrupted_) {
        given.interrupted = [](void* own) -> int {
            return static_cast<GroupThere*>(own)->interrupted_();
        };
        given.caller = this;
    }
    auto done = asked(
        [&](const dtrun_plugin_sink* error) { return plugin.connect(&given, &group_, error); });
    if (!done) return done;
    if (group_ == nullptr) return fail(Errc::internal, "its plug-in made no group");
    on_device_ = calls_.on_device != nullptr && calls_.on_device(group_) != 0;
    fuses_ = calls_.fuses != nullptr ? calls_.fuses(group_) != 0 : on_device_;
    return {};
}

GroupFacts GroupThere::facts() const {
    GroupFacts known;
    const dtrun_plugin_facts facts{
        &known, [](void* to, dtrun_plugin_text name, dtrun_plugin_text value) noexcept {
            auto& taken = *static_cast<GroupFacts*>(to);
            if (view_of(name) == "version")
                taken.version = view_of(value);
            else if (view_of(name) == "transport")
                taken.transport = view_of(value);
            else
                taken.details.emplace_back(view_of(name), view_of(value));
        }};
    calls_.facts(group_, &facts);
    return known;
}

Result<void> GroupThere::run(const Operation& what) {
    const dtrun_plugin_operation given{
        sizeof given,       number(what.kind), number(what.type), number(what.reduce),
        what.root,          what.in,           what.out,          what.count,
        what.counts.data(), what.counts.size()};
    auto done =
        asked([&](const dtrun_plugin_sink* error) { return calls_.run(group_, &given, error); });
    if (done || done.error().code != Errc::not_found || on_device_) return done;
    return run_by_messages(*this, rank_, ranks_, what);
}

Result<void> GroupThere::allreduce_compressed(std::span<const Segment> segments, Reduce reduce,
                                              const Compression& compression, std::uint64_t call) {
    if (calls_.allreduce_compressed == nullptr)
        return Group::allreduce_compressed(segments, reduce, compression, call);
    const dtrun_plugin_compression how{number(compression.format), number(compression.rounding),
                                       number(compression.policy), 0, compression.error};
    return asked([&](const dtrun_plugin_sink* error) {
        return calls_.allreduce_compressed(group_, crossing<dtrun_plugin_segment>(segments),
                                           segments.size(), number(reduce), &how, call, error);
    });
}

Result<std::unique_ptr<Pending>> GroupThere::start(std::span<const Send> sends,
                                                   std::span<const Receive> receives) {
    void* pending = nullptr;
    const auto done = asked([&](const dtrun_plugin_sink* error) {
        return calls_.start(group_, crossing<dtrun_plugin_send>(sends), sends.size(),
                            crossing<dtrun_plugin_receive>(receives), receives.size(), &pending,
                            error);
    });
    if (!done) return std::unexpected(done.error());
    if (pending == nullptr) return fail(Errc::internal, "its plug-in began no messages");
    return std::make_unique<PendingThere>(calls_, pending);
}

/// The first of the functions that every plug-in has which this one lacks; nullptr: none.
const char* lacking(const dtrun_plugin_calls& calls) {
#define DTRUN_NEEDED(name) \
    if (calls.name == nullptr) return #name
    DTRUN_NEEDED(free);
    DTRUN_NEEDED(abort);
    DTRUN_NEEDED(facts);
    DTRUN_NEEDED(run);
    DTRUN_NEEDED(start);
    DTRUN_NEEDED(wait);
    DTRUN_NEEDED(end_pending);
#undef DTRUN_NEEDED
    if (calls.mark != nullptr && (calls.end_mark == nullptr || calls.follow == nullptr))
        return calls.follow == nullptr ? "follow" : "end_mark";
    return nullptr;
}

/// \param what  "was built for ..."
std::unexpected<Error> of_another(const std::string& where, const std::string& what) {
    return fail(Errc::not_found,
                "{} {}, and this is dtrun " DTRUN_VERSION
                ": build it again with the source of this version",
                where, what);
}

}  // namespace

Result<Backend> import_backend(const dtrun_plugin* plugin, const std::string& where) {
    if (plugin == nullptr)
        return fail(Errc::not_found, "{} is a plug-in of dtrun without a description", where);
    // Nothing behind the number of another kind is known to be there.
    if (plugin->abi != DTRUN_PLUGIN_ABI)
        return of_another(
            where, fmt::format("is of {} version of dtrun (plug-ins of kind {}, not {})",
                               plugin->abi < DTRUN_PLUGIN_ABI ? "an older" : "a newer", plugin->abi,
                               DTRUN_PLUGIN_ABI));
    if (plugin->size < sizeof(dtrun_plugin) || plugin->name == nullptr ||
        plugin->version == nullptr || plugin->calls == nullptr || plugin->probe == nullptr ||
        plugin->connect == nullptr)
        return fail(Errc::not_found, "{} is a plug-in of dtrun that does not describe itself",
                    where);
    if (plugin->protocol != kProtocol)
        return of_another(where,
                          fmt::format("was built with dtrun {} (collectives' protocol {}, not {})",
                                      plugin->version, plugin->protocol, kProtocol));
    dtrun_plugin_calls calls{};
    std::memcpy(&calls, plugin->calls, std::min(plugin->calls->size, sizeof calls));
    if (const char* const name = lacking(calls))
        return fail(Errc::not_found, "{} is a plug-in of dtrun without {}()", where, name);
    return Backend{
        .probe =
            [plugin] {
                Availability found;
                auto take = [&found](std::string_view why) { found.why = why; };
                const dtrun_plugin_sink sink = sink_of(take);
                found.available = plugin->probe(&sink) != 0;
                return found;
            },
        .connect = [plugin, calls](const GroupSpec& spec) -> Result<std::unique_ptr<Group>> {
            auto group = std::make_unique<GroupThere>(calls);
            if (auto done = group->connect(*plugin, spec); !done)
                return std::unexpected(done.error());
            return group;
        }};
}

Result<Backend> load_plugin(const std::string& file) {
    void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) return fail(Errc::not_found, "{}", ::dlerror());
    using Entry = const dtrun_plugin* (*)();
    const auto entry = reinterpret_cast<Entry>(::dlsym(library, DTRUN_PLUGIN_ENTRY));
    if (entry == nullptr) return fail(Errc::not_found, "{} is no plug-in of dtrun", file);
    return import_backend(entry(), file);
}

}  // namespace dtrun::collectives
