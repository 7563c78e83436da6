#pragma once

#include "base/fd.h"
#include "rendezvous/wire/login_messages.h"
#include "worker/agent/onward_logins.h"

#include <memory>
#include <string>
#include <vector>

namespace dtrun::ranks {
class Supervisor;
}

namespace dtrun::agent {

/// The arguments of ssh for a log-in. Whose key is right the head has said: neither this host's files of known keys nor
/// its name service nor a command nor a connection that is there already is asked. How to get in is for the configuration
/// of ssh here.
/// \param known_hosts  a file in which `known_as` has its keys
std::vector<std::string> ssh_arguments(const LoginOrder& order, const std::string& known_hosts);

/// The lines of that file.
std::string known_hosts_lines(const LoginOrder& order);

/// Starts this host's ssh, found along PATH. It ends with us.
/// \param supervisor  is asked when something is started; whom it points to outlives that
StartLogin start_ssh_with(std::shared_ptr<ranks::Supervisor*> supervisor);

}  // namespace dtrun::agent
