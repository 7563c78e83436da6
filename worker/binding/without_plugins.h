#pragma once

#include <optional>
#include <string>

namespace dtrun::binding {

/// While one lives, hwloc starts without its plug-ins: they are built for another C library than the one in
/// a static agent, and those for OpenCL and X start drivers. Linux tells the rest.
///
/// Thread: it changes the environment, so no other thread may read that.
class WithoutPlugins {
public:
    WithoutPlugins();
    ~WithoutPlugins();
    WithoutPlugins(const WithoutPlugins&) = delete;
    WithoutPlugins& operator=(const WithoutPlugins&) = delete;

private:
    std::optional<std::string> before_;
};

}  // namespace dtrun::binding
