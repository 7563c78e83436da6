#include "base/fd.h"
#include "base/interfaces.h"
#include "launcher/output/line_prefix.h"
#include "launcher/output/output_layout.h"
#include "launcher/output/path_pattern.h"
#include "rendezvous/wire/output_messages.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <regex>

using namespace dtrun;
using namespace dtrun::plan;
using namespace dtrun::output;
namespace fs = std::filesystem;

namespace {

/// A job on these hosts, placed and not started.
JobSpec spec_of(const std::vector<std::pair<std::string, int>>& hosts) {
    JobSpec spec;
    HostList list;
    for (const auto& [name, slots] : hosts) {
        Host host;
        host.name = name;
        host.slots = slots;
        list.push_back(host);
    }
    spec.placement = place_ranks(list, {}).value();
    for (const Host& host : spec.placement.hosts) spec.hosts.emplace_back().host = host;
    for (const RankPlace& place : spec.placement.ranks)
        spec.hosts[plan::host_of(place)].ranks.push_back(static_cast<plan::SlotId>(place.rank));
    return spec;
}

}  // namespace

TEST_CASE("Without torchrun's words all streams are shown and have plain files", "[output]") {
    JobSpec spec = spec_of({{"s1", 2}});
    spec.options.output_dir = "D";
    const auto options = output_options(spec, "job");
    REQUIRE(options.has_value());
    CHECK(options->directory == "D");
    CHECK_FALSE(options->file_name);
    CHECK(options->shows.empty());
    CHECK(options->tag == Tag::horovod);
}

TEST_CASE("torchrun's files are called by attempt and local rank, behind the host's folder",
          "[output][torchrun]") {
    const TempDir directory;
    const bool several = GENERATE(false, true);
    JobSpec spec = several ? spec_of({{"s1", 1}, {"s2", 12}}) : spec_of({{"s1", 2}});
    spec.options.output_dir = directory.path() + "/new/logs";
    spec.options.run_id = several ? "" : "my/run";
    spec.options.rank_output.files = RankOutput::Files::torchrun;
    spec.options.rank_output.to_file = {{{1, 1}, {11, 3}}, 0};
    const auto options = output_options(spec, "00ab");
    REQUIRE(options.has_value());
    const std::string start = directory.path() + "/new/logs/" + (several ? "00ab_" : "my_run_");
    CHECK(options->directory.starts_with(start));
    CHECK(std::regex_match(options->directory.substr(start.size()), std::regex("[a-z0-9_]{8}")));
    CHECK(fs::is_directory(options->directory));
    CHECK(output_options(spec, "00ab")->directory != options->directory);
    REQUIRE(options->file_name);
    const auto name = [&](int rank, Stream stream, int attempt = 0) {
        return options->file_name(stream_index(static_cast<plan::SlotId>(rank), stream), attempt);
    };
    CHECK(name(0, Stream::out).empty());
    if (several) {
        CHECK(name(2, Stream::out) == "s2/attempt_0/1/stdout.log");
        CHECK(name(2, Stream::err).empty());
        CHECK(name(12, Stream::err, 3) == "s2/attempt_3/11/stderr.log");
    } else {
        CHECK(name(1, Stream::out, 1) == "attempt_1/1/stdout.log");
        CHECK(name(1, Stream::err).empty());
    }
}

TEST_CASE("DeepSpeed's files are one for each rank", "[output][deepspeed]") {
    JobSpec spec = spec_of({{"s1", 1}, {"s2", 1}});
    spec.options.output_dir = "D";
    spec.options.rank_output.files = RankOutput::Files::deepspeed;
    spec.options.rank_output.shown.otherwise = 0;
    const auto options = output_options(spec, "job");
    REQUIRE(options.has_value());
    CHECK(options->directory == "D");
    const std::string name = options->file_name(stream_index(plan::SlotId{1}, Stream::out), 0);
    CHECK(std::regex_match(name, std::regex("[0-9]{14}_rank1\\.log")));
    CHECK(options->file_name(stream_index(plan::SlotId{1}, Stream::err), 0) == name);
    CHECK(options->file_name(stream_index(plan::SlotId{1}, Stream::err), 2) ==
          name.substr(0, 14) + "_attempt2_rank1.log");
    REQUIRE(options->shows.size() == 4);
    for (const StreamShow& show : options->shows) CHECK_FALSE(show.console);
}

TEST_CASE("Nothing into files means no folder", "[output][torchrun]") {
    const TempDir directory;
    JobSpec spec = spec_of({{"s1", 1}});
    spec.options.output_dir = directory.path() + "/logs";
    spec.options.rank_output.files = RankOutput::Files::torchrun;
    spec.options.rank_output.to_file = {{{0, 0}}, 0};
    const auto options = output_options(spec, "job");
    REQUIRE(options.has_value());
    CHECK(options->directory.empty());
    CHECK_FALSE(fs::exists(directory.path() + "/logs"));
}

TEST_CASE("A folder that cannot be made is an error that names it", "[output][torchrun]") {
    JobSpec spec = spec_of({{"s1", 1}});
    spec.options.output_dir = "/dev/null/logs";
    spec.options.rank_output.files = RankOutput::Files::torchrun;
    const auto options = output_options(spec, "job");
    REQUIRE_FALSE(options.has_value());
    CHECK(options.error().message == "--log-dir: /dev/null/logs: Not a directory");
    CHECK(options.error().code == Errc::invalid_input);
}

