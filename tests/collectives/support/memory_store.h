#pragma once

#include "collectives/key_store.h"

#include <condition_variable>
#include <map>
#include <mutex>

namespace dtrun::collectives {

/// A job's store for ranks that are threads of one process.
class MemoryStore final : public KeyStore {
public:
    Result<void> set(std::span<const Pair> pairs) override {
        const std::lock_guard lock(mutex_);
        ++round_trips_;
        for (const auto& [key, value] : pairs) values_[key] = value;
        changed_.notify_all();
        return {};
    }

    Result<std::vector<std::string>> get(std::span<const std::string> keys,
                                         std::chrono::milliseconds timeout) override {
        std::unique_lock lock(mutex_);
        ++round_trips_;
        const auto there = [&] {
            for (const std::string& key : keys)
                if (!values_.contains(key)) return false;
            return true;
        };
        if (!changed_.wait_for(lock, timeout, there))
            return fail(Errc::timed_out, "nobody has set {}", missing(keys));
        std::vector<std::string> found;
        for (const std::string& key : keys) found.push_back(values_[key]);
        return found;
    }

    Result<std::optional<std::string>> find(const std::string& key) override {
        const std::lock_guard lock(mutex_);
        ++round_trips_;
        const auto found = values_.find(key);
        if (found == values_.end()) return std::nullopt;
        return found->second;
    }

    std::size_t round_trips() const {
        const std::lock_guard lock(mutex_);
        return round_trips_;
    }

private:
    std::string missing(std::span<const std::string> keys) const {
        for (const std::string& key : keys)
            if (!values_.contains(key)) return key;
        return {};
    }

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, std::string> values_;
    std::size_t round_trips_ = 0;
};

}  // namespace dtrun::collectives
