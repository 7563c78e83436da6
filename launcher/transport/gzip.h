#pragma once

#include <string>
#include <string_view>

namespace dtrun::transport {

/// What `gzip -1` makes of it: the same bytes each time, without a name or a time.
std::string gzip(std::string_view bytes);

}  // namespace dtrun::transport
