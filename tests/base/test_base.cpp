#include "base/build_id.h"
#include "base/crypto.h"
#include "base/fd.h"
#include "base/ids.h"
#include "base/interfaces.h"
#include "base/json_writer.h"
#include "base/look_alike.h"
#include "base/loop/net.h"
#include "base/milliseconds.h"
#include "base/strings.h"
#include "base/tcp_table.h"
#include "base/text_layout.h"
#include "base/utf8.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

#include <sys/socket.h>
#include <time.h>
#include <algorithm>
#include <cstdlib>
#include <limits>

namespace dtrun {

TEST_CASE("an error that is passed up says who before what", "[result]") {
    const auto low = []() -> Result<int> { return fail(Errc::denied, "key of {} changed", "s1"); };
    const auto high = [&low]() -> Result<int> {
        auto got = low();
        if (!got) return fail(got.error(), "rank {}", 3);
        return got;
    };
    CHECK(high().error().message == "rank 3: key of s1 changed");
    CHECK(high().error().code == Errc::denied);
}

TEST_CASE("numbers are read whole or not at all", "[strings]") {
    CHECK(to_int("42", 0, 100) == 42);
    CHECK(to_int("-1", -5, 5) == -1);
    for (const char* bad : {"", "4x", " 4", "+4", "101", "99999999999999999999"})
        CHECK_FALSE(to_int(bad, 0, 100).has_value());
}

TEST_CASE("two letters that have changed places are one mistake", "[strings]") {
    CHECK(edit_distance("benhc", "bench") == 1);
    CHECK(edit_distance("rnu", "run") == 1);
    CHECK(edit_distance("torhc", "torch") == 1);
    CHECK(edit_distance("kitten", "sitting") == 3);
    CHECK(edit_distance("", "abc") == 3);
    CHECK(edit_distance("same", "same") == 0);
}

TEST_CASE("words split as a shell would split them, without expanding anything", "[strings]") {
    using Words = std::vector<std::string>;
    CHECK(shell_words("ssh -J 'a b' \"c\\\"d\" e\\ f $HOME") ==
          Words{"ssh", "-J", "a b", "c\"d", "e f", "$HOME"});
    CHECK(shell_words("  ") == Words{});
    CHECK(shell_words("''") == Words{""});
    CHECK_FALSE(shell_words("'open").has_value());
    for (const char* text : {"", "a b", "it's", "$x `y` \"z\"", "plain-1.0_@%+=:,./"})
        CHECK(shell_words(shell_quote(text)) == Words{text});
}

TEST_CASE("lists of names are cut with a count of the rest", "[strings]") {
    CHECK(join_names({"a"}) == "a");
    CHECK(join_names({"a", "b"}) == "a and b");
    CHECK(join_names({"a", "b", "c"}) == "a, b and c");
    CHECK(join_names({"a", "b", "c", "d"}, 3) == "a, b and 2 more");
    CHECK(plural(1, "host") == "1 host");
    CHECK(plural(0, "host") == "0 hosts");
}

TEST_CASE("durations and sizes are told in the unit that fits them", "[base]") {
    CHECK(duration_text(0.25) == "0.25 s");
    CHECK(duration_text(12.3) == "12 s");
    CHECK(duration_text(75.5) == "1 min 15 s");
    CHECK(duration_text(3 * 3'600 + 301) == "3 h 05 min");
    CHECK(duration_text(2 * 86'400 + 3 * 3'600) == "2 d 3 h");
    CHECK(bytes_text(512) == "512B");
    CHECK(bytes_text(1.5 * (1 << 30)) == "1.5G");
    CHECK(bytes_text(1'000) == "1.0K");
    CHECK(bytes_text(61.0 * (1 << 30)) == "61G");
}

TEST_CASE("a moment is told by the clocks of its zone, in the form that was asked for", "[base]") {
    const char* const set = std::getenv("TZ");
    const std::string before = set != nullptr ? set : "";
    ::setenv("TZ", "XYZ-2", 1);
    ::tzset();
    CHECK(local_time_text(0, "%Y-%m-%d %H:%M:%S") == "1970-01-01 02:00:00");
    set != nullptr ? ::setenv("TZ", before.c_str(), 1) : ::unsetenv("TZ");
    ::tzset();
}

TEST_CASE("of a table of connections, rows are read and titles and halves of rows are not",
          "[net]") {
    const auto rows = tcp_rows(
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  "
        "timeout inode\n"
        "   0: 0100007F:8367 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        "
        "0 157 1 0 100\n"
        "  11: 0100007F:1F90 0200007F:A1B2 01 00000000:00000000 02:0000000A 00000000  1000        "
        "0 9876543210\n"
        "  12: 0100007F:1F90 0200007F:A1B2 01 00000000:00000000 02:0000000A 00000000  1000");
    REQUIRE(rows.size() == 2);
    CHECK(rows[0].local == "0100007F:8367");
    CHECK(rows[0].state == "0A");
    CHECK(rows[1].remote == "0200007F:A1B2");
    CHECK(rows[1].user == 1000);
    CHECK(rows[1].inode == 9'876'543'210);
}

TEST_CASE("a file is made in place of another, or the path is named", "[fd]") {
    const TempDir dir;
    const std::string path = dir.write("file", "what was longer before");
    REQUIRE(create_file(path, "new").has_value());
    CHECK(read_file(path).value() == "new");
    const std::string nowhere = dir.path() + "/none/file";
    CHECK(create_file(nowhere, "").error().message == nowhere + ": No such file or directory");
}

TEST_CASE("HMAC-SHA256 agrees with RFC 4231", "[crypto]") {
    const std::string key = "Jefe";
    const std::string data = "what do ya want for nothing?";
    const auto bytes = [](const std::string& s) {
        return std::span(reinterpret_cast<const std::uint8_t*>(s.data()), s.size());
    };
    const Sha256 mac = hmac_sha256(bytes(key), {bytes(data).first(4), bytes(data).subspan(4)});
    CHECK(hex(mac) == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    CHECK(hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("secrets are random and compare in constant time", "[crypto]") {
    const Secret a = Secret::random();
    const Secret b = Secret::random();
    CHECK(equal_constant_time(a.bytes(), Secret(a).bytes()));
    CHECK_FALSE(equal_constant_time(a.bytes(), b.bytes()));
    CHECK_FALSE(equal_constant_time(a.bytes(), a.bytes().first(31)));
}

TEST_CASE("reading a file tells missing from too large", "[fd]") {
    CHECK(read_file("/no/such/file").error().code == Errc::not_found);
    CHECK(read_file("/proc/self/status", 10).error().code == Errc::invalid_input);
    CHECK(read_file("/proc/self/comm").value().size() > 1);
    const TempDir dir;
    for (const std::size_t bytes : {0u, 4'095u, 4'096u, 4'097u, 100'000u}) {
        const std::string text(bytes, 'x');
        CHECK(read_file(dir.write("file", text)).value() == text);
        CHECK(read_file(dir.at("file"), bytes).value() == text);
    }
}

TEST_CASE("the kernel tells who is at the other end of a Unix socket", "[fd]") {
    int pair[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    const Fd one(pair[0]), other(pair[1]);
    CHECK_FALSE(foreign_user(one.get()).has_value());
    const auto pipe = make_pipe();
    REQUIRE(pipe.has_value());
    CHECK(foreign_user(pipe->read.get()) == static_cast<uid_t>(-1));
}

TEST_CASE("this program has a build id, a text file has none", "[build_id]") {
    CHECK(elf_build_id("/etc/passwd").error().code == Errc::invalid_input);
    CHECK(elf_build_id("/no/such/file").error().code == Errc::not_found);
    const auto id = elf_build_id("/proc/self/exe");
    if (id) CHECK(id->size() >= 16);
}

TEST_CASE("addresses are shown as numbers, IPv4 in IPv6 as IPv4", "[net]") {
    CHECK(numeric(asio::ip::make_address("::ffff:10.0.0.1")) == "10.0.0.1");
    CHECK(numeric(asio::ip::make_address("fe80::1")) == "fe80::1");
    const auto all = interface_addresses();
    CHECK(std::ranges::any_of(all, [](const InterfaceAddress& a) { return a.loopback; }));
}

TEST_CASE("of the interfaces, those are given at which this machine can be reached", "[net]") {
    const auto usable = interface_addresses();
    CHECK(std::ranges::is_partitioned(usable, [](const auto& one) { return !one.is_ipv6(); }));
    for (const InterfaceAddress& one : usable) {
        CHECK(one.up);
        CHECK_FALSE(one.link_local);
        CHECK(is_numeric_address(one.address));
    }
    const auto all = all_interfaces();
    CHECK(all.size() >= usable.size());
    CHECK(std::ranges::find(all, "127.0.0.1", &InterfaceAddress::address)->loopback);
}

TEST_CASE("packets to an address of this machine come from it", "[net]") {
    CHECK(address_towards("127.0.0.1") == "127.0.0.1");
    CHECK(address_towards("::ffff:127.0.0.1") == "127.0.0.1");
    CHECK(address_towards("localhost").empty());
    CHECK(address_towards("").empty());
    CHECK(is_numeric_address("fe80::1"));
    CHECK_FALSE(is_numeric_address("fe80::1%lo"));
    CHECK_FALSE(is_numeric_address("host"));
}

TEST_CASE("messages are folded between words, and what they quote is not", "[base]") {
    CHECK(fold_messages("dtrun: short\n", 12) == "dtrun: short\n");
    CHECK(fold_messages("dtrun: no longer short\n  s1: gone too\n", 12) ==
          "dtrun: no\n  longer\n  short\n  s1: gone\n    too\n");
    CHECK(fold_messages("a-word-that-is-too-long ö ö ö ö\n", 7) ==
          "a-word-that-is-too-long\n  ö ö ö\n  ö\n");
    CHECK(fold_messages("  | raise ValueError(x)\n", 9) == "  | raise ValueError(x)\n");
    CHECK(fold_messages("", 9).empty());
}

TEST_CASE("spans in messages are clamped, not wrapped", "[clock]") {
    using namespace std::chrono_literals;
    CHECK(to_ms(1'500'000us) == 1'500);
    CHECK(to_ms(-1ms) == 0);
    CHECK(to_ms(24h * 60) == UINT32_MAX);
}

TEST_CASE("JSON that is written is JSON, whatever is in it", "[json_writer]") {
    CHECK(json_text("a\"\\\n\x01") == "\"a\\\"\\\\\\n\\u0001\"");
    CHECK(json_text("\xff") == "\"\xef\xbf\xbd\"");
    CHECK(JsonWriter().text() == "{}");
    CHECK(JsonWriter().add("s", "x").add("b", true).add("i", -1).add("d", 0.1).text() ==
          R"({"s":"x","b":true,"i":-1,"d":0.1})");
    CHECK(JsonWriter(3).add("d", 1.23456).text() == R"({"d":1.23})");
    CHECK(JsonWriter().add("d", std::numeric_limits<double>::infinity()).text() == R"({"d":null})");
    CHECK(JsonWriter().add("l", std::vector{JsonWriter(), JsonWriter().add("a", 1)}).text() ==
          R"({"l":[{},{"a":1}]})");
}

TEST_CASE("what a terminal would obey is not shown, whatever else there is", "[utf8]") {
    CHECK(printable("loss 0.25\tµ …\n") == "loss 0.25\tµ …\n");
    CHECK(printable("a\x1b[31mred\x1b[0m b\x1b[1;38:5:1mc") == "ared bc");
    CHECK(printable("\x1b[2J\x1b]0;title\x07\r\x7f") == "?[2J?]0;title???");
    CHECK(printable("\xc2\x9b"
                    "31m \x9b"
                    "2J \xc2\xa9") == "?31m ?2J \xc2\xa9");
    CHECK(printable("caf\xe9") == "caf\xe9");  // of another character set
    CHECK(printable(std::string_view("a\0b", 3)) == "a?b");
    CHECK(printable_line("one\ntwo") == "one?two");
    CHECK(json_text("\x7f\xc2\x9b\xc2\xa9") == "\"\\u007f\\u009b\xc2\xa9\"");
}

TEST_CASE("characters of Chinese are two columns wide, and lines end between them", "[base]") {
    CHECK(width_in_columns("加速比 1.5") == 10);
    CHECK(width_in_columns("±é") == 2);
    CHECK(width_in_columns("\xff") == 1);
    CHECK(wrap("单步时间取中位数。", 2, 12) == "  单步时间取\n  中位数。\n");
    // A closing mark stays with what it closes, and words of letters are whole.
    CHECK(wrap("吞吐量，mean 值", 0, 6) == "吞吐\n量，\nmean\n值\n");
    CHECK(two_columns("内存", "16 GiB", 10) == "  内存    16 GiB\n");
}

TEST_CASE("characters that look like the keyboard's are found, and others left alone", "[base]") {
    CHECK(look_alike_hint("s1\uff1a4\uff0cs2\uff1a4") ==
          "\uff1a is not the keyboard's :; write s1:4,s2:4");
    CHECK(look_alike_hint("slots\uff1d\uff14") == "\uff1d is not the keyboard's =; write slots=4");
    CHECK(look_alike_hint("a\u3001b") == "\u3001 is not the keyboard's ,; write a,b");
    CHECK(look_alike_hint("\u201ca b\u201d") == "\u201c is not the keyboard's \"; write \"a b\"");
    CHECK(look_alike_hint("s1\u3000slots=4\r") ==
          "a blank in it is not the keyboard's but U+3000; write s1 slots=4");
    CHECK(look_alike_hint("s1\u200b") ==
          "a character that cannot be seen, U+200B, is in it; write s1");
    CHECK(with_plain_characters("\u2013\uff48\uff5e\ufeff") == "-h~");
    for (const char* const text :
         {"", "s1:4", "\u8bad\u7ec3.py", "r\u00e4chner", "\xff\x80", "\xef\xbc", "\u20ac"}) {
        CAPTURE(text);
        CHECK_FALSE(find_look_alike(text));
        CHECK(look_alike_hint(text).empty());
        CHECK(with_plain_characters(text) == text);
    }
}

TEST_CASE("UTF-8 is what RFC 3629 says", "[utf8]") {
    CHECK(is_utf8(""));
    CHECK(is_utf8("a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"));
    for (const char* wrong : {"\x80", "\xc0\x80", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80",
                              "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xff"})
        CHECK_FALSE(is_utf8(wrong));
    CHECK(as_utf8("a\xff\xc3\xa4\xc3") == "a\xef\xbf\xbd\xc3\xa4\xef\xbf\xbd");
}

}  // namespace dtrun
