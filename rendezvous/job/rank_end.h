#pragma once

#include "rendezvous/job/membership.h"
#include "rendezvous/wire/rank_messages.h"

#include <string>

namespace dtrun {

/// "rank 3 exited with code 1"
std::string end_text(const Exited& exited);

/// What the end of a process is to the generations of its job. \param who  for messages: whose end it is
Membership::RankEnd rank_end(const Exited& exited, std::string who);

}  // namespace dtrun
