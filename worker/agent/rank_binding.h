#pragma once

#include "rendezvous/wire/binding_request.h"
#include "worker/binding/bind_plan.h"
#include "worker/binding/gpu_numbers.h"
#include "worker/binding/machine.h"
#include "worker/ranks/rank_service.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::agent {

/// Gives each rank of this host its processors, looks whether it has them once it runs, and says how many
/// threads suit it. The host's topology is read only where the user asks for any of that. When a host gets
/// more slots, ranks that run give up the processors of the new ones.
class RankBinding final : public ranks::RankService {
public:
    struct Options {
        BindingRequest request;
        std::uint32_t scheduler_cpus = 0;  ///< of each task; 0: not known
        bool devices_by_slot = false;      ///< ranks see the GPUs of their slots
        binding::Variable variable;        ///< of the ranks' environment, else of the agent's
        std::function<void(const std::string& text)> tell;  ///< for the user
    };
    explicit RankBinding(Options options);

    Result<void> open(contracts::ContractFacts& facts) override;
    asio::awaitable<Result<void>> prepare(const std::string& program) override;
    HostProblem problem() const override { return HostProblem::binding; }
    Result<void> begin(const Assign& assign) override;
    Result<void> go_on(const Assign& assign) override;
    Result<void> offer(const Assign& world, const RankSlot& rank, ranks::RankOffer& offer) override;
    void started(RankPid& rank) override;
    void ended(Exited& exited) override { running_.erase(exited.place); }

private:
    void grow(std::uint32_t places);
    void move(SlotIndex place, const binding::CpuList& from);
    void choose_threads();
    Result<void> plan(const std::vector<std::size_t>& visible);
    const binding::BoundPlace* place_of(SlotIndex place) const;
    void compare(const RankPid& rank, const binding::CpuList& has) const;

    Options options_;
    std::uint32_t ranks_ = 1;  // that may run here at once
    bool says_threads_ = false;
    std::optional<binding::Machine> machine_;
    std::vector<std::size_t> visible_;  // GPUs
    std::map<SlotIndex, pid_t> running_;
    std::optional<binding::BindPlan> plan_;
    std::vector<std::uint32_t> threads_;  // by place, in turn
    bool has_grown_ = false;
    Result<void> planned_;
};

}  // namespace dtrun::agent
