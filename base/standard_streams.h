#pragma once

namespace dtrun {

/// A caller may have closed standard streams; what we open must not take their numbers. Those that were
/// closed are /dev/null from here on.
void open_standard_streams();

/// Whether the caller had closed this standard stream.
bool was_closed(int fd);

}  // namespace dtrun
