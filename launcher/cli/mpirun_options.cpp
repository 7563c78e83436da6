#include "launcher/cli/mpirun_options.h"

#include "base/strings.h"

#include <string>
#include <utility>
#include <vector>

namespace dtrun::cli {

Result<void> check_mpirun_options(const plan::Options& options) {
    const plan::Options unset;
    if (!options.mpirun) {
        if (options.mpi_args.empty() && options.binding_args.empty()) return {};
        return fail(Errc::invalid_input,
                    "{} is for mpirun, which dtrun runs with --mpi mpirun only; leave it out, or "
                    "give settings as variables, such as -x OMPI_MCA_btl=tcp,self",
                    options.mpi_args.empty() ? "--binding-args" : "--mpi-args");
    }
    const std::pair<const char*, bool> agents_alone[] = {
        {"--no-env", options.no_env},
        {"--contract", !options.contracts.empty()},
        {"--store", options.store_given.has_value()},
        {"--encrypt", options.encrypt},
        {"--tree-threshold", options.tree_threshold != unset.tree_threshold},
        {"--start-timeout", options.start_timeout.has_value()},
        {"--output-dir", !options.output_dir.empty()},
        {"--only-ranks", !options.only_ranks.empty()},
        {"--quiet-ranks", !options.quiet_ranks.empty()},
        {"--grace", options.grace != unset.grace},
        {"--heartbeat-timeout", options.heartbeat_timeout != unset.heartbeat_timeout},
        {"--max-restarts", options.max_restarts != unset.max_restarts},
        {"--init-timeout", options.init_timeout.has_value()},
        {"--keep-going", options.keep_going},
    };
    std::vector<std::string> given;
    for (const auto& [name, is_given] : agents_alone)
        if (is_given) given.emplace_back(name);
    if (!given.empty())
        return fail(Errc::invalid_input,
                    "--mpi mpirun: no agent of dtrun is on the hosts, which {} would need; leave "
                    "{} out, or let dtrun start the ranks (--mpi auto)",
                    join_names(given, given.size()), given.size() == 1 ? "it" : "them");
    if (!options.binding_args.empty() && options.map_by != unset.map_by)
        return fail(Errc::invalid_input,
                    "--binding-args takes the place of --map-by node; write the mapping there too");
    return {};
}

}  // namespace dtrun::cli
