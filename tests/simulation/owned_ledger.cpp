#include "tests/simulation/owned_ledger.h"

#include "tests/simulation/ledger.h"

#include <fmt/format.h>

namespace dtrun::simulation {
namespace {

/// Whether somebody had a larger token for certain before that moment.
bool is_later_before(const std::map<std::uint64_t, OwnedLedger::Span>& spans, std::uint64_t token,
                     Deadline moment) {
    for (auto at = spans.upper_bound(token); at != spans.end(); ++at)
        if (at->second.returned < moment) return true;
    return false;
}

}  // namespace

void OwnedLedger::locked(const std::string& name, std::uint64_t token, Span span) {
    Lock& lock = locks_[name];
    ++grants_;
    if (!lock.grants.emplace(token, span).second)
        throw Contradiction(fmt::format("two were given lock {} with token {}", name, token));
    if (is_later_before(lock.grants, token, span.invoked))
        throw Contradiction(fmt::format("token {} of lock {} is not the largest", token, name));
    for (const auto& [earlier, end] : lock.ends)
        if (earlier < token && span.returned < end.invoked)
            throw Contradiction(
                fmt::format("lock {} was given with token {} while it was held "
                            "with token {}",
                            name, token, earlier));
}

void OwnedLedger::unlocked(const std::string& name, std::uint64_t token, Span span) {
    Lock& lock = locks_[name];
    lock.ends[token] = span;
    if (is_later_before(lock.grants, token, span.invoked))
        throw Contradiction(
            fmt::format("lock {} was held with token {} while others had it", name, token));
}

void OwnedLedger::wrote(const std::string& name, std::uint64_t token, Span span) {
    Lock& lock = locks_[name];
    if (is_later_before(lock.grants, token, span.invoked) ||
        is_later_before(lock.writes, token, span.invoked))
        throw Contradiction(
            fmt::format("something was done with token {} of lock {} after a later holder had it",
                        token, name));
    lock.writes[token] = span;
}

void OwnedLedger::pushed(const std::string& queue, const std::string& item) {
    queues_[queue].pushed.insert(item);
}

void OwnedLedger::claimed(const std::string& name, const std::string& item, Span span) {
    const Queue& queue = queues_[name];
    const auto done = queue.done.find(item);
    if (done != queue.done.end() && done->second.returned < span.invoked)
        throw Contradiction(
            fmt::format("item '{}' of {} was claimed after it was acknowledged", item, name));
}

void OwnedLedger::acknowledged(const std::string& name, const std::string& item, Span span) {
    ++acknowledgements_;
    if (!queues_[name].done.emplace(item, span).second)
        throw Contradiction(fmt::format("item '{}' of {} was acknowledged twice", item, name));
}

void OwnedLedger::acknowledges(const std::string& queue, const std::string& item) {
    queues_[queue].maybe_done.insert(item);
}

void OwnedLedger::not_acknowledged(const std::string& queue, const std::string& item) {
    auto& maybe_done = queues_[queue].maybe_done;
    maybe_done.erase(maybe_done.find(item));
}

std::set<std::string> OwnedLedger::left_in(const std::string& name) const {
    const auto found = queues_.find(name);
    if (found == queues_.end()) return {};
    std::set<std::string> left;
    for (const std::string& item : found->second.pushed)
        if (!found->second.done.contains(item) && !found->second.maybe_done.contains(item))
            left.insert(item);
    return left;
}

}  // namespace dtrun::simulation
