#pragma once
// Names of other launchers. Called by a link that has one of them, dtrun is that launcher; `dtrun install-links`
// makes such links.

#include <algorithm>
#include <iterator>
#include <string_view>

namespace dtrun::cli {

struct OtherName {
    std::string_view name;
    std::string_view command;  ///< what dtrun does when it is called so
};

inline constexpr OtherName kOtherNames[] = {
    {"horovodrun", "run"},       {"torchrun", "torchrun"},    {"deepspeed", "deepspeed"},
    {"mpirun", "mpirun"},        {"mpiexec", "mpirun"},       {"orterun", "mpirun"},
    {"mpiexec.hydra", "mpirun"}, {"mpirun.openmpi", "mpirun"}};

/// nullptr: no launcher's that dtrun stands in for.
inline const OtherName* find_other_name(std::string_view name) {
    const auto found = std::ranges::find(kOtherNames, name, &OtherName::name);
    return found == std::end(kOtherNames) ? nullptr : found;
}

}  // namespace dtrun::cli
