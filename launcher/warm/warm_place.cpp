#include "launcher/warm/warm_place.h"

#include "launcher/control/control_place.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace dtrun::warm {

std::vector<std::string> holder_sockets(const std::vector<std::string>& folders) {
    std::vector<std::string> paths;
    for (const std::string& folder : folders) {
        if (!control::check_private_folder(folder)) continue;
        std::error_code none;
        for (const auto& entry : std::filesystem::directory_iterator(folder, none))
            if (entry.path().native().ends_with(kHolderSuffix)) paths.push_back(entry.path());
    }
    std::ranges::sort(paths);
    return paths;
}

}  // namespace dtrun::warm
