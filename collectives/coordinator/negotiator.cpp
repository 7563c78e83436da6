#include "collectives/coordinator/negotiator.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace dtrun::collectives {
namespace {

// An announcement is a word: a request's number or the length of a request, and these bits. What
// they announce follows: the request, a word with the number of extras, the extras.
constexpr std::uint32_t kInFull = 1u << 31;
constexpr std::uint32_t kHasExtras = 1u << 30;
constexpr std::uint32_t kValue = kHasExtras - 1;

void put_word(std::string& message, std::uint32_t word) {
    message.append(reinterpret_cast<const char*>(&word), sizeof word);
}

Result<std::uint32_t> take_word(std::string_view& message) {
    std::uint32_t word = 0;
    if (message.size() < sizeof word)
        return fail(Errc::invalid_input, "a rank's announcement ends early");
    std::memcpy(&word, message.data(), sizeof word);
    message.remove_prefix(sizeof word);
    return word;
}

}  // namespace

Negotiator::Negotiator(std::vector<std::uint32_t> names, std::size_t requests_max)
    : names_(std::move(names)),
      size_(static_cast<std::uint32_t>(names_.size())),
      requests_max_(requests_max),
      joined_(size_, false) {}

void Negotiator::announce(std::string& message, const std::string& encoded,
                          std::span<const std::int64_t> extras) const {
    const std::uint32_t more = extras.empty() ? 0 : kHasExtras;
    const auto known = numbers_.find(encoded);
    if (known != numbers_.end()) {
        put_word(message, known->second | more);
    } else {
        put_word(message, static_cast<std::uint32_t>(encoded.size()) | kInFull | more);
        message += encoded;
    }
    if (extras.empty()) return;
    put_word(message, static_cast<std::uint32_t>(extras.size()));
    message.append(reinterpret_cast<const char*>(extras.data()), extras.size_bytes());
}

Result<std::vector<Response>> Negotiator::take(std::span<const std::string_view> messages,
                                               std::chrono::milliseconds now) {
    begin(now);
    for (std::uint32_t rank = 0; rank < size_; ++rank) {
        std::string_view message = messages[rank];
        while (!message.empty())
            if (auto done = take_one(rank, message); !done)
                return fail(done.error(), "rank {}", rank);
    }
    std::vector<Response> responses;
    collect(responses);
    has_decided_ = !responses.empty();
    forget_if_many();
    return responses;
}

void Negotiator::begin(std::chrono::milliseconds now) {
    before_ = std::exchange(now_, now);
    if (has_decided_) last_decided_ = now;
    for (const std::string& name : came_last_)
        if (const auto at = open_.find(name); at != open_.end()) at->second.since = now;
    came_last_.clear();
}

std::vector<Stalled> Negotiator::stalled() const {
    std::vector<Stalled> all;
    for (const auto& [name, open] : open_) {
        const bool is_join = open.response.request->operation == RequestKind::join;
        std::chrono::milliseconds since = open.since.value_or(now_);
        if (is_join) since = std::max(since, has_decided_ ? now_ : last_decided_);
        Stalled stalled{.request = open.response.request.get(),
                        .waiting = {},
                        .absent = {},
                        .age = std::max(before_ - since, std::chrono::milliseconds(0)),
                        .order = open.order};
        for (std::uint32_t rank = 0; rank < size_; ++rank)
            if (open.response.present[rank])
                stalled.waiting.push_back(rank);
            else if (is_join || !joined_[rank])
                stalled.absent.push_back(rank);
        all.push_back(std::move(stalled));
    }
    return all;
}

Result<void> Negotiator::take_one(std::uint32_t rank, std::string_view& message) {
    const auto word = take_word(message);
    if (!word) return std::unexpected(word.error());
    const auto request = request_of(*word, message);
    if (!request) return std::unexpected(request.error());
    std::vector<std::int64_t> extras;
    if ((*word & kHasExtras) != 0) {
        const auto number = take_word(message);
        if (!number) return std::unexpected(number.error());
        if (*number > message.size() / sizeof(std::int64_t))
            return fail(Errc::invalid_input, "an announcement ends early");
        extras.resize(*number);
        if (*number > 0) std::memcpy(extras.data(), message.data(), *number * sizeof(std::int64_t));
        message.remove_prefix(*number * sizeof(std::int64_t));
    }
    add(rank, *request, std::move(extras));
    return {};
}

