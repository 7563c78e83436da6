#include "launcher/output/rank_files.h"
#include "rendezvous/wire/output_messages.h"
#include "tests/launcher/output_support.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

#include <fmt/format.h>
#include <filesystem>
#include <fstream>

using namespace dtrun;
using namespace dtrun::output;
namespace fs = std::filesystem;

namespace {

std::string content(const std::string& path) {
    const auto text = read_file(path);
    REQUIRE(text.has_value());
    return *text;
}

OutputOptions with_directory(const std::string& directory, const MemoryFile& console) {
    OutputOptions options;
    options.directory = directory;
    options.stdout_fd = options.stderr_fd = console.fd();
    return options;
}

}  // namespace

TEST_CASE("Directories of ranks are padded to the width of the last rank", "[output]") {
    CHECK(rank_directory(plan::SlotId{0}, 1) == "rank.0");
    CHECK(rank_directory(plan::SlotId{9}, 10) == "rank.9");
    CHECK(rank_directory(plan::SlotId{7}, 11) == "rank.07");
    CHECK(rank_directory(plan::SlotId{7}, 100) == "rank.07");
    CHECK(rank_directory(plan::SlotId{7}, 101) == "rank.007");
}

TEST_CASE("Every rank has two files of its raw bytes", "[output]") {
    const int world_size = GENERATE(1, 11, 101);
    const TempDir directory;
    const MemoryFile console;
    auto options = with_directory(directory.at("new/D"), console);
    options.files_open_max = 8;  // most files are closed and opened again
    options.console = {false};
    MuxUser mux(options, std::vector<std::string>(static_cast<std::size_t>(world_size), "s1"));
    for (int round = 0; round < 3; round++) {
        for (int rank = 0; rank < world_size; rank++) {
            mux->add(planned(rank), Stream::out, 0, fmt::format("{} out\r\xff{}\n", rank, round));
            mux->add(planned(rank), Stream::err, 0, fmt::format("{} err {};", rank, round));
        }
        REQUIRE(mux.drain());
    }
    mux->stop(soon());
    CHECK(mux.failures.empty());
    for (int rank = 0; rank < world_size; rank++) {
        const std::string path = directory.at("new/D/") + rank_directory(planned(rank), world_size);
        REQUIRE(
            content(path + "/stdout") ==
            fmt::format("{0} out\r\xff{1}\n{0} out\r\xff{2}\n{0} out\r\xff{3}\n", rank, 0, 1, 2));
        REQUIRE(content(path + "/stderr") == fmt::format("{0} err 0;{0} err 1;{0} err 2;", rank));
        REQUIRE(mux.credited(planned(rank), Stream::out) == content(path + "/stdout").size());
    }
}

TEST_CASE("Files of an earlier run are emptied at the start", "[output]") {
    const TempDir directory;
    const MemoryFile console;
    for (const char* const text : {"a long text\n", "short\n"}) {
        MuxUser mux(with_directory(directory.at("D"), console), {"s1"});
        mux->add(r0, Stream::out, 0, text);
        mux->stop(soon());
        CHECK(content(directory.at("D/rank.0/stdout")) == text);
        CHECK(content(directory.at("D/rank.0/stderr")).empty());
    }
}

TEST_CASE("A directory that cannot be made is an error that names it", "[output]") {
    const TempDir directory;
    const MemoryFile console;
    fs::create_directory(directory.at("D"));
    REQUIRE(fs::copy_file("/proc/self/status", directory.at("D/rank.0")));
    const auto made = OutputMux::create(with_directory(directory.at("D"), console), {"s1"}, [] {});
    REQUIRE_FALSE(made.has_value());
    CHECK(made.error().code == Errc::invalid_input);
    CHECK(made.error().message ==
          "--output-dir: " + directory.at("D/rank.0/stdout: Not a directory"));
}

TEST_CASE("A full disk is reported once for each file, and keeps nobody waiting", "[output]") {
    const TempDir directory;
    const MemoryFile console;
    fs::create_directories(directory.at("D/rank.1"));
    fs::create_symlink("/dev/full", directory.at("D/rank.1/stdout"));
    MuxUser mux(with_directory(directory.at("D"), console), {"s1", "s1"});
    for (int i = 0; i < 3; i++) {
        for (const int rank : {0, 1}) mux->add(planned(rank), Stream::out, 0, "text\n");
        REQUIRE(mux.drain());
    }
    REQUIRE(mux.failures.size() == 1);
    CHECK(mux.failures[0].message ==
          directory.at("D/rank.1/stdout: No space left on device; it is not complete"));
    CHECK(mux.credited(r1, Stream::out) == 15);
    CHECK(content(directory.at("D/rank.0/stdout")) == "text\ntext\ntext\n");
    CHECK(console.text().find("[1]<stdout>:text\n") != std::string::npos);
}

