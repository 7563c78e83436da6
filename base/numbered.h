#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <ranges>
#include <utility>

namespace dtrun {

// What a job numbers. Each kind of number has a type of its own, which has no arithmetic, does not
// convert into another kind, and comes from a plain integer only where that is written out:
// HostId{3}, std::to_underlying(host). Messages encode it as the integer.

/// A host of a job: its index among the hosts of the launcher that runs it.
enum class HostId : std::uint32_t {};

/// A rank: its number in the job, as every program is told it.
enum class Rank : std::uint32_t {};
/// "No rank" or "not known", where a rank is named.
inline constexpr Rank kNoRank{0xffff'ffff};

/// A place for a rank on a host: an index among the slots that the job has there. A process keeps its place
/// for as long as it lives, whatever its rank is.
enum class SlotIndex : std::uint32_t {};

/// A member of a job, for as long as it takes part, over reconnects.
enum class MemberId : std::uint64_t {};

template <class T>
concept Numbered = std::same_as<T, HostId> || std::same_as<T, Rank> || std::same_as<T, SlotIndex> ||
    std::same_as<T, MemberId>;

/// For fmt.
template <Numbered T>
constexpr auto format_as(T number) {
    return std::to_underlying(number);
}

/// The numbers from 0 to count - 1, in order.
template <Numbered T>
auto numbers_below(std::size_t count) {
    using Integer = std::underlying_type_t<T>;
    return std::views::iota(Integer{0}, static_cast<Integer>(count)) |
           std::views::transform([](Integer number) { return T{number}; });
}
/// Whether `number` is one of numbers_below(count).
template <Numbered T>
constexpr bool is_below(T number, std::size_t count) {
    return std::to_underlying(number) < count;
}

inline auto all_hosts(std::size_t count) {
    return numbers_below<HostId>(count);
}
inline auto all_ranks(std::size_t count) {
    return numbers_below<Rank>(count);
}

/// An item for each host of a job. Hosts may be added: references to items stay valid.
template <class T>
class PerHost {
public:
    PerHost() = default;
    explicit PerHost(std::size_t hosts) : items_(hosts) {}
    PerHost(std::size_t hosts, const T& item) : items_(hosts, item) {}
    PerHost(std::initializer_list<T> items) : items_(items) {}

    decltype(auto) operator[](HostId host) { return items_[std::to_underlying(host)]; }
    decltype(auto) operator[](HostId host) const { return items_[std::to_underlying(host)]; }
    bool has(HostId host) const { return is_below(host, items_.size()); }
    auto hosts() const { return all_hosts(items_.size()); }

    std::size_t size() const { return items_.size(); }
    bool empty() const { return items_.empty(); }
    decltype(auto) front() { return items_.front(); }
    decltype(auto) front() const { return items_.front(); }
    decltype(auto) back() { return items_.back(); }
    auto begin() { return items_.begin(); }
    auto begin() const { return items_.begin(); }
    auto end() { return items_.end(); }
    auto end() const { return items_.end(); }

    void push_back(T item) { items_.push_back(std::move(item)); }
    T& emplace_back() { return items_.emplace_back(); }

private:
    std::deque<T> items_;
};

}  // namespace dtrun
