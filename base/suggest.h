#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrun {

/// "; did you mean x?" for the name nearest to `wrong`, empty if none is near.
std::string did_you_mean(std::string_view wrong, const std::vector<std::string>& names);

}  // namespace dtrun