TEST_CASE("A restart has files of its own, and those before keep what they have", "[output]") {
    const TempDir directory;
    const MemoryFile console;
    MuxUser mux(with_directory(directory.at("D"), console), {"s1", "s1"});
    mux->add(r0, Stream::out, 0, "first\n");
    mux->add(r1, Stream::err, 0, "dies");
    mux->finish(r1, Stream::err);
    CHECK(mux->tail(r1) == std::vector<std::string>{"dies"});
    mux->begin_attempt(1);
    CHECK(mux->tail(r1).empty());
    mux->add(r0, Stream::out, 0, "second\n");
    mux->begin_attempt(2);
    mux->begin_attempt(4);
    mux->add(r0, Stream::out, 0, "fifth\n");
    REQUIRE(mux.drain());
    mux->stop(soon());
    CHECK(mux.failures.empty());
    CHECK(content(directory.at("D/rank.0/stdout")) == "first\n");
    CHECK(content(directory.at("D/rank.1/stderr")) == "dies");
    CHECK(content(directory.at("D/attempt_1/rank.0/stdout")) == "second\n");
    CHECK(content(directory.at("D/attempt_1/rank.1/stderr")).empty());
    CHECK(content(directory.at("D/attempt_4/rank.0/stdout")) == "fifth\n");
    CHECK_FALSE(fs::exists(directory.at("D/attempt_3")));
    CHECK(mux.credited(r0, Stream::out) == 6 + 7 + 6);
}

TEST_CASE("Many bytes around a restart all land in the files of their attempt", "[output]") {
    const TempDir directory;
    const MemoryFile console;
    auto options = with_directory(directory.at("D"), console);
    options.console = {false, false, false};
    options.files_open_max = 2;
    MuxUser mux(options, std::vector<std::string>(3, "s1"));
    std::map<std::string, std::string> sent;
    for (int attempt = 0; attempt < 4; attempt++) {
        if (attempt > 0) mux->begin_attempt(attempt);
        for (int i = 0; i < 3000; i++) {
            const int rank = i % 3;
            const std::string line = fmt::format("{} {} {}\n", attempt, rank, i);
            const std::string folder = attempt == 0 ? "" : fmt::format("attempt_{}/", attempt);
            mux->add(planned(rank), Stream::out, 0, line);
            sent[fmt::format("D/{}rank.{}/stdout", folder, rank)] += line;
        }
    }
    REQUIRE(mux.drain());
    mux->stop(soon());
    CHECK(mux.failures.empty());
    REQUIRE(sent.size() == 12);
    for (const auto& [path, text] : sent) CHECK(content(directory.at(path)) == text);
}

TEST_CASE("Both outputs of a rank may share a file, in the order of their arrival", "[output]") {
    const TempDir directory;
    const MemoryFile console;
    auto options = with_directory(directory.at("D"), console);
    options.file_name = [](std::size_t stream, int) {
        return fmt::format("time_rank{}.log", rank_of(stream));
    };
    MuxUser mux(options, {"s1", "s1"});
    std::array<std::string, 2> expected;
    for (int i = 0; i < 1000; i++) {
        const std::string line = fmt::format("line {}\n", i);
        mux->add(i % 2 == 0 ? r0 : r1, i % 3 == 0 ? Stream::err : Stream::out, 0, line);
        expected[static_cast<std::size_t>(i % 2)] += line;
    }
    REQUIRE(mux.drain());
    mux->stop(soon());
    CHECK(mux.failures.empty());
    CHECK(content(directory.at("D/time_rank0.log")) == expected[0]);
    CHECK(content(directory.at("D/time_rank1.log")) == expected[1]);
    CHECK(mux.credited(r0, Stream::out) + mux.credited(r0, Stream::err) == expected[0].size());
}

