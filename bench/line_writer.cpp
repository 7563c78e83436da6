// The two ends of the output benchmark in launch.py: a rank that writes lines, and the reader that
// counts them.
//
//     line_writer write line|block BYTES [--rank N]    one write(2) for each line, or for each 64
//     KiB line_writer check RANKS BYTES                    standard input: what RANKS such writers
//     wrote
//
// A line is 80 bytes, "@<rank> <number> <filler>$\n", and unlike any other. A line counts as whole
// if it has all its bytes, in order, after at most a prefix such as "[3]<stdout>: "; every other
// line that should be there is broken or missing. `check` prints one JSON object; its times are of
// CLOCK_MONOTONIC.

#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::size_t kLineBytes = 80;    // with the newline
constexpr std::size_t kHeaderBytes = 15;  // "@0003 00001234 "
constexpr std::size_t kFillerBytes = kLineBytes - kHeaderBytes - 2;
constexpr std::size_t kBlockBytes = 64 << 10;
constexpr std::size_t kPrefixBytesMax = 48;
constexpr std::size_t kRanksMax = 10'000;

double now() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// One line of a rank, and the next one, and so on. Prefixes have no capital letter, so a piece of
/// filler before a line shows.
class Line {
public:
    explicit Line(std::size_t rank) : rank_(rank) {
        for (std::size_t i = 0; i < alphabet_.size(); ++i)
            alphabet_[i] = static_cast<char>('A' + i % 26);
        bytes_[0] = '@';
        put_number(bytes_.data() + 1, 4, rank);
        bytes_[5] = bytes_[14] = ' ';
        bytes_[kLineBytes - 2] = '$';
        bytes_[kLineBytes - 1] = '\n';
        move_to(0);
    }

    std::string_view bytes() const { return {bytes_.data(), bytes_.size()}; }
    std::size_t number() const { return number_; }

    void next() {
        ++number_;
        if (++shift_ == 26) shift_ = 0;
        char* digit = bytes_.data() + kHeaderBytes - 2;
        for (; *digit == '9'; --digit) *digit = '0';
        ++*digit;
        std::memcpy(bytes_.data() + kHeaderBytes, alphabet_.data() + shift_, kFillerBytes);
    }

    void move_to(std::size_t number) {
        number_ = number;
        shift_ = (rank_ * 7 + number) % 26;
        put_number(bytes_.data() + 6, 8, number);
        std::memcpy(bytes_.data() + kHeaderBytes, alphabet_.data() + shift_, kFillerBytes);
    }

private:
    static void put_number(char* at, int digits, std::size_t number) {
        for (int i = digits - 1; i >= 0; --i, number /= 10)
            at[i] = static_cast<char>('0' + number % 10);
    }

    std::size_t rank_;
    std::size_t number_ = 0;
    std::size_t shift_ = 0;  // of the filler in the alphabet
    std::array<char, kFillerBytes + 26> alphabet_;
    std::array<char, kLineBytes> bytes_;
};

bool write_all(const char* bytes, std::size_t count) {
    while (count > 0) {
        const ssize_t n = ::write(STDOUT_FILENO, bytes, count);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return false;
        bytes += n;
        count -= static_cast<std::size_t>(n);
    }
    return true;
}

int write_lines(std::size_t rank, std::size_t total_bytes, bool blocks) {
    const std::size_t write_bytes = blocks ? kBlockBytes : kLineBytes;
    std::array<char, kBlockBytes + kLineBytes> buffer;
    std::size_t filled = 0;
    Line line(rank);
    for (std::size_t number = 0; number < total_bytes / kLineBytes; ++number) {
        std::memcpy(buffer.data() + filled, line.bytes().data(), kLineBytes);
        line.next();
        filled += kLineBytes;
        if (filled < write_bytes) continue;
        if (!write_all(buffer.data(), write_bytes)) return 1;
        filled -= write_bytes;
        std::memcpy(buffer.data(), buffer.data() + write_bytes, filled);
    }
    return write_all(buffer.data(), filled) ? 0 : 1;
}

/// Finds which of the lines that should come have come.
class Checker {
public:
    Checker(std::size_t ranks, std::size_t lines_of_rank)
        : seen_(ranks, std::vector<bool>(lines_of_rank)), prefixes_(ranks) {
        for (std::size_t rank = 0; rank < ranks; ++rank) expected_.emplace_back(rank);
    }

