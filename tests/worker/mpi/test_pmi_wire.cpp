// Lines of PMI-1 and messages of PMI-2, as bytes.
#include "tests/support/catch.h"
#include "worker/mpi/pmi_wire.h"

#include <string>

using namespace dtrun;
using namespace dtrun::mpi;
using Catch::Contains;

namespace {

/// All commands in `bytes`, which come in pieces of that size. Each is one word of the text.
std::string commands_in(std::string_view bytes, std::size_t step,
                        PmiVersion version = PmiVersion::one) {
    PmiReader reader;
    reader.set_version(version);
    std::string all;
    while (!bytes.empty()) {
        reader.feed(bytes.substr(0, step));
        bytes.remove_prefix(std::min(step, bytes.size()));
        for (;;) {
            const auto command = reader.next();
            if (!command) return all + "!" + command.error().message;
            if (!*command) break;
            all += (*command)->name + "{";
            for (const auto& [key, value] : (*command)->values) all += "<" + key + ">" + value;
            all += "}";
        }
    }
    return all;
}

std::string one(std::string_view bytes) {
    const std::string whole = commands_in(bytes, bytes.size());
    for (std::size_t step = 1; step < 8; ++step) CHECK(commands_in(bytes, step) == whole);
    return whole;
}
std::string two(std::string_view bytes) {
    const std::string whole = commands_in(bytes, bytes.size(), PmiVersion::two);
    for (std::size_t step = 1; step < 8; ++step)
        CHECK(commands_in(bytes, step, PmiVersion::two) == whole);
    return whole;
}

}  // namespace

TEST_CASE("a line of PMI-1 is words with values", "[worker][pmi]") {
    CHECK(one("cmd=init pmi_version=1 pmi_subversion=1\n") ==
          "init{<pmi_version>1<pmi_subversion>1}");
    CHECK(one("\n  cmd=put   key=a value=b=c=d  \ncmd=get key=\n") ==
          "put{<key>a<value>b=c=d}get{<key>}");
    CHECK(one("cmd=barrier_in\ncmd=barri") == "barrier_in{}");
    CHECK(encode_pmi1({"maxes", {{"kvsname_max", "256"}, {"keylen_max", "64"}}}) ==
          "cmd=maxes kvsname_max=256 keylen_max=64\n");
}

TEST_CASE("of MPI_Comm_spawn only the place among others is kept", "[worker][pmi]") {
    CHECK(one("mcmd=spawn\nnprocs=2\nexecname=./a b\ntotspawns=2\nspawnssofar=1\narg1=x=y z\n"
              "argcnt=1\npreput_num=0\ninfo_num=0\nendcmd\nmcmd=spawn\ntotspawns=2\n"
              "spawnssofar=2\n\nendcmd\ncmd=finalize\n") ==
          "spawn{<totspawns>2<spawnssofar>1}spawn{<totspawns>2<spawnssofar>2}finalize{}");
    std::string endless = "mcmd=spawn\n";
    for (int i = 0; i < 10'000; ++i) endless += "totspawns=1\n";
    CHECK_THAT(one(endless), Contains("counts itself twice"));
}

TEST_CASE("what is no line of PMI-1 is told apart", "[worker][pmi]") {
    for (const char* line : {"hello\n", "=1\n", "cmd=a b\n", "cmd=a =b\n"})
        CHECK_THAT(one(line), Contains("without a key"));
    CHECK_THAT(one("key=a cmd=get\n"), Contains("no command"));
    CHECK_THAT(one("endcmd=\n"), Contains("no command"));
    CHECK_THAT(one(std::string("\x80\xff\0\n", 4)), Contains("without a key"));
    CHECK(one(std::string("cmd=\x80\xff\0 k=\1\n", 12)) == std::string("\x80\xff\0{<k>\1}", 9));
}

TEST_CASE("a line without end is refused before it fills the memory", "[worker][pmi]") {
    PmiReader reader;
    const std::string piece(4'096, 'x');
    std::size_t pieces = 0;
    for (; pieces < 1'000; ++pieces) {
        reader.feed(piece);
        if (!reader.next()) break;
    }
    CHECK(pieces == PmiReader::kLineBytesMax / piece.size());
    const std::string longest(PmiReader::kLineBytesMax - 6, 'v');
    CHECK(commands_in("cmd=a " + longest.substr(0, 1) + "=" + longest.substr(2) + "\n", 4'096) ==
          "a{<v>" + longest.substr(2) + "}");
}

TEST_CASE("a message of PMI-2 has its length, and values with anything in them", "[worker][pmi]") {
    CHECK(two("22    cmd=kvs-get;key=a;;b=;") == "kvs-get{<key>a;b=}");
    CHECK(two("    22cmd=kvs-get;key=a;;b=;    11cmd=a;k=;;;") == "kvs-get{<key>a;b=}a{<k>;}");
    CHECK(two("     6cmd=x;") == "x{}");
    const PmiCommand command{"kvs-put", {{"key", ";;;"}, {"value", std::string("\n\0;", 3)}}};
    CHECK(two(encode_pmi2(command)) == std::string("kvs-put{<key>;;;<value>\n\0;}", 27));
    CHECK(encode_pmi2({"a", {{"k", ";"}}}) == "    11cmd=a;k=;;;");
}

TEST_CASE("what is no message of PMI-2 is told apart", "[worker][pmi]") {
    CHECK_THAT(two("cmd=init"), Contains("without its length"));
    CHECK_THAT(two("-00001"), Contains("without its length"));
    CHECK_THAT(two("1 1 1 "), Contains("without its length"));
    CHECK_THAT(two("     0"), Contains("no command"));
    CHECK_THAT(two("     5cmd=x"), Contains("without its end"));
    CHECK_THAT(two("     7cmd=x;;"), Contains("without its end"));
    CHECK_THAT(two("     4key;"), Contains("without a key"));
    CHECK_THAT(two("     6key=x;"), Contains("no command"));
    CHECK(two("999999") == "");
}
