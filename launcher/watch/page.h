#pragma once

#include <string_view>

namespace dtrun::watch {

/// The page, whole: HTML with its style and script in it, which fetches /api/view and /api/output and nothing
/// else. It holds no secret: the key is in the address that dtrun prints, behind '#', and never sent as part of it.
extern const std::string_view kPage;

}  // namespace dtrun::watch
