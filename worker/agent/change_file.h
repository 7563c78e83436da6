#pragma once

#include "rendezvous/wire/change.h"
#include "worker/ranks/rank_service.h"

#include <string>

namespace dtrun::agent {

/// The file that DTRUN_CHANGE_FILE names, for programs in any language. It is there while a change of hosts is
/// known that has not happened, with one line in it: generation, reason, and until when the ranks may go on,
/// as Unix time in seconds, or 0.
class ChangeFile final : public ranks::RankService {
public:
    /// \param directory_prefix  of the directory that it makes for itself; empty: there is no file
    explicit ChangeFile(std::string directory_prefix) : prefix_(std::move(directory_prefix)) {}
    ~ChangeFile() override;

    Result<void> open(contracts::ContractFacts& facts) override;
    Result<void> begin(const Assign& assign) override { return go_on(assign); }
    Result<void> go_on(const Assign& assign) override;
    void changing(const Change& change) override;

private:
    std::string path() const { return directory_ + "/change"; }

    std::string prefix_;
    std::string directory_;
};

/// "joined" and so on.
const char* name_of(ChangeReason reason);

}  // namespace dtrun::agent