Result<Negotiator::Known> Negotiator::request_of(std::uint32_t word, std::string_view& message) {
    const std::uint32_t value = word & kValue;
    if ((word & kInFull) == 0) {
        if (value < requests_.size()) return requests_[value];
        return fail(Errc::invalid_input, "there is no request {}", value);
    }
    if (value > message.size()) return fail(Errc::invalid_input, "an announcement ends early");
    std::string encoded(message.substr(0, value));
    message.remove_prefix(value);
    const auto known = numbers_.find(encoded);  // another rank has sent it just before
    if (known != numbers_.end()) return requests_[known->second];
    auto request = decode_request(encoded);
    if (!request) return std::unexpected(request.error());
    numbers_.emplace(std::move(encoded), static_cast<std::uint32_t>(requests_.size()));
    requests_.push_back(std::make_shared<const Request>(std::move(*request)));
    return requests_.back();
}

void Negotiator::add(std::uint32_t rank, const Known& request, std::vector<std::int64_t> extras) {
    const auto [at, is_new] = open_.try_emplace(request->name);
    Open& open = at->second;
    if (is_new) {
        open.response.request = request;
        open.response.extras.resize(size_);
        open.response.present.resize(size_, false);
        open.first_rank = rank;
        open.order = next_order_++;
        came_last_.push_back(request->name);
    } else if (open.response.request != request && open.response.failure.empty()) {
        open.response.failure =
            difference(*open.response.request, names_[open.first_rank], *request, names_[rank]);
    }
    if (open.response.present[rank]) return;  // a rank does not use a name twice at a time
    open.response.present[rank] = true;
    open.response.extras[rank] = std::move(extras);
    ++open.announced;
    if (request->operation == RequestKind::join) join(rank);
    if (open.announced + joined_number_ >= size_) maybe_ready_.push_back(request->name);
}

void Negotiator::join(std::uint32_t rank) {
    joined_[rank] = true;
    ++joined_number_;
    last_joined_ = rank;
    for (const auto& [name, open] : open_) maybe_ready_.push_back(name);
}

/// Why ranks that have joined cannot take part; "" if they can.
std::string Negotiator::refusal(const Response& response) const {
    const Request& request = *response.request;
    const auto absent = std::ranges::find(response.present, false);
    if (absent == response.present.end()) return {};
    const auto rank = static_cast<std::size_t>(absent - response.present.begin());
    switch (request.operation) {
        case RequestKind::allreduce:
            if (request.reduce == Reduce::min || request.reduce == Reduce::max ||
                request.reduce == Reduce::product)
                break;
            return {};
        case RequestKind::barrier:
        case RequestKind::join:
            return {};
        case RequestKind::reduce_scatter:
        case RequestKind::allgather:
        case RequestKind::broadcast:
        case RequestKind::alltoall:
            break;
    }
    return fmt::format("{} cannot be done for \"{}\" since rank {} has joined and has no data",
                       describe(request), request.name, names_[rank]);
}

bool Negotiator::is_ready(const Open& open) const {
    const bool is_join = open.response.request->operation == RequestKind::join;
    for (std::uint32_t rank = 0; rank < size_; ++rank)
        if (!open.response.present[rank] && (is_join || !joined_[rank])) return false;
    return true;
}

void Negotiator::collect(std::vector<Response>& responses) {
    std::vector<Open> ready;
    for (const std::string& name : maybe_ready_) {
        const auto at = open_.find(name);
        if (at == open_.end() || !is_ready(at->second)) continue;
        ready.push_back(std::move(at->second));
        open_.erase(at);
    }
    maybe_ready_.clear();
    std::ranges::sort(ready, {}, &Open::order);
    for (Open& open : ready) {
        Response& response = open.response;
        if (response.failure.empty()) response.failure = refusal(response);
        if (response.request->operation == RequestKind::join) {
            response.last_joined = last_joined_;
            joined_.assign(size_, false);
            joined_number_ = 0;
        }
        responses.push_back(std::move(response));
    }
    // A join ends what came before it, whoever was the first to ask for it.
    std::ranges::stable_partition(responses, [](const Response& response) {
        return response.request->operation != RequestKind::join;
    });
}

void Negotiator::forget_if_many() {
    if (requests_.size() < requests_max_) return;
    requests_.clear();
    numbers_.clear();
}

}  // namespace dtrun::collectives
