#include "worker/binding/without_plugins.h"

#include <cstdlib>

namespace dtrun::binding {
namespace {

constexpr const char* kVariable = "HWLOC_PLUGINS_PATH";

}  // namespace

WithoutPlugins::WithoutPlugins() {
    if (const char* const value = std::getenv(kVariable)) before_ = value;
    ::setenv(kVariable, "/dev/null", 1);
}

WithoutPlugins::~WithoutPlugins() {
    if (before_)
        ::setenv(kVariable, before_->c_str(), 1);
    else
        ::unsetenv(kVariable);
}

}  // namespace dtrun::binding
