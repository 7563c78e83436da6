#pragma once

#include "collectives/group.h"

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::collectives::over_gloo {

/// The job's store as Gloo wants it, which lets its ranks meet by it.
class GlooStore final : public ::gloo::rendezvous::Store {
public:
    explicit GlooStore(const GroupSpec& spec) : spec_(spec) {}

    /// Waits for all ranks, so that one that cannot come is named, and not only waited for.
    /// Errc: timed_out, invalid_input (a rank cannot come: why), closed, cancelled
    Result<void> meet();
    /// Tells the others why this rank will not come.
    void refuse(const std::string& why);
    /// Why the store failed, if it did.
    const std::optional<Error>& error() const { return error_; }

    void set(const std::string& key, const std::vector<char>& data) override;
    std::vector<char> get(const std::string& key) override;
    void wait(const std::vector<std::string>& keys) override;
    void wait(const std::vector<std::string>& keys,
              const std::chrono::milliseconds& timeout) override;

private:
    std::string key_of(const std::string& key) const { return spec_.prefix + "gloo/" + key; }
    std::vector<std::string> fetch(const std::vector<std::string>& keys,
                                   std::chrono::milliseconds timeout);
    [[noreturn]] void give_up(const Error& error);

    GroupSpec spec_;
    std::optional<Error> error_;
};

}  // namespace dtrun::collectives::over_gloo
