#pragma once

#include <string>
#include <vector>

namespace dtrun::warm {

/// How sockets of holders end, in the folders of control::control_folders(), beside those of jobs.
inline constexpr const char* kHolderSuffix = ".hold";

/// Where holders of this user listen, or have listened: paths of sockets. Folders that are not ours alone are passed
/// over.
/// \param folders  of control::control_folders()
std::vector<std::string> holder_sockets(const std::vector<std::string>& folders);

}  // namespace dtrun::warm
