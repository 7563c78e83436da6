#pragma once

#include "base/clock.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::mpi {

/// What one client of PMI waits for from other ranks, since when, and which of its threads is to be
/// told (PMI-2's "thrid"; empty in PMI-1, where a client has one request under way).
///
/// Thread: one.
class PmiWaits {
public:
    bool in_barrier() const { return barrier_.has_value(); }
    void begin_barrier(std::string_view thread);
    /// \return the thread; only while in_barrier()
    std::string end_barrier();

    bool in_ring() const { return ring_.has_value(); }
    void begin_ring(std::string_view thread);
    std::string end_ring();  ///< as end_barrier()

    /// For a value that another rank of the host is to put. Several threads may wait for one.
    void begin_attribute(std::string_view key, std::string_view thread);
    /// \return the threads that have waited for it, in their order
    std::vector<std::string> end_attribute(std::string_view key);
    void forget_attributes() { attributes_.clear(); }
    std::size_t attributes() const { return attributes_.size(); }  ///< that are waited for

    /// Neither the barrier nor the ring comes to an end.
    void give_up();

    struct Waiting {
        const char* what = nullptr;
        Deadline since{};
    };
    /// The one that tells most, for a person.
    std::optional<Waiting> waiting() const;

private:
    struct Wait {
        std::string thread;
        Deadline since{};
    };
    struct AttributeWait {
        std::string key;
        Wait wait;
    };

    std::optional<Wait> barrier_;
    std::optional<Wait> ring_;
    std::vector<AttributeWait> attributes_;
};

}  // namespace dtrun::mpi
