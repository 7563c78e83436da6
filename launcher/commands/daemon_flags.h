#pragma once
// Flags of the commands around a daemon. Their parsed arguments have plan::DaemonArgs in own.daemon.

#include "launcher/cli/help.h"
#include "launcher/cli/setters.h"
#include "launcher/plan/options.h"

namespace dtrun::commands {

template <class D>
cli::Rows<D> secret_rows() {
    using enum cli::FlagGroup;
    return {
        {{.names = "--secret-file",
          .metavar = "FILE",
          .group = daemon,
          .help = "the daemon's secret, readable for you alone (default: DTRUN_SECRET_FILE, else "
                  "~/.config/dtrun/secret)"},
         cli::set_text<&plan::DaemonArgs::secret_file>},
        {{.names = "--secret-fd",
          .metavar = "N",
          .group = daemon,
          .help = "read the secret from this open descriptor"},
         cli::set_number<&plan::DaemonArgs::secret_fd, 0, 1'000'000>},
        {{.names = "--encrypt",
          .group = daemon,
          .help = "encrypt the connection; daemon and members must want the same (default: "
                  "authenticated, but in the clear)"},
         cli::set_true<&plan::DaemonArgs::encrypt>},
    };
}

template <class D>
cli::Rows<D> job_row() {
    return {{{.names = "--job",
              .metavar = "NAME",
              .group = cli::FlagGroup::daemon,
              .help = "which job of the daemon (default: DTRUN_JOB_NAME)"},
             cli::set_text<&plan::DaemonArgs::job>}};
}

inline constexpr cli::HelpSection kDaemonSections[] = {
    {cli::FlagGroup::daemon, "Options"},
    {cli::FlagGroup::binding, "Processors of ranks"},
    {cli::FlagGroup::environment, "What ranks start with"},
    {cli::FlagGroup::reaching, "Beginning"},
    {cli::FlagGroup::output, "Output"},
    {cli::FlagGroup::ending, "The end"},
    {cli::FlagGroup::look, "Looking into ranks"},
    {cli::FlagGroup::publishing, "Showing the job"},
    {cli::FlagGroup::other, "About dtrun"},
};

}  // namespace dtrun::commands
