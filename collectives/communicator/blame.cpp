#include "collectives/communicator/blame.h"

#include "collectives/user_text.h"

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

namespace dtrun::collectives {
namespace {

using std::chrono::milliseconds;

/// A failing rank leaves its note within this time, which allows for a store round trip on a busy
/// host.
constexpr milliseconds kNoteWithin{1'500};
constexpr milliseconds kReadAgain{100};
constexpr std::uint32_t kReadMax = 64;

// A note is one of these and, behind it, a rank or a text.
constexpr std::string_view kLost = "lost ", kWhy = "why ", kDisagree = "disagree ";
constexpr std::string_view kLostUnknown = "lost ?";

/// 0 where there is none.
std::uint32_t rank_of(std::string_view text) {
    std::uint32_t rank = 0;
    std::from_chars(text.data(), text.data() + text.size(), rank);
    return rank;
}

}  // namespace

void Blame::put_on(std::optional<std::uint32_t> other) {
    leave(other ? fmt::format("{}{}", kLost, *other) : std::string(kLostUnknown));
}

void Blame::say_why(const std::string& why) {
    leave(std::string(kWhy) + why);
}

void Blame::say_how_ranks_disagree(const std::string& how) {
    leave(std::string(kDisagree) + how);
}

void Blame::leave(const std::string& note) {
    if (has_left_.exchange(true) || group_.size == 1) return;
    // The second key tells all ranks whose note to read.
    const KeyStore::Pair pairs[] = {{key(group_.rank), note},
                                    {group_.prefix + "/failed", std::to_string(group_.rank)}};
    // find() tests the store first, since set() would never end on one that does not answer.
    // Without a store the job is over, and all ranks know that.
    if (group_.store->find(pairs[0].first)) static_cast<void>(group_.store->set(pairs));
}

Result<std::optional<std::uint32_t>> Blame::first_note() const {
    const auto failed = group_.store->find(group_.prefix + "/failed");
    if (!failed) return std::unexpected(failed.error());
    if (!*failed) return std::nullopt;
    const std::uint32_t rank = rank_of(**failed);
    return rank == group_.rank || rank >= group_.size ? std::nullopt : std::optional(rank);
}

/// Goes from note to note, to the rank that has caused the failure.
Error Blame::follow(std::uint32_t suspect, const std::string& what) const {
    std::set<std::uint32_t> seen{group_.rank};
    std::string text = what;
    while (seen.insert(suspect).second) {
        const std::string note_of = key(suspect);
        const auto note = group_.store->get({&note_of, 1}, kNoteWithin);
        if (!note && note.error().code != Errc::timed_out)
            return {Errc::closed, fmt::format("{} is gone, or the job has ended: {}: {}",
                                              group_.name(suspect), text, note.error().message)};
        if (!note) return {Errc::closed, fmt::format("{} is gone: {}", group_.name(suspect), text)};
        const std::string_view blames = note->front();
        if (auto error = reason_in(blames, suspect)) return *error;
        if (blames == kLostUnknown) break;
        text = "its connection broke";
        suspect = rank_of(blames.substr(std::min(kLost.size(), blames.size())));
        if (suspect >= group_.size) break;
    }
    return survey(what);
}

Error Blame::survey(const std::string& what) const {
    const std::uint32_t ranks = std::min(group_.size, kReadMax);
    const auto until = std::chrono::steady_clock::now() + kNoteWithin;
    std::vector<std::uint32_t> silent;
    do {
        silent.clear();
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            const auto note = group_.store->find(key(rank));
            if (!note) return {Errc::closed, note.error().message};
            if (!*note)
                silent.push_back(rank);
            else if (auto error = reason_in(**note, rank))
                return *error;
        }
        if (!silent.empty()) std::this_thread::sleep_for(kReadAgain);
    } while (!silent.empty() && std::chrono::steady_clock::now() < until);
    const std::string some =
        group_.size > kReadMax ? fmt::format("the first {} ranks", kReadMax) : "";
    const std::string_view among = some.empty() ? "" : ", or one behind ";
    if (silent.empty())
        return {Errc::closed,
                fmt::format("connections between ranks broke, and none of {} is gone: {}",
                            some.empty() ? "them" : some, what)};
    // Silent ranks may also be computing, and not have noticed the failure.
    return {Errc::closed, fmt::format("{}{}{}{} is gone: {}", silent.size() == 1 ? "" : "one of ",
                                      name_some(silent, group_.name), among, some, what)};
}

/// Nothing if the note blames another rank.
std::optional<Error> Blame::reason_in(std::string_view note, std::uint32_t rank) const {
    if (note.starts_with(kDisagree))
        return Error{Errc::invalid_input, std::string(note.substr(kDisagree.size()))};
    if (note.starts_with(kWhy))
        return Error{Errc::closed, fmt::format("{} has ended it: {}", group_.name(rank),
                                               note.substr(kWhy.size()))};
    return std::nullopt;
}

std::string Blame::key(std::uint32_t rank) const {
    return fmt::format("{}/failed/{}", group_.prefix, rank);
}

}  // namespace dtrun::collectives
