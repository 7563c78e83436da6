#pragma once

#include "base/fd.h"

#include <vector>

namespace dtrun {

/// A caller may have closed standard streams; what we open must not take their numbers. Those that were
/// closed are /dev/null from here on.
void open_standard_streams();

/// Whether the caller had closed this standard stream.
bool was_closed(int fd);

/// All descriptors above the standard streams that this process has, but for one: what a process that stays is to close.
std::vector<Fd> inherited_besides(int kept);

}  // namespace dtrun
