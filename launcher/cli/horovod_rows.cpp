#include "launcher/cli/horovod_rows.h"

#include "launcher/cli/horovod_flags.h"
#include "launcher/cli/setters.h"

#include <string>
#include <utility>

namespace dtrun::cli {

namespace {

using std::string_view;
using enum FlagGroup;

constexpr string_view kNoJsrun =
    "dtrun starts the ranks itself; leave it out, or have them started by an mpirun with --mpi "
    "mpirun";

/// The flag that gives a setting the value that the user writes, or `fixed` unless that is empty.
Row<ParsedRun> tuning_flag(const HorovodSetting& setting, string_view names, string_view fixed) {
    using enum HorovodSetting::Form;
    const string_view metavar = !fixed.empty()             ? ""
                                : setting.form == text     ? "FILE"
                                : setting.form == level    ? "LEVEL"
                                : setting.form == decimal  ? "X"
                                : setting.form == fraction ? "X"
                                                           : "N";
    const auto apply = [&setting, fixed](ParsedRun& parsed, string_view value) -> Result<void> {
        auto text = horovod_value(setting, fixed.empty() ? value : fixed);
        if (!text) return std::unexpected(text.error());
        parsed.tuning.insert_or_assign(std::string(setting.variable), std::move(*text));
        return {};
    };
    return {{.names = names, .metavar = metavar, .group = horovod, .help = setting.help}, apply};
}

}  // namespace

Rows<ParsedRun> horovod_tuning_flags() {
    Rows<ParsedRun> flags;
    for (const HorovodSetting& setting : horovod_settings()) {
        if (setting.form != HorovodSetting::Form::yes_no) {
            flags.push_back(tuning_flag(setting, setting.flags, ""));
            continue;
        }
        flags.push_back(tuning_flag(setting, setting.flags, "true"));
        flags.push_back(tuning_flag(setting, setting.flags_no, "false"));
        flags.back().flag.help = "";
    }
    return flags;
}

Rows<ParsedRun> other_horovod_flags() {
    return {
        {{.names = "--horovod-shim",
          .group = environment,
          .in = {FlagScope::join, FlagScope::frontends, FlagScope::bench},
          .needs_agents = true,
          .help =
              "import horovod.torch gives ranks dtrun.torch, on hosts without Horovod and dtrun "
              "too; docs/TORCH.md has what it can do (default: Horovod, if it is installed)"},
         set_true<&plan::Options::horovod_shim>},
        {{.names = "--jsrun", .group = horovod, .refused = kNoJsrun}},
    };
}

}  // namespace dtrun::cli
