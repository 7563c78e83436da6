#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

namespace dtrun::collectives {

/// The stream of the GPU in which each thread works on the arrays that it gives to one communicator:
/// what dtrun_comm_set_stream() has told. Threads of frameworks have streams of their own, so one
/// thread's choice is none of another's.
class CallerStream {
public:
    ~CallerStream() { set(nullptr); }

    void set(void* stream) const {
        const auto found = std::ranges::find(chosen_, number_, &Choice::first);
        if (found != chosen_.end()) chosen_.erase(found);
        if (stream != nullptr) chosen_.emplace_back(number_, stream);
    }
    /// nullptr: the legacy default stream
    void* get() const {
        const auto found = std::ranges::find(chosen_, number_, &Choice::first);
        return found == chosen_.end() ? nullptr : found->second;
    }

private:
    using Choice = std::pair<std::uint64_t, void*>;
    static inline thread_local std::vector<Choice> chosen_;
    static inline std::atomic<std::uint64_t> last_number_ = 0;

    const std::uint64_t number_ = ++last_number_;  ///< addresses of communicators are used again
};

}  // namespace dtrun::collectives
