#pragma once

#include "launcher/cli/flags.h"
#include "launcher/plan/environment.h"

#include <string>
#include <string_view>

namespace dtrun::commands {

/// `dtrun info`: what a report of a bug has to say about this machine.
struct ParsedInfo : cli::ParsedArgs {};

const cli::FlagTable<ParsedInfo>& info_flags();
/// \return the process's exit status
int run_info(cli::Words words, plan::EnvironmentView environment);
std::string info_help();

/// A text in which neither the user's home nor their name stands: "~" and "USER" do, wherever a whole part of a path or
/// a word is one of them. Pure.
/// \param home  absolute, or empty
/// \param user  not replaced if it is empty, or "root", which is nobody's name
std::string without_user(std::string_view text, std::string_view home, std::string_view user);

}  // namespace dtrun::commands
