#include "lab/rank/rank_comm.h"

#include <algorithm>
#include <map>

namespace dtrun::lab::rank {

namespace {

constexpr std::int64_t kMeetMs = 300'000;

Errc errc_of(int code) {
    switch (code) {
        case DTRUN_NOT_FOUND:
            return Errc::not_found;
        case DTRUN_TIMED_OUT:
            return Errc::timed_out;
        case DTRUN_INVALID:
            return Errc::invalid_input;
        default:
            return Errc::internal;
    }
}

dtrun_view view(std::string_view text) {
    return {text.data(), text.size()};
}

}  // namespace

Result<void> checked(int code) {
    if (code == DTRUN_OK) return {};
    return fail(errc_of(code), "{}", dtrun_comm_error_text());
}

Result<RankGroup> RankGroup::join() {
    dtrun_worker* worker = nullptr;
    if (const int code = dtrun_init(nullptr, &worker); code != DTRUN_OK)
        return fail(errc_of(code), "{}", dtrun_error_text());
    RankGroup group;
    group.worker_.reset(worker);
    return group;
}

Result<std::vector<std::string>> RankGroup::gather(std::string_view name,
                                                   const std::string& own) const {
    if (size() == 1) return std::vector{own};
    dtrun_list all{};
    if (const int code = dtrun_fence(worker_.get(), view(name), view(own), kMeetMs, &all);
        code != DTRUN_OK)
        return fail(errc_of(code), "{}", dtrun_error_text());
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < all.count; ++i)
        texts.emplace_back(static_cast<const char*>(all.items[i].data), all.items[i].size);
    dtrun_free(all.items);
    return texts;
}

Result<void> RankGroup::agree(std::string_view name, const Result<void>& own) const {
    std::string text;
    if (!own) text = fmt::format("rank {} on {}: {}", rank(), host(), own.error().message);
    const auto all = gather(name, text);
    if (!all) return std::unexpected(all.error());
    for (const std::string& error : *all)
        if (!error.empty()) return fail(Errc::invalid_input, "{}", error);
    return {};
}

void RankGroup::leave(const std::string& failure) {
    dtrun_finalize(worker_.release(), failure.empty() ? nullptr : failure.c_str());
}

Result<Places> find_places(const RankGroup& group) {
    const auto hosts = group.gather("dtrun-bench/places", group.host());
    if (!hosts) return std::unexpected(hosts.error());
    std::map<std::string_view, std::uint32_t> slots;
    Places places;
    for (std::uint32_t rank = 0; rank < hosts->size(); ++rank) {
        const std::uint32_t before = slots[(*hosts)[rank]]++;
        if (rank == group.rank()) places.local_rank = before;
        places.slots_per_host = std::max(places.slots_per_host, before + 1);
    }
    places.hosts = static_cast<std::uint32_t>(slots.size());
    return places;
}

Result<Comm> Comm::create(const RankGroup& group, const std::string& backend, bool device) {
    dtrun_comm_options options{};
    options.size = sizeof options;
    options.backend = backend.c_str();
    options.device_memory = device ? 1 : 0;
    dtrun_comm* made = nullptr;
    if (auto done = checked(dtrun_comm_create(group.get(), &options, &made)); !done) {
        const bool names_it = done.error().message.find("\"" + backend + "\"") != std::string::npos;
        if (names_it) return std::unexpected(done.error());
        return fail(done.error(), "backend {}", backend);
    }
    Comm comm;
    comm.comm_.reset(made);
    return comm;
}

std::vector<std::pair<std::string, std::string>> Comm::facts() const {
    return parse_facts(dtrun_comm_facts(comm_.get()));
}

std::vector<std::pair<std::string, std::string>> parse_facts(std::string_view lines) {
    std::vector<std::pair<std::string, std::string>> facts;
    while (!lines.empty()) {
        const std::size_t end = std::min(lines.find('\n'), lines.size());
        const std::string_view line = lines.substr(0, end);
        if (const std::size_t colon = line.find(": "); colon != line.npos)
            facts.emplace_back(line.substr(0, colon), line.substr(colon + 2));
        lines.remove_prefix(std::min(end + 1, lines.size()));
    }
    return facts;
}

}  // namespace dtrun::lab::rank
