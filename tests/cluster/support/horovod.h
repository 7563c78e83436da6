#pragma once

#include "tests/cluster/support/cluster.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace dtrun::cluster {

/// Appends one of the programs in frameworks/, run by the Python that has Horovod.
inline void add_horovod(std::vector<std::string>& words, const std::string& program,
                        const std::vector<std::string>& arguments) {
    words.emplace_back(DTRUN_FRAMEWORKS "/horovod/bin/python");
    words.push_back(std::string(DTRUN_CLUSTER_DIR) + "/frameworks/" + program);
    words.insert(words.end(), arguments.begin(), arguments.end());
}

/// With what such a program is run.
inline RunOptions horovod_options(std::map<std::string, std::string> environment = {}) {
    environment.emplace("OMP_NUM_THREADS", "1");
    environment.emplace("PYTHONDONTWRITEBYTECODE", "1");
    RunOptions options;
    options.env = std::move(environment);
    options.timeout = std::chrono::milliseconds(120'000);
    return options;
}

}  // namespace dtrun::cluster
