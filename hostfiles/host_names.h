#pragma once

#include "base/result.h"
#include "hostfiles/host.h"

#include <optional>
#include <string_view>
#include <unordered_map>

namespace dtrun {

/// Finds hosts of a list by the names that a user has for them: batch systems list "n1.example.com", and who
/// writes a rankfile or an --include writes "n1", or the other way round.
class HostIndex {
public:
    /// \param hosts  outlive this, and stay as they are
    explicit HostIndex(const HostList& hosts);

    /// The index of the host of that name; else of the only one whose name is the same up to the first dot, if
    /// one of the two names has no dot. Numeric addresses are compared as a whole.
    std::optional<std::size_t> find(std::string_view name) const;

private:
    std::unordered_map<std::string_view, std::size_t> whole_;
    std::unordered_map<std::string_view, std::optional<std::size_t>> short_;  ///< none: of several
};

/// Cuts every name at its first dot, "n1.example.com" to "n1"; numeric addresses stay whole. Hosts
/// that then have the same name become one, with the sum of their slots.
/// \param hosts  without slot_ids
/// \return invalid_input "--short: ..." if hosts that become one contradict each other
Result<HostList> shorten_names(const HostList& hosts);

/// Makes hosts of the same name one, at the place of the first, with the sum of their slots.
/// \param hosts  without slot_ids, if names repeat
/// \return invalid_input "<what>: ..." if they contradict each other
Result<HostList> merge_names(const HostList& hosts, std::string_view what);

/// Sorts by name as a person would: n2 before n10, n02 after n2. Hosts of one name keep their order.
void sort_naturally(HostList& hosts);

}  // namespace dtrun
