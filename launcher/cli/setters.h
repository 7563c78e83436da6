#pragma once
// What the tables of flags do with a value, where that is the same for the words of any command.

#include "launcher/cli/flags.h"

#include <string_view>

namespace dtrun::cli {

/// The part of a draft that a member belongs to.
template <class T>
plan::Options& part_of(Draft& draft, T plan::Options::*) {
    return draft.options;
}
template <class T>
fronts::TorchrunWords& part_of(Draft& draft, T fronts::TorchrunWords::*) {
    return draft.torchrun;
}
template <class T>
fronts::DeepspeedWords& part_of(Draft& draft, T fronts::DeepspeedWords::*) {
    return draft.deepspeed;
}
template <class T>
HostsCommand& part_of(Draft& draft, T HostsCommand::*) {
    return draft.hosts;
}

template <auto Member>
Result<void> set_text(Draft& draft, std::string_view value) {
    part_of(draft, Member).*Member = value;
    return {};
}

template <auto Member>
Result<void> set_true(Draft& draft, std::string_view) {
    part_of(draft, Member).*Member = true;
    return {};
}

/// Accepted, without effect.
inline Result<void> nothing(Draft&, std::string_view) {
    return {};
}

inline constexpr int kRestartsMax = 1'000;

inline Result<void> set_max_restarts(Draft& draft, std::string_view value) {
    const auto number = whole_number(value, 0, kRestartsMax);
    if (!number) return std::unexpected(number.error());
    draft.options.max_restarts = *number;
    return {};
}

inline Result<void> set_ssh_port(Draft& draft, std::string_view value) {
    const auto number = whole_number(value, 1, 65'535);
    if (!number) return std::unexpected(number.error());
    draft.options.ssh_port = *number;
    return {};
}

}  // namespace dtrun::cli
