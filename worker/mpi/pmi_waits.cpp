#include "worker/mpi/pmi_waits.h"

#include <utility>

namespace dtrun::mpi {

void PmiWaits::begin_barrier(std::string_view thread) {
    barrier_ = Wait{std::string(thread), Clock::now()};
}

std::string PmiWaits::end_barrier() {
    return std::exchange(barrier_, std::nullopt)->thread;
}

void PmiWaits::begin_ring(std::string_view thread) {
    ring_ = Wait{std::string(thread), Clock::now()};
}

std::string PmiWaits::end_ring() {
    return std::exchange(ring_, std::nullopt)->thread;
}

void PmiWaits::begin_attribute(std::string_view key, std::string_view thread) {
    attributes_.push_back({std::string(key), {std::string(thread), Clock::now()}});
}

std::vector<std::string> PmiWaits::end_attribute(std::string_view key) {
    std::vector<std::string> threads;
    std::erase_if(attributes_, [&](AttributeWait& attribute) {
        if (attribute.key != key) return false;
        threads.push_back(std::move(attribute.wait.thread));
        return true;
    });
    return threads;
}

void PmiWaits::give_up() {
    barrier_.reset();
    ring_.reset();
}

std::optional<PmiWaits::Waiting> PmiWaits::waiting() const {
    if (barrier_)
        return Waiting{"the other ranks in a barrier of PMI (MPI_Init or MPI_Finalize)",
                       barrier_->since};
    if (ring_) return Waiting{"the other ranks in a ring of PMI (MPI_Init)", ring_->since};
    if (!attributes_.empty())
        return Waiting{"another rank of its host, which is to put an attribute (PMI-2)",
                       attributes_.front().wait.since};
    return {};
}

}  // namespace dtrun::mpi
