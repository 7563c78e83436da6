#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace dtrun::collectives {

/// Says that an operation waits for ranks which do not come: after a time, then each time that it has waited twice as
/// long, at least every hour; and that it is over. It decides when, and knows nothing of who waits.
///
/// Thread: that of the watchdog; set_limit() by any.
class StallTeller {
public:
    struct Options {
        std::chrono::milliseconds limit{0};  ///< of waiting, until it is told; 0: never
        /// One line for the user, said by one of the ranks that wait.
        std::function<void(const std::string& line)> tell_user{};
        /// For who looks at the job, said by each rank for itself. \param waited  nothing: it is over
        std::function<void(const std::string& what,
                           std::optional<std::chrono::milliseconds> waited)>
            report{};
    };

    explicit StallTeller(Options options) : options_(std::move(options)), limit_(options_.limit) {}

    std::chrono::milliseconds limit() const { return limit_; }
    void set_limit(std::chrono::milliseconds limit) { limit_ = limit; }
    /// Whether the operation, which has waited so long, is to be told if ranks are missing.
    bool is_due(std::chrono::milliseconds waited) const;
    /// \param what  the operation and who is missing, the same on all ranks that wait
    /// \param line  for the user; "": another rank says it
    void tell(const std::string& what, const std::string& line, std::chrono::milliseconds waited);
    /// All have come to an operation that goes on: it is looked at again when it has lasted twice as long.
    void all_there(std::chrono::milliseconds waited);
    /// The operation is over.
    void end();

private:
    void look_again(std::chrono::milliseconds waited);

    const Options options_;
    std::atomic<std::chrono::milliseconds> limit_;
    std::chrono::milliseconds next_{0};  ///< when it is looked at again
    std::string told_;                   ///< what report() has said last; "": nothing
};

}  // namespace dtrun::collectives
