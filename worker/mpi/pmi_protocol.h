#pragma once

#include "worker/mpi/pmi_wire.h"

#include <string>

namespace dtrun::mpi {

/// A version of PMI: what a client may ask in it, and how it is answered.
///
/// Thread: one.
class PmiProtocol {
public:
    virtual ~PmiProtocol() = default;
    virtual void execute(const PmiCommand& command) = 0;
    /// Whether what comes next has to wait for an answer to what came before.
    virtual bool is_blocked() const = 0;
    /// \param thread  that has entered it; empty in PMI-1
    virtual void barrier_passed(const std::string& thread) = 0;
};

}  // namespace dtrun::mpi
