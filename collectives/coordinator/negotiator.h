#pragma once

#include "collectives/coordinator/request.h"
#include "collectives/coordinator/stall.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace dtrun::collectives {

/// Something that all ranks do, or are told together that they cannot.
struct Response {
    std::shared_ptr<const Request> request;
    std::string failure;  ///< "" if it is to be done
    /// By rank: what it has added to its announcement (rows of its tensors, or its splits); empty
    /// for a rank that has joined.
    std::vector<std::vector<std::int64_t>> extras;
    std::vector<bool> present;      ///< by rank; false: it has joined, and takes part with zeros
    std::uint32_t last_joined = 0;  ///< for join: the rank that came last
};

/// Decides what is ready on all ranks. It is fed the same messages on every rank, and so every rank
/// comes to the same responses, in the same order, without a master.
///
/// A request is sent in full once; afterwards by the number that it then got, which is the same on
/// all ranks because all of them see all messages in the same order.
class Negotiator {
public:
    /// \param names         by rank: its rank in the job, for messages
    /// \param requests_max  how many requests are kept by number until all are forgotten
    explicit Negotiator(std::vector<std::uint32_t> names, std::size_t requests_max = 1u << 16);

    /// Appends an announcement of this rank to its message for the next take().
    /// \param encoded  the request's encode()
    /// \param extras   see Response
    void announce(std::string& message, const std::string& encoded,
                  std::span<const std::int64_t> extras) const;

    /// \param messages  of all ranks, by rank
    /// \param now       the same on all ranks: when one of them began to exchange these messages
    /// \return in the order in which they are to be done; invalid_input: a message makes no sense
    Result<std::vector<Response>> take(std::span<const std::string_view> messages,
                                       std::chrono::milliseconds now);

    /// What some ranks wait for and others have not asked for, as of the last take(). A join waits
    /// since something was last decided: ranks that still have data make others wait with reason.
    ///
    /// An exchange takes as long as its last rank needs, so that what came with one is known to wait
    /// from the begin of the next one, and to have waited until the begin of the one before this:
    /// what ranks say now, each may have said just after that. What is fresh is never old.
    std::vector<Stalled> stalled() const;

private:
    struct Open {
        Response response;
        std::uint32_t first_rank = 0;
        std::uint64_t order = 0;
        std::uint32_t announced = 0;
        std::optional<std::chrono::milliseconds>
            since;  ///< unset: it has come with the last take()
    };
    using Known = std::shared_ptr<const Request>;

    Result<void> take_one(std::uint32_t rank, std::string_view& message);
    Result<Known> request_of(std::uint32_t word, std::string_view& message);
    void begin(std::chrono::milliseconds now);
    void add(std::uint32_t rank, const Known& request, std::vector<std::int64_t> extras);
    void join(std::uint32_t rank);
    bool is_ready(const Open& open) const;
    void collect(std::vector<Response>& responses);
    std::string refusal(const Response& response) const;
    void forget_if_many();

    const std::vector<std::uint32_t> names_;
    const std::uint32_t size_;
    const std::size_t requests_max_;
    std::vector<Known> requests_;                             ///< by number
    std::unordered_map<std::string, std::uint32_t> numbers_;  ///< by encode()
    std::unordered_map<std::string, Open> open_;              ///< by name
    std::vector<std::string> maybe_ready_;
    std::vector<bool> joined_;
    std::uint32_t joined_number_ = 0;
    std::uint32_t last_joined_ = 0;
    std::uint64_t next_order_ = 0;
    std::vector<std::string> came_last_;  ///< names of what has come with the last take()
    std::chrono::milliseconds now_{0};
    std::chrono::milliseconds before_{0};  ///< of the take() before the last one
    bool has_decided_ = false;             ///< the last take()
    std::chrono::milliseconds last_decided_{0};
};

}  // namespace dtrun::collectives
