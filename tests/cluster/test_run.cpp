// What a job is: which rank runs where, with which environment, directory and input.
#include "tests/cluster/support/ranks.h"
#include "tests/support/catch.h"

#include <fmt/format.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

using namespace dtrun;
using namespace dtrun::cluster;
using Catch::Contains;
namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

namespace test_run {

constexpr int kHosts = 4;

/// Runs `sh -c script` on all ranks with these options before it.
Finished run_shell(Cluster& cluster, Lines words, const std::string& script,
                   const RunOptions& options = {}) {
    words.insert(words.end(), {"sh", "-c", script});
    return cluster.dtrun(std::move(words), options);
}

/// Rank and host of each line "rank host", in the order of ranks.
Lines places(Cluster& cluster, Lines words) {
    words.insert(words.end(), {"--tag", "none"});
    const Finished done = run_shell(cluster, std::move(words), "echo $DTRUN_RANK $(hostname)");
    INFO(done.err);
    CHECK(done.exit_code == 0);
    return sorted_lines(done.out);
}

void write_file(const fs::path& path, std::string_view text) {
    std::ofstream(path) << text;
}

TEST_CASE("sixteen ranks on four hosts all run, each in its place, and nothing stays behind",
          "[cluster][run][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done =
        run_shell(cluster, {"-np", "16", "-H", "s1:4,s2:4,s3:4,s4:4"},
                  "echo $(hostname) $DTRUN_RANK/$DTRUN_SIZE $DTRUN_LOCAL_RANK/$DTRUN_LOCAL_SIZE "
                  "$DTRUN_CROSS_RANK/$DTRUN_CROSS_SIZE");
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(without_news(done.err).empty());
    const auto printed = by_rank(done.out);
    REQUIRE(printed.size() == 16);
    for (int rank = 0; rank < 16; ++rank)
        CHECK(printed.at(rank) ==
              fmt::format("s{} {}/16 {}/4 {}/4\n", rank / 4 + 1, rank, rank % 4, rank / 4));
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("without hosts ranks run on this machine, without ssh", "[cluster][run][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    cluster.sshd_stop("head");
    CHECK(places(cluster, {"-np", "3"}) == Lines{"0 head", "1 head", "2 head"});
    CHECK(places(cluster, {}) == Lines{"0 head"});
    CHECK(places(cluster, {"run", "-H", "localhost:2"}) == Lines{"0 head", "1 head"});
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("this machine and others can share a job", "[cluster][run]") {
    Cluster& cluster = Cluster::shared(kHosts);
    CHECK(places(cluster, {"-H", "s1:1,localhost:2,s2"}) ==
          Lines{"0 s1", "1 head", "2 head", "3 s2"});
}

TEST_CASE("-H takes ranges, users, addresses and repeated names", "[cluster][run]") {
    Cluster& cluster = Cluster::shared(kHosts);
    CHECK(places(cluster, {"-H", "s[1-3]:2"}) ==
          Lines{"0 s1", "1 s1", "2 s2", "3 s2", "4 s3", "5 s3"});
    CHECK(places(cluster, {"-H", "10.99.0.2:1,root@s1:1"}) == Lines{"0 s2", "1 s1"});
    CHECK(places(cluster, {"-H", "s1,s2,s1"}) == Lines{"0 s1", "1 s1", "2 s2"});
}

TEST_CASE("-np, --map-by, --oversubscribe, --include and --exclude choose among the slots",
          "[cluster][run]") {
    Cluster& cluster = Cluster::shared(kHosts);
    CHECK(places(cluster, {"-np", "3", "-H", "s1:2,s2:2"}) == Lines{"0 s1", "1 s1", "2 s2"});
    CHECK(places(cluster, {"-np", "3", "-H", "s1:2,s2:2", "--map-by", "node"}) ==
          Lines{"0 s1", "1 s2", "2 s1"});
    CHECK(places(cluster, {"-np", "3", "-H", "s1", "--oversubscribe"}) ==
          Lines{"0 s1", "1 s1", "2 s1"});
    CHECK(places(cluster, {"-H", "s1:2,s2:2,s3:2", "--include", "s3@s1:1"}) ==
          Lines{"0 s1", "1 s3", "2 s3"});
    CHECK(places(cluster, {"-H", "s1:2,s2:2", "--exclude", "s1:0"}) ==
          Lines{"0 s1", "1 s2", "2 s2"});
}

TEST_CASE("more ranks than slots is an error that shows the arithmetic, and nothing starts",
          "[cluster][run]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done = cluster.dtrun({"-np", "7", "-H", "s1:4,s2:2", "true"});
    CHECK(done.exit_code == 200);
    CHECK_THAT(done.err, Contains("7") && Contains("6") && Contains("--oversubscribe"));
    CHECK(done.out.empty());
}

TEST_CASE("a hostfile has slots, lines as host:N, repeated plain names, YAML, or comes on stdin",
          "[cluster][run]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path file = cluster.scratch() / "hosts";
    write_file(file, "# the cluster\ns1 slots=2 max_slots=4   # first\n\ns2 slots=1\n");
    CHECK(places(cluster, {"--hostfile", file}) == Lines{"0 s1", "1 s1", "2 s2"});
    write_file(file, "s3:1\ns1:2\n");
    CHECK(places(cluster, {"-hostfile", file}) == Lines{"0 s3", "1 s1", "2 s1"});
    write_file(file, "s1\ns1\ns2\n");
    CHECK(places(cluster, {"--hostfile", file}) == Lines{"0 s1", "1 s1", "2 s2"});
    write_file(file,
               "hosts:\n"
               "  - {host: first, address: 10.99.0.3, slots: 2}\n"
               "  - s1: {user: dtuser}\n");
    private_ssh_directory(cluster, "ssh-yaml");  // "first" becomes known
    const Finished yaml =
        run_shell(cluster, {"--hostfile", file, "--tag", "none", "--accept-new-host-keys"},
                  "echo $DTRUN_RANK $DTRUN_HOST $(hostname) $(id -un)");
    INFO(yaml.err);
    CHECK(sorted_lines(yaml.out) == Lines{"0 first s3 root", "1 first s3 root", "2 s1 s1 dtuser"});

    RunOptions options;
    options.stdin_text = "s4\ns2\n";
    const Finished from_stdin =
        run_shell(cluster, {"--hostfile", "-", "--tag", "none", "--stdin", "none"},
                  "echo $DTRUN_RANK $(hostname)", options);
    INFO(from_stdin.err);
    CHECK(sorted_lines(from_stdin.out) == Lines{"0 s4", "1 s2"});

    const Finished missing = cluster.dtrun({"--hostfile", "/no/such/file", "true"});
    CHECK(missing.exit_code == 200);
    CHECK_THAT(missing.err, Contains("/no/such/file"));
}

TEST_CASE("each rank has the variables of Horovod, torch and DeepSpeed that fit its place",
          "[cluster][run][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done = run_shell(
        cluster, {"-H", "s1:2,s2:1,s3:2"},
        "echo $HOROVOD_RANK $HOROVOD_SIZE $HOROVOD_LOCAL_RANK $HOROVOD_LOCAL_SIZE "
        "$HOROVOD_CROSS_RANK $HOROVOD_CROSS_SIZE $HOROVOD_HOSTNAME; "
        "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE; "
        "echo $CROSS_RANK $CROSS_SIZE $LOCAL_SIZE; "
        "echo $HOROVOD_CONTROLLER $HOROVOD_GLOO_IFACE $DTRUN_GENERATION $TORCHELASTIC_RUN_ID");
    INFO(done.err);
    const auto printed = by_rank(done.out);
    REQUIRE(printed.size() == 5);
    struct Expected {
        const char *horovod, *torch, *deepspeed;
    };
    const Expected expected[] = {
        {"0 5 0 2 0 3 s1", "0 5 0 2 0 3", "0 3 2"}, {"1 5 1 2 0 2 s1", "1 5 1 2 0 3", "0 3 2"},
        {"2 5 0 1 1 3 s2", "2 5 0 1 1 3", "1 3 1"}, {"3 5 0 2 2 3 s3", "3 5 0 2 2 3", "2 3 2"},
        {"4 5 1 2 1 2 s3", "4 5 1 2 2 3", "2 3 2"},
    };
    std::set<std::string> fourth_lines;
    for (int rank = 0; rank < 5; ++rank) {
        const Lines lines = lines_of(printed.at(rank));
        REQUIRE(lines.size() == 4);
        CHECK(lines[0] == expected[rank].horovod);
        CHECK(lines[1] == expected[rank].torch);
        CHECK(lines[2] == expected[rank].deepspeed);
        fourth_lines.insert(lines[3]);
    }
    REQUIRE(fourth_lines.size() == 1);
    CHECK(std::regex_match(*fourth_lines.begin(), std::regex("gloo eth0 1 [0-9a-f]{32}")));
}

TEST_CASE("all ranks can reach MASTER_ADDR:MASTER_PORT, on which rank 0 listens with --store rank0",
          "[cluster][run]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string program = write_program(cluster, "meet.py", R"(#!/usr/bin/python3 -S
import os, socket, time
port, world = int(os.environ["MASTER_PORT"]), int(os.environ["WORLD_SIZE"])
if os.environ["RANK"] == "0":
    server = socket.create_server(("", port))
    print(sorted(server.accept()[0].recv(9).decode() for _ in range(world - 1)))
else:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            peer = socket.create_connection((os.environ["MASTER_ADDR"], port), timeout=5)
            peer.sendall(os.environ["RANK"].encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
)");
    for (const char* hosts : {"s2:2,s1:2", "localhost:1,s1,s2:2"}) {
        INFO(hosts);
        const Finished done = cluster.dtrun({"-H", hosts, "--store", "rank0", program});
        INFO(done.err);
        CHECK(done.out == "[0]<stdout>:['1', '2', '3']\n");
        CHECK(done.exit_code == 0);
    }
    // Somebody who gives them means them.
    const Finished given =
        run_shell(cluster, {"-H", "s1", "-x", "MASTER_ADDR=10.1.2.3", "-x", "MASTER_PORT=77"},
                  "echo $MASTER_ADDR $MASTER_PORT");
    CHECK(given.out == "10.1.2.3 77\n");
}

TEST_CASE("the caller's environment is forwarded, but nothing that is bound to its host",
          "[cluster][run]") {
    Cluster& cluster = Cluster::shared(kHosts);
    RunOptions options;
    options.env["COLOUR"] = "red  'and' \"blue\" $HOME `x` \\ \n second line";
    options.env["DISPLAY"] = ":7";
    options.env["SSH_AUTH_SOCK"] = "/tmp/of-head";
    options.env["TMPDIR"] = "/tmp/of-head";
    options.env["CUDA_VISIBLE_DEVICES"] = "3";
    options.env["HOROVOD_RANK"] = "77";
    options.env["RANK"] = "77";
    options.env["OMPI_COMM_WORLD_RANK"] = "77";
    options.env["MASTER_ADDR"] = "stale";
    options.env["PMI_RANK"] = "77";
    const std::string script =
        "echo \"$COLOUR|$DISPLAY|$SSH_AUTH_SOCK|$TMPDIR|$CUDA_VISIBLE_DEVICES|\"; "
        "echo $HOROVOD_RANK $RANK \"${OMPI_COMM_WORLD_RANK-none}\" \"${PMI_RANK-none}\"; "
        "[ $MASTER_ADDR = stale ] || echo fresh";
    const Finished done = run_shell(cluster, {"-H", "s1"}, script, options);
    INFO(done.err);
    CHECK(done.out == options.env["COLOUR"] + "|||||\n0 0 none 0\nfresh\n");
    const Finished here = run_shell(cluster, {"-np", "1"}, script, options);
    INFO(here.err);
    CHECK(here.out ==
          options.env["COLOUR"] + "|:7|/tmp/of-head|/tmp/of-head|3|\n0 0 none 0\nfresh\n");
}

TEST_CASE(
    "-x, --env-file and VAR=VALUE set variables, the later of these wins, --no-env keeps them",
    "[cluster][run]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path file = cluster.scratch() / "env";
    write_file(file, "# settings\nA=file\nB=file\nC=file\nQUOTED=\"two words\"\n");
    RunOptions options;
    options.env = {{"A", "caller"}, {"FROM_HERE", "yes"}, {"UNNAMED", "caller"}};
    const std::string script = "echo \"$A|$B|$C|$QUOTED|$FROM_HERE|$UNNAMED|\"";
    const Lines words{"-H", "s1", "--env-file", file, "-x", "FROM_HERE", "-x", "B=x", "-x", "C=x"};
    Lines with_assignment = words;
    with_assignment.push_back("C=a b=c");
    CHECK(run_shell(cluster, with_assignment, script, options).out ==
          "file|x|a b=c|two words|yes|caller|\n");
    Lines without_caller = words;
    without_caller.insert(without_caller.begin(), "--no-env");
    CHECK(run_shell(cluster, without_caller, script, options).out == "file|x|x|two words|yes||\n");

    const Finished unset = cluster.dtrun({"-H", "s1", "-x", "NOT_SET_HERE", "true"});
    CHECK(unset.exit_code == 200);
    CHECK_THAT(unset.err, Contains("NOT_SET_HERE"));
    const Finished own = cluster.dtrun({"-H", "s1", "-x", "RANK=3", "true"});
    CHECK(own.exit_code == 200);
    CHECK_THAT(own.err, Contains("RANK"));
}

TEST_CASE("words reach the program as they are, whatever they hold", "[cluster][run][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const std::string program = write_program(
        cluster, "words.sh", "#!/bin/sh\nfor word in \"$@\"; do printf '<%s>' \"$word\"; done\n");
    const Finished done = cluster.dtrun({"-H", "s1", program, "a  b", "", "$HOME", "'\"\\", "*",
                                         "-np", "line\nline", "--", "A=b", "\xff\xfe", ";|&"});
    INFO(done.err);
    CHECK(done.out == "<a  b><><$HOME><'\"\\><*><-np><line\nline><--><A=b><\xff\xfe><;|&>");
    const std::string big(100'000, 'w');
    const Finished long_word = cluster.dtrun({"-H", "s2", "sh", "-c", "echo ${#1}", "sh", big});
    CHECK(long_word.out == "100000\n");
}

TEST_CASE("ranks run in the caller's directory, else at home, and dtrun says which",
          "[cluster][run]") {
    Cluster& cluster = Cluster::shared(kHosts);
    RunOptions options;
    options.cwd = fresh_directory(cluster, "here");
    const Finished there = run_shell(cluster, {"-H", "s1"}, "pwd; echo $PWD", options);
    CHECK(there.out == options.cwd + "\n" + options.cwd + "\n");
    CHECK(without_news(there.err).empty());

    REQUIRE(cluster.run("head", {"mkdir", "-p", "/tmp/only-here"}).exit_code == 0);
    REQUIRE(cluster.run("s1", {"mkdir", "-p", "/tmp/only-here"}).exit_code == 0);
    options.cwd = "/tmp/only-here";
    const Finished home = run_shell(cluster, {"-H", "s1,s2"}, "pwd", options);
    CHECK(by_rank(home.out) == std::map<int, std::string>{{0, "/tmp/only-here\n"}, {1, "/root\n"}});
    CHECK_THAT(home.err, Contains("s2") && Contains("/tmp/only-here") && Contains("/root"));
    CHECK_THAT(without_news(home.err), !Contains("s1"));

    const Finished asked = run_shell(cluster, {"-H", "s1", "--wdir", "/usr/lib"}, "pwd", options);
    CHECK(asked.out == "/usr/lib\n");
    REQUIRE(cluster.run("s1", {"mkdir", "-p", "/tmp/only-here/sub"}).exit_code == 0);
    const Finished relative = run_shell(cluster, {"-H", "s1", "-wdir", "sub"}, "pwd", options);
    CHECK(relative.out == "/tmp/only-here/sub\n");
}

TEST_CASE("a program is found in the working directory when written with ./", "[cluster][run]") {
    Cluster& cluster = Cluster::shared(kHosts);
    write_program(cluster, "local.sh", "#!/bin/sh\necho found\n");
    CHECK(cluster.dtrun({"-H", "s1", "./local.sh"}).out == "found\n");
    const Finished hint = cluster.dtrun({"-H", "s1", "local.sh"});
    CHECK(hint.exit_code == 127);
    CHECK_THAT(hint.err, Contains("./local.sh"));
}

TEST_CASE("standard input goes to rank 0, to the rank that --stdin names, to all or to none",
          "[cluster][run][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    RunOptions options;
    options.stdin_text = "one\ntwo\n";
    const auto counts = [&](Lines words) {
        words.insert(words.end(), {"-H", "s1:2,s2:1"});
        const Finished done = run_shell(cluster, words, "wc -c", options);
        INFO(done.err);
        CHECK(done.exit_code == 0);
        return by_rank(done.out);
    };
    using Counts = std::map<int, std::string>;
    CHECK(counts({}) == Counts{{0, "8\n"}, {1, "0\n"}, {2, "0\n"}});
    CHECK(counts({"--stdin", "2"}) == Counts{{0, "0\n"}, {1, "0\n"}, {2, "8\n"}});
    CHECK(counts({"--stdin", "all"}) == Counts{{0, "8\n"}, {1, "8\n"}, {2, "8\n"}});
    CHECK(counts({"--stdin", "none"}) == Counts{{0, "0\n"}, {1, "0\n"}, {2, "0\n"}});
}

TEST_CASE("standard input is passed on as it comes, and its end ends the rank's",
          "[cluster][run]") {
    Cluster& cluster = Cluster::shared(kHosts);
    Running job = cluster.start_dtrun({"-H", "s1,s2", "cat"});
    job.write_stdin("first\n");
    REQUIRE(job.wait_for_output("[0]<stdout>:first\n"));
    job.write_stdin("second\n");
    REQUIRE(job.wait_for_output("[0]<stdout>:second\n"));
    CHECK_FALSE(job.finished());
    job.close_stdin();
    CHECK(job.wait().exit_code == 0);
}

TEST_CASE("--tag chooses what stands before each line; one rank has none", "[cluster][run]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const auto output = [&](Lines words) {
        const Finished done = run_shell(cluster, words, "echo out; echo err >&2");
        return std::pair(sorted_lines(done.out), sorted_lines(without_news(done.err)));
    };
    using Pair = std::pair<Lines, Lines>;
    CHECK(output({"-H", "s1"}) == Pair({"out"}, {"err"}));
    CHECK(output({"-H", "s1,s2"}) ==
          Pair({"[0]<stdout>:out", "[1]<stdout>:out"}, {"[0]<stderr>:err", "[1]<stderr>:err"}));
    CHECK(output({"-H", "s1,s2", "--tag", "none"}) == Pair({"out", "out"}, {"err", "err"}));
    CHECK(output({"-H", "s1,s2", "--tag", "rank"}) ==
          Pair({"[0] out", "[1] out"}, {"[0] err", "[1] err"}));
    CHECK(output({"-H", "s1,s2", "--tag", "host"}) ==
          Pair({"[s1] out", "[s2] out"}, {"[s1] err", "[s2] err"}));
    CHECK(output({"-H", "s1,s2", "--tag=rank-host"}) ==
          Pair({"[0@s1] out", "[1@s2] out"}, {"[0@s1] err", "[1@s2] err"}));
    CHECK(output({"-H", "s1", "--tag", "horovod"}) ==
          Pair({"[0]<stdout>:out"}, {"[0]<stderr>:err"}));
}

TEST_CASE("--timestamps are taken on the host when the line comes", "[cluster][run]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done =
        run_shell(cluster, {"-H", "s1,s2", "--timestamps"}, "echo first; sleep 0.3; date +%S");
    INFO(done.err);
    const Lines lines = sorted_lines(done.out);
    REQUIRE(lines.size() == 4);
    const std::regex form(
        "([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:([0-9]{2})[.]([0-9]{3})) "
        "\\[([01])\\]<stdout>:(.*)");
    std::map<std::string, Lines> times;
    for (const std::string& line : lines) {
        std::smatch match;
        INFO(line);
        REQUIRE(std::regex_match(line, match, form));
        times[match[4]].push_back(match[1]);
        if (match[5] != "first") {
            const int apart = (std::stoi(match[2]) - std::stoi(match[5]) + 60) % 60;
            CHECK(apart <= 1);
        }
    }
    for (const auto& [rank, stamps] : times) {
        REQUIRE(stamps.size() == 2);
        CHECK(stamps[0] < stamps[1]);
    }
}

TEST_CASE("--only-ranks and --quiet-ranks choose what is shown, --output-dir has it all",
          "[cluster][run][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const auto shown = [&](Lines words) {
        words.insert(words.end(), {"-H", "s1:3,s2:3"});
        std::set<int> ranks;
        for (const auto& [rank, text] : by_rank(run_shell(cluster, words, "echo $DTRUN_RANK").out))
            ranks.insert(rank);
        return ranks;
    };
    CHECK(shown({"--only-ranks", "0,3-5"}) == std::set{0, 3, 4, 5});
    CHECK(shown({"--quiet-ranks", "0,3-5"}) == std::set{1, 2});
    const fs::path directory = fresh_directory(cluster, "logs");
    CHECK(shown({"--quiet-ranks", "0-4", "--output-dir", directory}) == std::set{5});
    for (int rank = 0; rank < 6; ++rank)
        CHECK(file_text(directory / fmt::format("rank.{}", rank) / "stdout") ==
              fmt::format("{}\n", rank));
    CHECK(cluster.dtrun({"-H", "s1", "--only-ranks", "1", "true"}).exit_code == 200);
}

TEST_CASE("--output-dir has each rank's bytes in rank.N, zero padded, one rank included",
          "[cluster][run]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const fs::path directory = cluster.scratch() / "made/by/dtrun";
    fs::remove_all(cluster.scratch() / "made");
    const std::string script = "printf 'out %s' $DTRUN_RANK; printf 'err\\r\\n\\0' >&2";
    const Finished many =
        run_shell(cluster, {"-np", "11", "-H", "s1:6,s2:6", "--output-dir", directory}, script);
    INFO(many.err);
    CHECK(many.exit_code == 0);
    for (int rank = 0; rank < 11; ++rank) {
        const fs::path files = directory / fmt::format("rank.{:02}", rank);
        CHECK(file_text(files / "stdout") == fmt::format("out {}", rank));
        CHECK(file_text(files / "stderr") == std::string("err\r\n\0", 6));
    }
    CHECK(by_rank(many.out).size() == 11);
    const Finished one = run_shell(cluster, {"-H", "s1", "--output-filename", directory}, script);
    CHECK(one.out == "out 0");
    CHECK(file_text(directory / "rank.0" / "stdout") == "out 0");

    const Finished denied = run_shell(cluster, {"-H", "s1", "--output-dir", "/proc/x"}, "true");
    CHECK(denied.exit_code == 200);
    CHECK_THAT(denied.err, Contains("/proc/x"));
}

TEST_CASE("all ranks succeed: exit code 0, nothing said; --verbose says more", "[cluster][run]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done = cluster.dtrun({"-H", "s1:2,s2:2", "true"});
    CHECK(done.exit_code == 0);
    CHECK(done.out.empty());
    CHECK(without_news(done.err).empty());
    const Finished verbose = cluster.dtrun({"--verbose", "-H", "s1,s2", "true"});
    CHECK(verbose.exit_code == 0);
    CHECK_THAT(verbose.err, Contains("s1") && Contains("s2") && Contains("pid"));
}

TEST_CASE("--plan prints where each rank would run and starts nothing", "[cluster][run]") {
    Cluster& cluster = Cluster::shared(kHosts);
    for (const char* host : {"s1", "s2"}) cluster.sshd_stop(host);
    const Finished text = cluster.dtrun({"--plan", "-H", "s1:1,dtuser@s2:1", "-x", "K=v", "prog"});
    CHECK(text.exit_code == 0);
    CHECK_THAT(text.out, Contains("s1") && Contains("s2") && Contains("dtuser") &&
                             Contains("prog") && Contains("K=..."));
    const Finished json = cluster.dtrun({"--plan=json", "-H", "s1:1,s2:1", "prog"});
    const Finished parsed = cluster.run(
        "head", {"python3", "-c",
                 "import json, sys; plan = json.loads(sys.argv[1]); "
                 "print(plan['world_size'], [(r['rank'], r['host'], r['local_rank'], "
                 "r['cross_rank'], r['local_size'], r['cross_size']) for r in plan['ranks']])",
                 json.out});
    INFO(parsed.err);
    CHECK(parsed.out == "2 [(0, 's1', 0, 0, 1, 2), (1, 's2', 0, 1, 1, 2)]\n");
}

TEST_CASE("ranks inherit no descriptors but their standard streams, and one for MPI",
          "[cluster][run]") {
    Cluster& cluster = Cluster::shared(kHosts);
    for (const char* const mpi : {"none", "auto"}) {
        const Finished done = cluster.dtrun(
            {"--mpi", mpi, "-H", "s1:2,localhost:2,s2", "sh", "-c",
             "ls /proc/self/fd | grep -vx \"${PMI_FD-none}\"; ls /proc/self/fd | wc -l"});
        INFO(done.err);
        const bool one_more = std::string_view(mpi) == "auto";
        const auto ranks = by_rank(done.out);
        CHECK(ranks.size() == 5);
        for (const auto& [rank, descriptors] : ranks) {
            INFO("rank " << rank);  // its last descriptor is the directory
            CHECK(descriptors == (one_more ? "0\n1\n2\n3\n5\n" : "0\n1\n2\n3\n4\n"));
        }
    }
}

TEST_CASE("as an ordinary user everything works the same", "[cluster][run]") {
    Cluster& cluster = Cluster::shared(kHosts);
    RunOptions options;
    options.user = "dtuser";
    const Finished done = run_shell(cluster, {"-H", "s1:2,s2:2"}, "id -un; echo $HOME", options);
    INFO(done.err);
    CHECK(done.exit_code == 0);
    for (const auto& [rank, text] : by_rank(done.out)) CHECK(text == "dtuser\n/home/dtuser\n");
    CHECK(by_rank(done.out).size() == 4);
}

TEST_CASE("the demonstration needs nothing on the hosts, and says what to type next",
          "[cluster][run][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    const Finished done = cluster.dtrun({"demo", "-H", "s1:2,s2:2", "--tag", "rank"});
    INFO(done.err);
    CHECK(done.exit_code == 0);
    CHECK(without_news(done.err).empty());
    for (int rank = 0; rank < 4; ++rank)
        CHECK_THAT(done.out, Contains(fmt::format("[{}] rank {} of 4 runs on s{}: process ", rank,
                                                  rank, rank / 2 + 1)));
    CHECK_THAT(done.out, Contains("[0] all 4 ranks on 2 hosts have met, which takes ") &&
                             Contains("\n  dtrun -H s1:2,s2:2 --tag rank python"));
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("two jobs on the same hosts at once do not meet", "[cluster][run][sanitized]") {
    Cluster& cluster = Cluster::shared(kHosts);
    // Each says that it is up once its sleep has been executed, and not only forked.
    const Lines words{"-H", "s1:2,s2:2", "sh", "-c",
                      "sleep 60 & until grep -q sleep /proc/$!/comm; do :; done; "
                      "echo up $DTRUN_JOB; wait"};
    Running first = cluster.start_dtrun(words);
    Running second = cluster.start_dtrun(words);
    REQUIRE(wait_for_count(first, "up", 4));
    REQUIRE(wait_for_count(second, "up", 4));
    CHECK(by_rank(first.out_so_far()).at(0) != by_rank(second.out_so_far()).at(0));
    first.signal(SIGTERM);
    CHECK(first.wait().exit_code == 143);
    const auto is_sleep = [](const Process& process) { return process.name == "sleep"; };
    for (const char* host : {"s1", "s2"}) {
        int sleeping = 0;
        for (const Process& process : cluster.processes(host)) sleeping += is_sleep(process);
        CHECK(sleeping == 2);
    }
    second.signal(SIGTERM);
    CHECK(second.wait().exit_code == 143);
    CHECK(cluster.wait_all_gone());
}

TEST_CASE("thirty-two hosts are not too many", "[cluster][run][many]") {
    Cluster many(32);
    const Finished done = run_shell(many, {"-H", many.host_list(2)}, "echo $(hostname)");
    INFO(done.err);
    CHECK(done.exit_code == 0);
    const auto printed = by_rank(done.out);
    REQUIRE(printed.size() == 64);
    for (int rank = 0; rank < 64; ++rank)
        CHECK(printed.at(rank) == fmt::format("s{}\n", rank / 2 + 1));
    CHECK(many.wait_all_gone());
}

}  // namespace test_run
