#include "launcher/output/output_layout.h"

#include "base/log.h"
#include "base/terminal.h"
#include "base/text_layout.h"
#include "launcher/output/path_pattern.h"
#include "launcher/output/rank_files.h"
#include "rendezvous/wire/output_messages.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <random>

namespace dtrun::output {
namespace {

constexpr int kTries = 100;
constexpr int kFoldersMax = 100'000;  // of one name and second

std::uint8_t bit_of(Stream stream) {
    return stream == Stream::out ? 1 : 2;
}

const RankPlace& place_of(const plan::JobSpec& spec, std::size_t stream) {
    return spec.placement.ranks[std::to_underlying(rank_of(stream))];
}

bool has(const plan::JobSpec& spec, const plan::RankOutput::Streams& streams, std::size_t stream) {
    const auto local_rank = static_cast<std::uint32_t>(place_of(spec, stream).local_rank);
    return (streams.of(local_rank) & bit_of(stream_of(stream))) != 0;
}

bool is_all(const plan::RankOutput::Streams& streams) {
    return streams.otherwise == 3 && streams.of_local_rank.empty();
}

std::string random_text() {
    constexpr std::string_view kCharacters = "abcdefghijklmnopqrstuvwxyz0123456789_";
    std::random_device random;
    std::uniform_int_distribution<std::size_t> index(0, kCharacters.size() - 1);
    std::string text;
    while (text.size() < 8) text += kCharacters[index(random)];
    return text;
}

/// `directory`/`prefix`_XXXXXXXX, which was not there before.
Result<std::string> make_new_folder(const std::string& directory, std::string prefix, mode_t mode) {
    if (auto made = make_directory(directory); !made) return std::unexpected(made.error());
    std::ranges::replace(prefix, '/', '_');
    for (int i = 0; i < kTries; ++i) {
        const std::string path = fmt::format("{}/{}_{}", directory, prefix, random_text());
        if (::mkdir(path.c_str(), mode) == 0) return path;
        if (errno != EEXIST)
            return fail(code_of_file_error(errno), "{}: {}", path, std::strerror(errno));
    }
    return fail(Errc::internal, "{}: no free name", directory);
}

/// torchrun's folder of this run, in that of --log-dir or else in one that nobody else can read.
Result<std::string> make_run_folder(const plan::Options& asked, std::string_view job_id) {
    std::string directory = asked.output_dir;
    if (directory.empty()) {
        std::error_code none;
        const std::filesystem::path place = std::filesystem::temp_directory_path(none);
        auto made = make_new_folder(none ? "/tmp" : place.string(), "torchelastic", 0700);
        if (!made) return fail(made.error(), "the ranks' files need a folder (--log-dir)");
        directory = std::move(*made);
        log::warn("no --log-dir: the ranks' files are in {}", directory);
    }
    const std::string run = asked.run_id.empty() ? std::string(job_id) : asked.run_id;
    auto folder = make_new_folder(directory, run, 0777);
    if (!folder) return fail(folder.error(), "--log-dir");
    return folder;
}

RankFileName torchrun_names(const plan::JobSpec& spec) {
    // Names are asked for on other threads, and the job may get more hosts meanwhile.
    std::vector<std::string> folders, files;  // by stream
    const bool several = spec.hosts.size() > 1 || spec.discovers_hosts();
    for (std::size_t stream = 0; stream < spec.placement.ranks.size() * 2; ++stream) {
        const bool filed = has(spec, spec.options.rank_output.to_file, stream);
        folders.push_back(several ? spec.host_of(rank_of(stream)) + "/" : "");
        files.push_back(filed ? fmt::format("{}/{}.log", place_of(spec, stream).local_rank,
                                            stream_of(stream) == Stream::out ? "stdout" : "stderr")
                              : "");
    }
    return
        [folders = std::move(folders), files = std::move(files)](std::size_t stream, int attempt) {
            if (files[stream].empty()) return std::string();
            return fmt::format("{}attempt_{}/{}", folders[stream], attempt, files[stream]);
        };
}

RankFileName deepspeed_names() {
    const std::string time = local_time_text(std::time(nullptr), "%Y%m%d%H%M%S");
    return [time](std::size_t stream, int attempt) {
        const std::string again = attempt == 0 ? "" : fmt::format("_attempt{}", attempt);
        return fmt::format("{}{}_rank{}.log", time, again, std::to_underlying(rank_of(stream)));
    };
}

/// What a pattern has become, as a folder that was not there before: "-2", "-3" and so on follow it
/// where it was.
Result<std::string> make_numbered_folder(std::string path) {
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    const std::string parent = std::filesystem::path(path).parent_path().string();
    if (!parent.empty())
        if (auto made = make_directory(parent); !made) return std::unexpected(made.error());
    for (int number = 1; number <= kFoldersMax; ++number) {
        std::string name = number == 1 ? path : fmt::format("{}-{}", path, number);
        if (::mkdir(name.c_str(), 0777) == 0) return name;
        if (errno != EEXIST)
            return fail(code_of_file_error(errno), "{}: {}", name, std::strerror(errno));
    }
    return fail(Errc::internal, "{}: no free name", path);
}

/// The flag by which the user has asked for files of ranks.
std::string_view files_flag(const plan::RankOutput& output) {
    using enum plan::RankOutput::Files;
    switch (output.files) {
        case torchrun:
            return "--log-dir";
        case deepspeed:
            return "--enable_each_rank_log";
        case ranks:
            break;
    }
    return "--output-dir";
}

Result<void> choose_files(OutputOptions& options, const plan::JobSpec& spec,
                          std::string_view job_id, const PathFacts& facts) {
    const plan::Options& asked = spec.options;
    using Files = plan::RankOutput::Files;
    using enum plan::RankOutput::Files;
    const Files files = asked.rank_output.files;
    options.files_flag = files_flag(asked.rank_output);
    if (!asked.rank_output.to_file.any()) return {};
    if (asked.output_dir.empty() && files != torchrun) return {};
    options.directory = asked.output_dir;
    if (files == ranks && is_path_pattern(options.directory)) {
        auto folder = make_numbered_folder(expand_path_pattern(asked.output_dir, facts));
        if (!folder) return fail(folder.error(), "--output-dir");
        options.directory = std::move(*folder);
        return {};
    }
    if (files == deepspeed) options.file_name = deepspeed_names();
    if (files == ranks)
        if (auto done = remove_attempts(options.directory); !done)
            return fail(done.error(), "--output-dir");
    if (files != torchrun) return {};
    auto folder = make_run_folder(asked, job_id);
    if (!folder) return std::unexpected(folder.error());
    options.directory = std::move(*folder);
    options.file_name = torchrun_names(spec);
    return {};
}

/// How the streams of ranks from one on are shown; nothing if all are as the tag has it.
std::vector<StreamShow> choose_shows(const plan::JobSpec& spec, std::size_t first_rank) {
    std::vector<StreamShow> shows;
    const plan::RankOutput& asked = spec.options.rank_output;
    if (is_all(asked.shown) && !asked.prefixed.any()) return shows;
    const std::size_t streams = spec.placement.ranks.size() * 2;
    for (std::size_t stream = first_rank * 2; stream < streams; ++stream) {
        StreamShow& show = shows.emplace_back();
        show.console = has(spec, asked.shown, stream);
        if (!has(spec, asked.prefixed, stream)) continue;
        const auto local_rank = static_cast<std::uint32_t>(place_of(spec, stream).local_rank);
        show.prefix = expand_line_prefix(asked.prefix, spec.options.role, local_rank);
    }
    return shows;
}

/// By --only-ranks and --quiet-ranks.
bool is_shown(const plan::Options& asked, int rank) {
    return (asked.only_ranks.empty() || asked.only_ranks.contains(rank)) &&
           !asked.quiet_ranks.contains(rank);
}

/// The environment's wish goes before what dtrun does by itself.
Color colors(Color asked) {
    if (asked != Color::on_terminals) return asked;
    const ColorWish wish = color_wish();
    if (wish == ColorWish::always) return Color::always;
    return wish == ColorWish::never || is_terminal_dumb() ? Color::never : Color::on_terminals;
}

/// The rank that has the user's terminal is alone there: two that write to one screen are of no use.
void show_terminal(OutputOptions& options, int terminal_rank, int world_size) {
    options.shows.resize(stream_count(world_size));
    for (int rank = 0; rank < world_size; ++rank) {
        const auto planned = static_cast<plan::SlotId>(rank);
        options.console.push_back(rank == terminal_rank);
        options.shows[stream_index(planned, Stream::out)].raw = rank == terminal_rank;
    }
}

}  // namespace

std::string expand_line_prefix(std::string text, std::string_view role, std::uint32_t local_rank) {
    const std::pair<std::string_view, std::string> kMeanings[] = {
        {"${role_name}", std::string(role)},
        {"$role_name", std::string(role)},
        {"${local_rank}", fmt::format("{}", local_rank)},
        {"$local_rank", fmt::format("{}", local_rank)},
        {"$rank", "${rank}"},
    };
    std::string expanded;
    for (std::size_t at = 0; at < text.size();) {
        const std::string_view rest = std::string_view(text).substr(at);
        const auto* const found = std::ranges::find_if(
            kMeanings, [rest](const auto& each) { return rest.starts_with(each.first); });
        const bool known = found != std::end(kMeanings);
        expanded += known ? found->second : std::string(1, text[at]);
        at += known ? found->first.size() : 1;
    }
    return expanded;
}

std::string log_begin(const plan::JobSpec& spec, std::string_view job_id) {
    return fmt::format("dtrun: job {}: {} on {}\n", job_id.substr(0, kJobDigits),
                       plural(static_cast<unsigned>(spec.placement.world_size()), "rank"),
                       plural(spec.hosts.size(), "host"));
}

Result<OutputOptions> output_options(const plan::JobSpec& spec, std::string_view job_id) {
    const plan::Options& asked = spec.options;
    const int world_size = spec.placement.world_size();
    OutputOptions options;
    options.may_grow = spec.discovers_hosts();
    const bool several = world_size > 1 || options.may_grow;
    options.tag = asked.tag.value_or(several ? Tag::horovod : Tag::none);
    options.timestamps = asked.timestamps;
    options.color = colors(asked.color);
    options.fold = asked.fold;
    options.rotation = asked.log_rotation;
    options.pending_bytes_max = 1u << 20;  // what fits into a core's cache
    if (asked.pty)
        show_terminal(options, *asked.pty, world_size);
    else if (!asked.quiet_ranks.empty() || !asked.only_ranks.empty())
        for (int rank = 0; rank < world_size; ++rank)
            options.console.push_back(is_shown(asked, rank));
    if (!asked.pty) options.shows = choose_shows(spec, 0);
    const PathFacts facts{std::string(job_id.substr(0, kJobDigits)), std::time(nullptr)};
    if (auto done = choose_files(options, spec, job_id, facts); !done)
        return std::unexpected(done.error());
    if (!asked.log.empty()) {
        options.log = expand_path_pattern(asked.log, facts);
        options.log_begin = log_begin(spec, job_id);
    }
    return options;
}

MoreSlots more_slots(const plan::JobSpec& spec, plan::SlotId first) {
    MoreSlots more;
    const std::size_t before = std::to_underlying(first);
    for (std::size_t rank = before; rank < spec.placement.ranks.size(); ++rank)
        more.hosts.push_back(spec.host_of(plan::SlotId{static_cast<std::uint32_t>(rank)}));
    more.shows = choose_shows(spec, before);
    const plan::Options& asked = spec.options;
    if (!asked.only_ranks.empty() || !asked.quiet_ranks.empty()) {
        more.shows.resize(more.hosts.size() * 2);
        for (std::size_t stream = 0; stream < more.shows.size(); ++stream)
            if (!is_shown(asked, static_cast<int>(before + stream / 2)))
                more.shows[stream].console = false;
    }
    using enum plan::RankOutput::Files;
    if (spec.options.rank_output.files == torchrun) more.file_name = torchrun_names(spec);
    return more;
}

}  // namespace dtrun::output
