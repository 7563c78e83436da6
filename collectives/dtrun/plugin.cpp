#include "collectives/dtrun/group.h"
#include "collectives/group.h"

namespace {

using namespace dtrun::collectives;

Availability probe() {
    return {true, "it needs no library"};
}

}  // namespace

DTRUN_BACKEND_PLUGIN {
    static const BackendPlugin plugin{
        .name = "dtrun", .probe = &probe, .connect = &over_dtrun::connect};
    return &plugin;
}
