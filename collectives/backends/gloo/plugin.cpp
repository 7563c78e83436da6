#include "collectives/backends/plugin.h"
#include "collectives/backends/gloo/group.h"

#include <gloo/config.h>

namespace {

using namespace dtrun::collectives;

Availability probe() {
    return {true, fmt::format("Gloo {}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR,
                              GLOO_VERSION_PATCH)};
}

}  // namespace

DTRUN_BACKEND_PLUGIN("gloo", probe, over_gloo::connect)
