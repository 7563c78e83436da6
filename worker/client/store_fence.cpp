#include "worker/client/store_fence.h"

#include "worker/client/ask.h"

#include <string>

namespace dtrun::embedded {
namespace {

// The keys of one fence, all below dtrun/fence/<job>/<name>/<round>/:
//   in/<rank>   what the rank brought
//   arrived     number of ranks that have
//   end         "" when all have, else why the fence has failed; set once, by whoever is first
//   left        number of ranks that have read the others' bytes; the last one erases everything

struct Fencing {
    Client& client;
    std::string prefix;
    std::uint32_t ranks = 0;
    const std::function<bool()>& give_up;

    std::string key(std::string_view suffix) const { return prefix + std::string(suffix); }
    std::string key_of(std::uint32_t rank) const { return key(fmt::format("in/{}", rank)); }

    Outcome<void> set(const std::string& key, std::string_view value) {
        const auto pack = [&](PackWriter& out) { out.bin(key), out.bin(value); };
        return ask(client, Op::set, 2, -1, give_up, pack, read_nothing);
    }
    Outcome<std::int64_t> count(std::string_view suffix) {
        std::int64_t sum = 0;
        const auto pack = [&](PackWriter& out) { out.bin(key(suffix)), out.integer(1); };
        const auto read = [&sum](PackReader& in) { sum = in.integer(); };
        if (auto added = ask(client, Op::add, 2, -1, give_up, pack, read); !added)
            return std::unexpected(added.error());
        return sum;
    }
    /// How the fence ends, for all; only the first word counts.
    Outcome<void> end(std::string_view why) {
        const auto pack = [&](PackWriter& out) { out.bin(key("end")), out.nil(), out.bin(why); };
        return ask(client, Op::compare_set, 3, -1, give_up, pack, read_nothing);
    }
    Outcome<std::string> wait_for_end(std::int64_t timeout_ms) {
        std::string why;
        const auto pack = [&](PackWriter& out) {
            out.bin(key("end")), out.uint(wire_timeout(timeout_ms));
        };
        const auto read = [&why](PackReader& in) { why = in.bytes(); };
        if (auto got = ask(client, Op::get, 2, timeout_ms, give_up, pack, read); !got)
            return std::unexpected(got.error());
        return why;
    }
    Outcome<std::vector<FenceEntry>> collect() {
        std::vector<FenceEntry> entries;
        const auto pack = [&](PackWriter& out) {
            out.array(ranks);
            for (std::uint32_t rank = 0; rank < ranks; ++rank) out.bin(key_of(rank));
            out.uint(0);
        };
        const auto read = [&entries](PackReader& in) {
            const std::uint32_t count = in.array();
            for (std::uint32_t rank = 0; rank < count; ++rank)
                entries.push_back({rank, Bytes(in.bytes())});
        };
        if (auto got = ask(client, Op::multi_get, 2, -1, give_up, pack, read); !got)
            return std::unexpected(got.error());
        return entries;
    }
    Outcome<void> erase(const std::string& key) {
        const auto pack = [&](PackWriter& out) { out.bin(key); };
        return ask(client, Op::erase, 1, -1, give_up, pack, read_nothing);
    }
    Outcome<void> clean_up(bool with_bytes) {
        for (std::uint32_t rank = 0; with_bytes && rank < ranks; ++rank)
            if (auto gone = erase(key_of(rank)); !gone) return gone;
        for (const std::string_view suffix : {"arrived", "end", "left"})
            if (auto gone = erase(key(suffix)); !gone) return gone;
        return {};
    }
};

}  // namespace

Outcome<std::vector<FenceEntry>> store_fence(Client& client, std::string_view name,
                                             std::uint64_t round,
                                             std::optional<std::string_view> bytes,
                                             std::int64_t timeout_ms,
                                             const std::function<bool()>& give_up) {
    const Place place = client.place();
    Fencing fence{client, fmt::format("dtrun/fence/{}/{}/{}/", place.job, name, round),
                  place.world_size, give_up};
    if (bytes)
        if (auto set = fence.set(fence.key_of(place.rank), *bytes); !set)
            return std::unexpected(set.error());
    const auto arrived = fence.count("arrived");
    if (!arrived) return std::unexpected(arrived.error());
    if (*arrived == place.world_size)
        if (auto ended = fence.end(""); !ended) return std::unexpected(ended.error());

    auto why = fence.wait_for_end(timeout_ms);
    const bool timed_out =
        !why && (why.error().code == DTRUN_TIMED_OUT || why.error().code == DTRUN_NOT_FOUND);
    if (timed_out) {
        const std::string text = fmt::format("rank {} waited {} ms", place.rank, timeout_ms);
        if (auto ended = fence.end(text); !ended) return std::unexpected(ended.error());
        why = fence.wait_for_end(0);
    }
    if (!why && why.error().code == DTRUN_CANCELLED) {
        const std::function<bool()> never;
        const std::string text = fmt::format("rank {} was interrupted", place.rank);
        (void)Fencing{client, fence.prefix, fence.ranks, never}.end(text);
    }
    if (!why) return std::unexpected(why.error());
    if (!why->empty())
        return failure(timed_out ? DTRUN_TIMED_OUT : DTRUN_CANCELLED, "fence '{}': {}", name, *why);

    Outcome<std::vector<FenceEntry>> entries;
    if (bytes) entries = fence.collect();
    if (!entries) return entries;
    const auto left = fence.count("left");
    if (!left) return std::unexpected(left.error());
    if (*left == place.world_size)
        if (auto cleaned = fence.clean_up(bytes.has_value()); !cleaned)
            return std::unexpected(cleaned.error());
    return entries;
}

}  // namespace dtrun::embedded
