#include "launcher/head/job_keeper.h"

#include "base/log.h"
#include "base/simulated.h"
#include "base/threads.h"
#include "hostfiles/nodelist.h"
#include "launcher/history/history_folder.h"
#include "launcher/output/file_place.h"
#include "launcher/output/output_layout.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

namespace dtrun::head {
namespace {

/// Of the output of a detached job two files of this size are kept, the last of them.
constexpr std::uint64_t kLogBytes = 32u << 20;
/// For the home of a detached job to answer; a plain job waits for nothing.
constexpr std::chrono::seconds kBeginLimit{3};
constexpr std::size_t kHostsNamed = 256;
constexpr unsigned kTidyingJobs = 16;  // one of so many removes old records

Result<Fd> open_own_log(const std::string& folder, const std::string& path) {
    if (const auto made = history::make_history_folder(folder); !made)
        return std::unexpected(made.error());
    auto opened = output::open_log_file(path);
    if (opened) ::fchmod(opened->get(), 0600);
    return opened;
}

}  // namespace

JobKeeper::JobKeeper(const plan::JobSpec& spec, StartTeller& teller, std::string job)
    : spec_(spec),
      asked_(spec.options.history),
      teller_(teller),
      job_(std::move(job)),
      started_ns_(since_1970().count()) {}

void JobKeeper::warn(std::string_view text) {
    log::write(asked_.detach ? log::Level::normal : log::Level::verbose, text);
}

void JobKeeper::keep_output(output::OutputOptions& options) {
    if (!options.log.empty()) {
        std::error_code none;
        log_ = std::filesystem::absolute(options.log, none).string();
        log_kept_ = options.rotation.bytes_max * static_cast<unsigned>(options.rotation.keep);
    }
    if (!asked_.detach) return;
    // Nobody sees the console.
    options.console.assign(static_cast<std::size_t>(spec_.placement.world_size()), false);
    if (!options.log.empty()) return;
    constexpr std::string_view kLost = "the job's output is not kept: ";
    if (asked_.folder.empty())
        return warn(fmt::format("{}neither HOME nor XDG_STATE_HOME is set", kLost));
    std::string path = fmt::format("{}/{}{}", asked_.folder, history::stem_of(job_, started_ns_),
                                   history::kLogSuffix);
    // A home that does not answer stops no job: the thread is left behind there.
    const auto opened = std::make_shared<Result<Fd>>();
    Thread thread([opened, folder = asked_.folder, path] { *opened = open_own_log(folder, path); });
    home_answers_ = thread.join_until(after(kBeginLimit));
    if (!home_answers_) return warn(fmt::format("{}{} does not answer", kLost, asked_.folder));
    if (!*opened) return warn(fmt::format("{}{}", kLost, opened->error().message));
    options.log_file = std::make_shared<Fd>(std::move(**opened));
    log_ = options.log = std::move(path);
    log_kept_ = kLogBytes;
    options.log_begin = output::log_begin(spec_, job_);
    options.log_rotation = {kLogBytes, 1};
    options.log_failed = [this](std::string why) { log_trouble_ = std::move(why); };
}

void JobKeeper::begin(const std::string& program) {
    // Without a record nobody would find the output.
    if (asked_.folder.empty() || (asked_.off && !asked_.detach)) return;
    history::JobStart start{.job = job_,
                            .name = asked_.name,
                            .typed = {asked_.typed, asked_.hidden},
                            .directory = asked_.typed_in,
                            .program = program,
                            .ranks = static_cast<std::uint32_t>(spec_.placement.world_size()),
                            .host_count = static_cast<std::uint32_t>(spec_.hosts.size()),
                            .time_ns = started_ns_,
                            .log = log_,
                            .log_kept = log_kept_};
    std::vector<std::string> names;
    for (const HostId host : spec_.hosts.hosts())
        if (names.size() < kHostsNamed) names.push_back(spec_.hosts[host].host.name);
    start.hosts = compress_nodelist(names);
    const bool tidies = asked_.detach || started_ns_ / 1'000 % kTidyingJobs == 0;
    record_ = std::make_unique<history::RecordWriter>(asked_.folder, std::move(start), tidies);
    if (!asked_.detach) return;
    const auto limit = home_answers_ ? kBeginLimit : std::chrono::seconds(0);
    if (const auto written = record_->written(after(limit)); !written)
        warn(fmt::format("`dtrun jobs --all` will not know this job: {}", written.error().message));
}

void JobKeeper::finish(int code, const JobRecord& record, std::chrono::milliseconds limit) {
    if (teller_.is_awaited()) teller_.say(record.report());
    if (!record_) return;
    const history::JobEnd end{since_1970().count(), code, std::string(record.cause()),
                              record.report(), log_trouble_};
    if (const auto written = record_->finish(end, after(limit)); !written)
        log::info("the record of this job could not be written: {}", written.error().message);
}

}  // namespace dtrun::head
