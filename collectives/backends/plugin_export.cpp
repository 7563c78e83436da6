#include "collectives/backends/plugin.h"
#include "collectives/backends/plugin_texts.h"

#include <dtrun_version.h>
#include <algorithm>
#include <cstring>

namespace dtrun::collectives::plugin {
namespace {

// Arrays of these cross as they are, without a copy.
template <class Ours, class Theirs>
constexpr bool is_same_layout = sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);
static_assert(is_same_layout<Send, dtrun_plugin_send> &&
              offsetof(Send, data) == offsetof(dtrun_plugin_send, data) &&
              offsetof(Send, bytes) == offsetof(dtrun_plugin_send, bytes));
static_assert(is_same_layout<Receive, dtrun_plugin_receive> &&
              offsetof(Receive, data) == offsetof(dtrun_plugin_receive, data) &&
              offsetof(Receive, bytes) == offsetof(dtrun_plugin_receive, bytes));
static_assert(is_same_layout<Array, dtrun_plugin_array> &&
              offsetof(Array, count) == offsetof(dtrun_plugin_array, count) &&
              offsetof(Array, error) == offsetof(dtrun_plugin_array, error));
static_assert(is_same_layout<Segment, dtrun_plugin_segment> &&
              offsetof(Segment, out) == offsetof(dtrun_plugin_segment, out) &&
              offsetof(Segment, count) == offsetof(dtrun_plugin_segment, count) &&
              offsetof(Segment, error) == offsetof(dtrun_plugin_segment, error));

template <class Ours, class Theirs>
std::span<const Ours> span_of(const Theirs* first, std::size_t number) {
    return {reinterpret_cast<const Ours*>(first), number};
}

/// The library's store.
class StoreThere final : public KeyStore {
public:
    explicit StoreThere(const dtrun_plugin_store& store) : store_(store) {}

    Result<void> set(std::span<const Pair> pairs) override {
        std::vector<dtrun_plugin_pair> texts;
        for (const auto& [key, value] : pairs) texts.push_back({text_of(key), text_of(value)});
        return asked([&](const dtrun_plugin_sink* error) {
            return store_.set(store_.store, texts.data(), texts.size(), error);
        });
    }

    Result<std::vector<std::string>> get(std::span<const std::string> keys,
                                         std::chrono::milliseconds timeout) override {
        std::vector<dtrun_plugin_text> texts;
        for (const std::string& key : keys) texts.push_back(text_of(key));
        std::vector<std::string> values;
        auto take = [&values](std::string_view value) { values.emplace_back(value); };
        const dtrun_plugin_sink sink = sink_of(take);
        const auto done = asked([&](const dtrun_plugin_sink* error) {
            return store_.get(store_.store, texts.data(), texts.size(), timeout.count(), &sink,
                              error);
        });
        if (!done) return std::unexpected(done.error());
        if (values.size() != keys.size())
            return fail(Errc::internal, "the store gave {} values for {} keys", values.size(),
                        keys.size());
        return values;
    }