TEST_CASE("Without --log-dir torchrun's files are in a new folder that nobody else can read",
          "[output][torchrun]") {
    JobSpec spec = spec_of({{"s1", 1}});
    spec.options.run_id = "run";
    spec.options.rank_output.files = RankOutput::Files::torchrun;
    const auto options = output_options(spec, "job");
    REQUIRE(options.has_value());
    const fs::path folder = fs::path(options->directory).parent_path();
    const fs::perms mode = fs::status(folder).permissions();
    const bool has_run = fs::is_directory(options->directory);
    fs::remove_all(folder);
    CHECK(folder.parent_path() == fs::temp_directory_path());
    CHECK(folder.filename().string().starts_with("torchelastic_"));
    CHECK(mode == fs::perms::owner_all);
    CHECK(has_run);
    CHECK(fs::path(options->directory).filename().string().starts_with("run_"));
}

TEST_CASE("What restarts of an earlier job left goes, and nothing else", "[output]") {
    const TempDir directory;
    const auto write = [&](const std::string& path) {
        const fs::path whole = fs::path(directory.path()) / path;
        fs::create_directories(whole.parent_path());
        std::ofstream(whole) << "text";
    };
    for (const char* const path :
         {"rank.0/stdout", "attempt_1/rank.0/stdout", "attempt_1/rank.0/stderr",
          "attempt_1/rank.1/stdout", "attempt_12/rank.07/stderr", "attempt_12/rank.07/stderr.3",
          "attempt_2/rank.0/model.pt", "attempt_3/rank.0/stdout", "attempt_3/notes",
          "attempt_x/rank.0/stdout", "attempt_4/0/stdout", "attempt_5"})
        write(path);
    fs::create_directory_symlink(directory.path() + "/attempt_3", directory.path() + "/attempt_6");
    JobSpec spec = spec_of({{"s1", 2}});
    spec.options.output_dir = directory.path();
    REQUIRE(output_options(spec, "job").has_value());
    const auto there = [&](const char* path) { return fs::exists(directory.path() + "/" + path); };
    CHECK_FALSE(there("attempt_1"));
    CHECK_FALSE(there("attempt_12"));
    for (const char* const path :
         {"rank.0/stdout", "attempt_2/rank.0/model.pt", "attempt_3/rank.0/stdout",
          "attempt_3/notes", "attempt_x/rank.0/stdout", "attempt_4/0/stdout", "attempt_5",
          "attempt_6"}) {
        CAPTURE(path);
        CHECK(there(path));
    }
}

TEST_CASE("A pattern gives each job a folder of its own, whatever is there", "[output]") {
    const TempDir directory;
    JobSpec spec = spec_of({{"s1", 2}});
    spec.options.output_dir = directory.path() + "/logs/%j-100%%/";
    spec.options.log = directory.path() + "/%j.log";
    std::vector<std::string> folders;
    for (int job = 0; job < 3; ++job) {
        const auto options = output_options(spec, "00ab00ab00ab00ab");
        REQUIRE(options.has_value());
        folders.push_back(options->directory);
        CHECK(options->log == directory.path() + "/00ab00ab00ab.log");
        CHECK(options->log_begin == "dtrun: job 00ab00ab00ab: 2 ranks on 1 host\n");
    }
    const std::string first = directory.path() + "/logs/00ab00ab00ab-100%";
    CHECK(folders == std::vector<std::string>{first, first + "-2", first + "-3"});
    for (const std::string& folder : folders) CHECK(fs::is_empty(folder));
}

TEST_CASE("A pattern's letters are the job, the time and this machine", "[output]") {
    const PathFacts facts{"00ab", 0};
    const std::string time = expand_path_pattern("%t", facts);
    CHECK(time.size() == std::string_view("19700101-000000").size());
    CHECK(time.find_first_not_of("0123456789-") == std::string::npos);
    CHECK(expand_path_pattern("a/%j%%t-%h", facts) == "a/00ab%t-" + host_name());
    CHECK(check_path_pattern("a/%j%%-%t%h").has_value());
    for (const char* const wrong : {"%", "a%", "%n", "%j%x", "%%%"}) {
        CAPTURE(wrong);
        CHECK_FALSE(check_path_pattern(wrong).has_value());
    }
}

TEST_CASE("Lines of --tee have torchrun's prefix by local rank", "[output][torchrun]") {
    JobSpec spec = spec_of({{"s1", 2}, {"s2", 1}});
    spec.options.tag = Tag::none;
    spec.options.role = "trainer";
    spec.options.rank_output.prefixed = {{{0, 1}}, 0};
    spec.options.rank_output.prefix = "[${role_name}${local_rank}]:";
    const auto options = output_options(spec, "job");
    REQUIRE(options.has_value());
    REQUIRE(options->shows.size() == 6);
    CHECK(options->shows[stream_index(plan::SlotId{0}, Stream::out)].prefix == "[trainer0]:");
    CHECK(options->shows[stream_index(plan::SlotId{0}, Stream::err)].prefix.empty());
    CHECK(options->shows[stream_index(plan::SlotId{1}, Stream::out)].prefix.empty());
    CHECK(options->shows[stream_index(plan::SlotId{2}, Stream::out)].prefix == "[trainer0]:");
}

TEST_CASE("A template of prefixes knows names with and without braces", "[output][torchrun]") {
    CHECK(expand_line_prefix("[${role_name}${local_rank}]:", "r", 3) == "[r3]:");
    CHECK(expand_line_prefix("$role_name/$local_rank/$rank/${rank}", "r", 3) ==
          "r/3/${rank}/${rank}");
    CHECK(expand_line_prefix("$other $", "$rank", 0) == "$other $");
    CHECK(expand_line_prefix("${role_name}", "$rank", 0) == "$rank");
}
