#pragma once

#include "base/clock.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace dtrun::simulation {

/// What programs were told of locks, and of items of queues that they have claimed: that no two hold one lock,
/// that nobody writes with a token after a later holder, and that each item is done once.
class OwnedLedger {
public:
    /// From when to when something was asked and answered.
    struct Span {
        Deadline invoked, returned;
    };

    /// \throws Contradiction, as all do
    void locked(const std::string& lock, std::uint64_t token, Span span);
    void unlocked(const std::string& lock, std::uint64_t token, Span span);
    /// Something was done on condition that this token was the lock's.
    void wrote(const std::string& lock, std::uint64_t token, Span span);

    void pushed(const std::string& queue, const std::string& item);
    void claimed(const std::string& queue, const std::string& item, Span span);
    /// Somebody is about to say that he has done it. If nothing is heard of it, it may be so.
    void acknowledges(const std::string& queue, const std::string& item);
    void acknowledged(const std::string& queue, const std::string& item, Span span);
    /// It was not his any more.
    void not_acknowledged(const std::string& queue, const std::string& item);
    /// Items that were pushed, and that nobody may have acknowledged yet.
    std::set<std::string> left_in(const std::string& queue) const;

    std::size_t grants() const { return grants_; }
    std::size_t acknowledgements() const { return acknowledgements_; }

private:
    struct Lock {
        std::map<std::uint64_t, Span> grants, ends, writes;  ///< by token; the last write
    };
    struct Queue {
        std::set<std::string> pushed;
        std::multiset<std::string> maybe_done;  ///< once for each who has said so
        std::map<std::string, Span> done;
    };

    std::map<std::string, Lock> locks_;
    std::map<std::string, Queue> queues_;
    std::size_t grants_ = 0;
    std::size_t acknowledgements_ = 0;
};

}  // namespace dtrun::simulation
