#pragma once

#include "launcher/cli.h"
#include "launcher/environment.h"

namespace dtrun {

/// `dtrun store` and `dtrun status`. \return the process's exit status
int run_store_command(const StoreCommand& command, EnvironmentView environment);

}  // namespace dtrun
