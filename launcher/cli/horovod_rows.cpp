#include "launcher/cli/horovod_rows.h"

#include "launcher/cli/horovod_flags.h"
#include "launcher/cli/setters.h"

#include <algorithm>
#include <iterator>
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

Result<void> set_tcp(ParsedRun& parsed, string_view) {
    parsed.tcp = true;
    return {};
}

Result<void> set_gloo(ParsedRun& parsed, string_view) {
    return set_controller(parsed, "gloo");
}

Result<void> set_config_file(ParsedRun& parsed, string_view value) {
    parsed.config_file = value;
    return {};
}

/// A flag, or two, for each of horovod_settings(), in the order of that table.
Rows<ParsedRun> tuning_flags() {
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

}  // namespace

Result<void> set_controller(ParsedRun& parsed, string_view name) {
    const auto [entry, added] =
        parsed.tuning.try_emplace(std::string(kHorovodController), std::string(name));
    if (!added && entry->second != name)
        return fail(Errc::invalid_input,
                    "--gloo and --mpi without a word are two controllers of Horovod; give one of "
                    "them");
    return {};
}

Rows<ParsedRun> horovod_flags() {
    Rows<ParsedRun> flags = {
        {{.names = "--config-file",
          .metavar = "FILE",
          .group = horovod,
          .help = "horovodrun's YAML of these settings; flags win wherever they stand"},
         set_config_file},
        {{.names = "--gloo",
          .group = horovod,
          .help = "Gloo is Horovod's controller; it is the default"},
         set_gloo},
        {{.names = "--tcp",
          .group = horovod,
          .help = "NCCL without InfiniBand: sets NCCL_IB_DISABLE=1"},
         set_tcp},
        {{.names = "--disable-cache", .group = horovod, .help = "accepted: nothing is cached"},
         nothing},
    };
    std::ranges::move(tuning_flags(), std::back_inserter(flags));
    return flags;
}

Rows<ParsedRun> other_horovod_flags() {
    return {
        {{.names = "--horovod-shim",
          .group = environment,
          .in = {FlagScope::join, FlagScope::frontends, FlagScope::bench},
          .needs_agents = true,
          .help =
              "`import horovod.torch` gives ranks dtrun.torch, even on hosts without Horovod or "
              "dtrun; docs/TORCH.md says what it covers (default: Horovod, if it is installed)"},
         set_true<&plan::Options::horovod_shim>},
        {{.names = "--jsrun", .group = horovod, .refused = kNoJsrun}},
    };
}

}  // namespace dtrun::cli
