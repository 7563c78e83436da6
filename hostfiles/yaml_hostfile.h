#pragma once

#include "base/result.h"
#include "hostfiles/host.h"

#include <string_view>

namespace dtrun {

/// Reads a hostfile in YAML:
///   defaults: {slots: 4, user: alice, port: 22, identity_file: ~/.ssh/id}   # optional
///   hosts:
///     - s1                                  # a name or a -H item: s1, s1:4, n[01-16]:8
///     - {host: s2, slots: 8, max_slots: 16, user: bob, port: 2222, identity_file: k, address: 10.0.0.2}
///     - s3: {slots: 2}
/// or `hosts:` as a map from name to such settings (or to a number of slots).
/// `~/` is not expanded here. Unknown keys are errors ("did you mean").
/// \return invalid_input "<name>:<line>:<column>: ..." on any mistake
Result<HostList> parse_yaml_hostfile(std::string_view text, std::string_view name);

/// Whether `text` is meant as YAML: its first line with content starts a document (`---`), is a
/// `hosts:` or `defaults:` key, or is JSON ('{'), which YAML includes.
bool looks_like_yaml(std::string_view text);

}  // namespace dtrun
