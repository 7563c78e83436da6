#pragma once

#include "base/fd.h"
#include "rendezvous/wire/login_messages.h"
#include "worker/agent/onward_logins.h"

#include <memory>
#include <string>
#include <string_view>
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

/// The option by which the head says that it lends us the user's ssh-agent for these log-ins.
inline constexpr std::string_view kLentAgent = "--lent-ssh-agent";

/// Removes the ssh-agent that came with our log-in from the environment, as it is not the ranks': when they run it has been
/// taken back. One that this host has set itself stays. Before any thread is started.
/// \return its socket; empty: none has come
std::string take_lent_agent();

/// Starts this host's ssh, found along PATH. It ends with us.
/// \param supervisor  is asked when something is started; whom it points to outlives that
/// \param lent_agent  that of take_lent_agent()
StartLogin start_ssh_with(std::shared_ptr<ranks::Supervisor*> supervisor, std::string lent_agent);

}  // namespace dtrun::agent