    Result<std::optional<std::string>> find(const std::string& key) override {
        std::optional<std::string> value;
        auto take = [&value](std::string_view text) { value = text; };
        const dtrun_plugin_sink sink = sink_of(take);
        const auto done = asked([&](const dtrun_plugin_sink* error) {
            return store_.find(store_.store, text_of(key), &sink, error);
        });
        if (!done) return std::unexpected(done.error());
        return value;
    }

private:
    const dtrun_plugin_store& store_;
};

GroupSpec read(const dtrun_plugin_spec& given, KeyStore* store) {
    GroupSpec spec;
    spec.rank = given.rank;
    spec.size = given.ranks;
    spec.members.assign(given.members, given.members + given.ranks);
    spec.topology = Topology(
        given.rank, std::vector<std::uint32_t>(given.host_of, given.host_of + given.ranks));
    spec.store = store;
    spec.prefix = view_of(given.prefix);
    spec.timeout = std::chrono::milliseconds(given.timeout_ms);
    for (std::size_t i = 0; i < given.interface_count; ++i)
        spec.interfaces.emplace_back(view_of(given.interfaces[i]));
    spec.address = view_of(given.address);
    spec.local_rank = given.local_rank;
    spec.gpu = given.gpu;
    spec.encrypt = given.encrypt != 0;
    spec.generation = given.generation;
    if (given.interrupted != nullptr)
        spec.interrupted = [asked = given.interrupted, caller = given.caller] {
            return asked(caller) != 0;
        };
    return spec;
}

Operation read(const dtrun_plugin_operation& given) {
    return {static_cast<Operation::Kind>(given.kind),
            given.in,
            given.out,
            given.count,
            static_cast<DType>(given.type),
            static_cast<Reduce>(given.reduce),
            given.root,
            {given.counts, given.parts}};
}

/// What the library's pointer to a group leads to.
struct Exported {
    std::unique_ptr<KeyStore> store;
    std::unique_ptr<Group> group;  ///< ends before its store
};

Group& of(void* group) {
    return *static_cast<Exported*>(group)->group;
}

/// An operation. Other ranks are in the middle of it, so that an exception ends the group.
template <class Body>
int run(void* group, const dtrun_plugin_sink* error, const Body& body) noexcept {
    return told(error, [&] {
        try {
            return body(of(group));
        } catch (...) {
            of(group).abort();
            throw;
        }
    });
}

void put_facts(void* group, const dtrun_plugin_facts* facts) noexcept {
    const auto one = [&](std::string_view name, std::string_view value) {
        facts->put(facts->to, text_of(name), text_of(value));
    };
    try {
        const GroupFacts known = of(group).facts();
        one("version", known.version);
        one("transport", known.transport);
        for (const auto& [name, value] : known.details) one(name, value);
    } catch (const std::exception&) {  // a report without them
    }
}

int start(void* group, const dtrun_plugin_send* sends, std::size_t send_count,
          const dtrun_plugin_receive* receives, std::size_t receive_count, void** pending,
          const dtrun_plugin_sink* error) noexcept {
    return run(group, error, [&](Group& own) -> Result<void> {
        auto started =
            own.start(span_of<Send>(sends, send_count), span_of<Receive>(receives, receive_count));
        if (!started) return std::unexpected(started.error());
        *pending = started->release();
        return {};
    });
}

int compressed(void* group, const dtrun_plugin_segment* segments, std::size_t number,
               std::uint32_t reduce, const dtrun_plugin_compression* compression,
               std::uint64_t call, const dtrun_plugin_sink* error) noexcept {
    return run(group, error, [&](Group& own) {
        const Compression how{static_cast<Format>(compression->format),
                              static_cast<Rounding>(compression->rounding), compression->error,
                              static_cast<CompressionPolicy>(compression->policy)};
        return own.allreduce_compressed(span_of<Segment>(segments, number),
                                        static_cast<Reduce>(reduce), how, call);
    });
}

void* mark(void* group, void* stream) noexcept {
    try {
        auto set = of(group).mark(stream);
        return set == nullptr ? nullptr : new std::shared_ptr<void>(std::move(set));
    } catch (const std::exception&) {  // what follows comes after the default stream, then
        return nullptr;
    }
}

using Sink = const dtrun_plugin_sink*;
using Bytes = std::size_t;
using Number = std::uint32_t;

const dtrun_plugin_calls kCalls{
    .size = sizeof(dtrun_plugin_calls),
    .free = [](void* group) { delete static_cast<Exported*>(group); },
    .abort = [](void* group) { of(group).abort(); },
    .facts = put_facts,
    .on_device = [](void* group) -> int { return of(group).on_device(); },
    .fuses = [](void* group) -> int { return of(group).fuses(); },
    .lost = [](void* group, Number* rank) -> int {
        const auto lost = of(group).lost();
        if (lost) *rank = *lost;
        return lost.has_value();
    },
    .expect = [](void* group, std::uint64_t call) { of(group).expect(call); },
    .run =
        [](void* group, const dtrun_plugin_operation* what, Sink error) {
            return run(group, error, [&](Group& own) -> Result<void> {
                if (what->kind == 0 || what->kind > std::size(kOperations))
                    return fail(Errc::not_found, "operation {} is of a newer dtrun", what->kind);
                return own.run(read(*what));
            });
        },
    .allreduce_many =
        [](void* group, const dtrun_plugin_array* arrays, Bytes number, Number type, Number reduce,
           Sink error) {
            return run(group, error, [&](Group& own) {
                return own.allreduce_many(span_of<Array>(arrays, number), static_cast<DType>(type),
                                          static_cast<Reduce>(reduce));
            });
        },
    .allreduce_compressed = compressed,
    .allgather_on_host =
        [](void* group, const void* in, void* out, Bytes bytes, Sink error) {
            return run(group, error,
                       [&](Group& own) { return own.allgather_on_host(in, out, bytes); });
        },
    .start = start,
    .poll = [](void* pending) { static_cast<Pending*>(pending)->poll(); },
    .wait =
        [](void* pending, Sink error) {
            return told(error, [&] { return static_cast<Pending*>(pending)->wait(); });
        },
    .end_pending = [](void* pending) { delete static_cast<Pending*>(pending); },
    .mark = mark,
    .end_mark = [](void* mark) { delete static_cast<std::shared_ptr<void>*>(mark); },
    .follow =
        [](void* group, void* mark) {
            of(group).follow(mark == nullptr ? nullptr
                                             : *static_cast<std::shared_ptr<void>*>(mark));
        },
};

}  // namespace

int give_availability(Probe probe, const dtrun_plugin_sink* why) noexcept {
    try {
        const Availability found = probe();
        put(*why, found.why);
        return found.available ? 1 : 0;
    } catch (const std::exception& error) {
        put(*why, error.what());
        return 0;
    }
}

int give_group(Connect connect, const dtrun_plugin_spec* spec, void** group,
               const dtrun_plugin_sink* error) noexcept {
    return told(error, [&]() -> Result<void> {
        dtrun_plugin_spec known{};  // a library that is older than this plug-in knows less
        std::memcpy(&known, spec, std::min(spec->size, sizeof known));
        auto made = std::make_unique<Exported>();
        if (known.store != nullptr) made->store = std::make_unique<StoreThere>(*known.store);
        auto connected = connect(read(known, made->store.get()));
        if (!connected) return std::unexpected(connected.error());
        made->group = std::move(*connected);
        *group = made.release();
        return {};
    });
}

dtrun_plugin describe(const char* name) {
    dtrun_plugin plugin{};
    plugin.abi = DTRUN_PLUGIN_ABI;
    plugin.protocol = DTRUN_PLUGIN_PROTOCOL;
    plugin.size = sizeof plugin;
    plugin.name = name;
    plugin.version = DTRUN_VERSION;
    plugin.calls = &kCalls;
    return plugin;
}

}  // namespace dtrun::collectives::plugin
