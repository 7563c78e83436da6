#include "worker/mpi/pmi_table.h"

#include <algorithm>

namespace dtrun::mpi {
namespace {

constexpr std::size_t kEntryBytes = 128;  // about what it takes to keep one

}  // namespace

Result<void> PmiTable::put(std::string_view key, std::string_view value) {
    if (key.empty() || key.size() > kKeyBytesMax)
        return fail(Errc::invalid_input, "a key has 1 to {} bytes", kKeyBytesMax);
    if (value.size() > kValueBytesMax)
        return fail(Errc::invalid_input, "a value has at most {} bytes", kValueBytesMax);
    const std::size_t bytes = key.size() + value.size() + 8;
    if (new_bytes_ + bytes > kNewBytesMax)
        return fail(Errc::invalid_input, "too many values before one barrier");
    std::size_t index = 0;
    if (auto done = set(key, value, index); !done) return done;
    new_.push_back(index);
    new_bytes_ += bytes;
    return {};
}

Result<void> PmiTable::set(std::string_view key, std::string_view value, std::size_t& index) {
    const auto known = index_.find(key);
    if (known != index_.end()) {
        index = known->second;
        bytes_ -= entries_[index].value.size();
        entries_[index].value = value;
        bytes_ += value.size();
        return {};
    }
    const std::size_t bytes = 2 * key.size() + value.size() + kEntryBytes;
    if (bytes_ + bytes > kBytesMax) return fail(Errc::invalid_input, "too many values");
    index = entries_.size();
    entries_.push_back({std::string(key), std::string(value)});
    index_.emplace(key, index);
    bytes_ += bytes;
    return {};
}

const std::string* PmiTable::get(std::string_view key) const {
    const auto known = index_.find(key);
    return known == index_.end() ? nullptr : &entries_[known->second].value;
}

const PmiTable::Entry* PmiTable::at(std::size_t index) const {
    return index < entries_.size() ? &entries_[index] : nullptr;
}

Bytes PmiTable::take_new() {
    // A key that was put twice goes once, with its last value.
    std::ranges::sort(new_);
    const auto twice = std::ranges::unique(new_);
    new_.erase(twice.begin(), twice.end());
    Bytes bytes;
    PackWriter out(bytes);
    out.array(static_cast<std::uint32_t>(1 + 2 * new_.size()));
    out.uint(node_rank_);
    for (const std::size_t index : new_) {
        out.bin(entries_[index].key);
        out.bin(entries_[index].value);
    }
    new_.clear();
    new_bytes_ = 0;
    return bytes;
}

Result<void> PmiTable::merge(std::string_view bytes) {
    PackReader in(bytes);
    const std::uint32_t items = in.array();
    const std::uint64_t node_rank = in.uint();
    if (!in.ok() || items % 2 == 0)
        return fail(Errc::invalid_input, "a host's part of a barrier of PMI");
    if (node_rank == node_rank_) return {};  // here since they were put
    for (std::uint32_t left = items / 2; left > 0; --left) {
        const std::string_view key = in.bin();
        const std::string_view value = in.bin();
        std::size_t index = 0;
        if (!in.ok()) return fail(Errc::invalid_input, "a host's part of a barrier of PMI");
        if (auto done = set(key, value, index); !done) return done;
    }
    if (!in.at_end()) return fail(Errc::invalid_input, "a host's part of a barrier of PMI");
    return {};
}

}  // namespace dtrun::mpi
