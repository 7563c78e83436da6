#pragma once

#include "base/loop/asio.h"
#include "base/loop/deadline.h"
#include "base/result.h"
#include "launcher/transport/dial.h"
#include "launcher/transport/known_hosts.h"
#include "launcher/transport/ssh_settings.h"
#include "rendezvous/wire/login_messages.h"

#include <optional>
#include <string>
#include <vector>

namespace dtrun::transport {

/// What known_hosts says of a host to log in to.
struct NamedHost {
    std::string name;  ///< under which it stands there
    KnownHost known;
    /// Of it at any port, where there is none of this one: as ssh has it, such a key does as well.
    KnownHost known_anywhere;

    const std::vector<HostKey>& keys() const {
        return known.keys.empty() ? known_anywhere.keys : known.keys;
    }
};
/// \param files  of the job; outlives the call. Errc: timed_out, cancelled
asio::awaitable<Result<NamedHost>> find_keys(Pool& pool, KnownHostsFiles& files,
                                             const SshSettings& settings, Deadline deadline);

/// How another host is to log in to one, as these settings would, but with its own keys and by the program ssh. Nothing
/// where known_hosts has no key by which that could be told from another.
std::optional<LoginOrder> order_login(const Host& host, const SshSettings& settings,
                                      const NamedHost& named, std::string command);

}  // namespace dtrun::transport
