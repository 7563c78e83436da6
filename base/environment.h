#pragma once

#include <string>
#include <vector>

namespace dtrun {

/// Those of this process, "NAME=value".
std::vector<std::string> own_environment();

enum class IfSet { keep, replace };

/// Sets or removes a variable of this process, also while its other threads read theirs: in a
/// program that has loaded a framework there are always some.
///
/// The C library's setenv() moves the table of variables and frees the old one (glibc before 2.41),
/// whatever other threads are doing in getenv(). Here a new table takes the old one's place in one
/// step, and the old one stays. Only two threads that change variables at the same time still need
/// to agree with each other, if one of them does so by setenv(): the later change may be lost.
void set_variable(const std::string& name, const std::string& value, IfSet if_set);
void unset_variable(const std::string& name);

}  // namespace dtrun