    /// \param line  without its newline
    void add(std::string_view line) {
        constexpr std::size_t kBytes = kLineBytes - 1;
        if (line.size() < kBytes || line.size() > kBytes + kPrefixBytesMax) return;
        const std::string_view prefix = line.substr(0, line.size() - kBytes);
        const std::string_view text = line.substr(prefix.size());
        std::size_t rank = 0;
        std::size_t number = 0;
        if (!read_number(text.substr(1, 4), rank) || rank >= expected_.size()) return;
        Line& expected = expected_[rank];
        if (text != expected.bytes().substr(0, kBytes)) {  // out of order, or broken
            if (!read_number(text.substr(6, 8), number) || number >= seen_[rank].size()) return;
            expected.move_to(number);
            if (text != expected.bytes().substr(0, kBytes)) return;
        }
        if (prefix != prefixes_[rank]) {
            for (const char c : prefix)
                if (c == '@' || c == '$' || (c >= 'A' && c <= 'Z')) return;
            prefixes_[rank] = prefix;
        }
        number = expected.number();
        if (number >= seen_[rank].size() || seen_[rank][number]) return;
        seen_[rank][number] = true;
        ++whole_;
        expected.next();
    }

    std::size_t whole() const { return whole_; }

private:
    static bool read_number(std::string_view digits, std::size_t& number) {
        for (const char c : digits) {
            if (c < '0' || c > '9') return false;
            number = number * 10 + static_cast<std::size_t>(c - '0');
        }
        return true;
    }

    std::vector<Line> expected_;  // for each rank the line after the last one
    std::vector<std::vector<bool>> seen_;
    std::vector<std::string> prefixes_;  // of each rank's last whole line
    std::size_t whole_ = 0;
};

int check(std::size_t ranks, std::size_t rank_bytes) {
    const std::size_t lines_of_rank = rank_bytes / kLineBytes;
    Checker checker(ranks, lines_of_rank);
    std::vector<char> buffer(1 << 20);
    std::size_t kept = 0;  // bytes of a line whose end has not come
    std::size_t total = 0;
    double first = 0;
    for (;;) {
        const ssize_t n = ::read(STDIN_FILENO, buffer.data() + kept, buffer.size() - kept);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        if (total == 0) first = now();
        total += static_cast<std::size_t>(n);
        const char* at = buffer.data();
        const char* end = at + kept + n;
        while (const void* found = std::memchr(at, '\n', static_cast<std::size_t>(end - at))) {
            const char* newline = static_cast<const char*>(found);
            checker.add({at, newline});
            at = newline + 1;
        }
        kept = static_cast<std::size_t>(end - at);
        if (kept == buffer.size()) kept = 0;  // no line of ours
        std::memmove(buffer.data(), at, kept);
    }
    std::printf(
        "{\"bytes\": %zu, \"lines\": %zu, \"whole\": %zu, \"first\": %.6f, \"end\": %.6f}\n", total,
        ranks * lines_of_rank, checker.whole(), first, now());
    return 0;
}

/// Under every launcher of the benchmark.
std::size_t rank_of_environment() {
    for (const char* name :
         {"DTRUN_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK", "RANK"})
        if (const char* value = std::getenv(name)) return std::strtoul(value, nullptr, 10);
    std::fputs("line_writer: which rank is this? give --rank\n", stderr);
    std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string_view> words(argv + 1, argv + argc);
    if (words.size() == 3 && words[0] == "check") {
        const std::size_t ranks = std::strtoul(argv[2], nullptr, 10);
        if (ranks > 0 && ranks <= kRanksMax)
            return check(ranks, std::strtoul(argv[3], nullptr, 10));
    }
    const bool has_rank = words.size() == 5 && words[3] == "--rank";
    if ((words.size() == 3 || has_rank) && words[0] == "write" &&
        (words[1] == "line" || words[1] == "block")) {
        const std::size_t rank =
            has_rank ? std::strtoul(argv[5], nullptr, 10) : rank_of_environment();
        if (rank < kRanksMax)
            return write_lines(rank, std::strtoul(argv[3], nullptr, 10), words[1] == "block");
    }
    std::fputs("line_writer: see the top of bench/line_writer.cpp for the usage\n", stderr);
    return 2;
}