TEST_CASE("A stream without a file is only shown, and one that is neither is still credited",
          "[output]") {
    const TempDir directory;
    const MemoryFile console;
    auto options = with_directory(directory.at("D"), console);
    options.tag = Tag::none;
    options.file_name = [](std::size_t stream, int) -> std::string {
        return stream == 0 ? "out0" : "";
    };
    options.shows.resize(4);
    options.shows[0].console = false;
    options.shows[3].console = false;
    MuxUser mux(options, {"s1", "s1"});
    for (int rank = 0; rank < 2; rank++) {
        mux->add(planned(rank), Stream::out, 0, fmt::format("out{}\n", rank));
        mux->add(planned(rank), Stream::err, 0, fmt::format("err{}\n", rank));
    }
    REQUIRE(mux.drain());
    mux->stop(soon());
    CHECK(content(directory.at("D/out0")) == "out0\n");
    CHECK(std::distance(fs::directory_iterator(directory.at("D")), fs::directory_iterator()) == 1);
    std::vector<std::string> lines = lines_of(console.text());
    std::ranges::sort(lines);
    CHECK(lines == std::vector<std::string>{"err0\n", "out1\n"});
    for (int rank = 0; rank < 2; rank++)
        for (const Stream stream : {Stream::out, Stream::err})
            CHECK(mux.credited(planned(rank), stream) == 5);
}

TEST_CASE("A restart whose files cannot be made is reported once, and keeps nobody waiting",
          "[output]") {
    const TempDir directory;
    const MemoryFile console;
    MuxUser mux(with_directory(directory.at("D"), console), {"s1", "s1"});
    REQUIRE(mux.drain());
    { std::ofstream in_the_way(directory.at("D/attempt_1")); }
    mux->begin_attempt(1);
    for (int i = 0; i < 10; i++) mux->add(i % 2 == 0 ? r0 : r1, Stream::out, 0, "text\n");
    REQUIRE(mux.drain());
    mux->stop(soon());
    mux.collect();
    REQUIRE(mux.failures.size() == 1);
    CHECK_THAT(mux.failures[0].message, Catch::Contains("/D/attempt_1/rank.0/stdout: ") &&
                                            Catch::Contains("; attempt 1 has no files"));
    CHECK(mux.credited(r0, Stream::out) == 25);
}

TEST_CASE("Links that others have put among the files of ranks are not followed", "[output]") {
    const TempDir directory;
    const MemoryFile console;
    const auto try_to_open = [&] {
        auto mux = OutputMux::create(with_directory(directory.at("D"), console), {"s1"}, [] {});
        return mux ? "" : mux.error().message;
    };
    const auto link = [&](const std::string& to, const std::string& name) {
        fs::remove_all(directory.at("D"));
        fs::create_directories(fs::path(directory.at(name)).parent_path());
        fs::create_symlink(to, directory.at(name));
    };
    const std::string file = directory.write("file", "");
    const std::string folder = directory.at("folder");
    fs::create_directories(folder);
    link(file, "D/rank.0/stdout");  // one's own
    CHECK(try_to_open().empty());
    link(folder, "D/rank.0");
    CHECK(try_to_open().empty());
    CHECK(fs::exists(folder + "/stderr"));
    if (::geteuid() != 0) return skip_case("only root can give anything away");
    const auto give_away = [&](const std::string& name) {
        REQUIRE(::lchown(directory.at(name).c_str(), 12'345, 0) == 0);
    };
    std::ofstream(file) << "mine\n";
    link(file, "D/rank.0/stdout");
    give_away("D/rank.0/stdout");
    CHECK(try_to_open() ==
          fmt::format("--output-dir: {}: it is another user's link, which could lead anywhere",
                      directory.at("D/rank.0/stdout")));
    CHECK(content(file) == "mine\n");
    fs::remove(folder + "/stderr");
    link(folder, "D/rank.0");
    give_away("D/rank.0");
    CHECK_THAT(try_to_open(), Catch::Contains("another user's link"));
    CHECK_FALSE(fs::exists(folder + "/stderr"));
    fs::remove(directory.at("D/rank.0"));
    fs::create_directories(directory.at("D/rank.0"));
    give_away("D/rank.0");
    CHECK_THAT(try_to_open(), Catch::Contains("its folder rank.0 belongs to user 12345"));
    give_away("D");  // where the user has said, and folders of whoever has that
    CHECK(try_to_open().empty());
}
