#include "launcher/output/line_prefix.h"

#include <fmt/format.h>
#include <array>
#include <bit>
#include <cstring>
#include <ctime>
#include <utility>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace dtrun::output {
namespace {

constexpr std::size_t kPartCapacityKept = 4096;

/// Bit i tells whether byte i of the 64 is '\n' or '\r'.
std::uint64_t line_ends(const char* bytes) {
    std::uint64_t ends = 0;
#ifdef __SSE2__
    const __m128i lf = _mm_set1_epi8('\n');
    const __m128i cr = _mm_set1_epi8('\r');
    for (int i = 0; i < 4; i++) {
        const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 16 * i));
        const __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(part, lf), _mm_cmpeq_epi8(part, cr));
        const auto bits = static_cast<std::uint32_t>(_mm_movemask_epi8(hit));
        ends |= static_cast<std::uint64_t>(bits) << (16 * i);
    }
#else
    for (int i = 0; i < 64; i++)
        ends |= static_cast<std::uint64_t>(bytes[i] == '\n' || bytes[i] == '\r') << i;
#endif
    return ends;
}

/// Goes from one '\n' or '\r' to the next.
class EndScanner {
public:
    explicit EndScanner(std::string_view bytes)
        : block_(bytes.data()), end_(bytes.data() + bytes.size()) {
        load();
    }

    /// The next one, or null.
    const char* next() {
        while (ends_ == 0) {
            if (end_ - block_ <= 64) return nullptr;
            block_ += 64;
            load();
        }
        const char* const found = block_ + std::countr_zero(ends_);
        ends_ &= ends_ - 1;
        return found;
    }

private:
    void load() {
        if (end_ - block_ >= 64) {
            ends_ = line_ends(block_);
            return;
        }
        char padded[64] = {};
        if (block_ != end_) std::memcpy(padded, block_, static_cast<std::size_t>(end_ - block_));
        ends_ = line_ends(padded);
    }

    const char* block_;
    const char* end_;
    std::uint64_t ends_ = 0;
};

/// Splits one line off the front of `bytes`; its end may be missing.
struct FirstLine {
    std::size_t content;  ///< bytes before the line end
    std::size_t size;     ///< bytes with the line end; 0: there is none, or it is undecided
    bool undecided_cr;    ///< the last byte is '\r': a '\n' may follow
};

FirstLine first_line(std::string_view bytes) {
    const char* const end = EndScanner(bytes).next();
    if (end == nullptr) return {bytes.size(), 0, false};
    const auto content = static_cast<std::size_t>(end - bytes.data());
    if (*end == '\n') return {content, content + 1, false};
    if (content + 1 == bytes.size()) return {content, 0, true};
    return {content, content + (bytes[content + 1] == '\n' ? 2 : 1), false};
}

/// Puts a terminal's escapes around it.
void show_as(LineStart& start, std::string_view attributes) {
    if (start.text.empty()) return;
    const std::string begin = fmt::format("\x1b[{}m", attributes);
    start.text = begin + start.text + "\x1b[0m";
    for (std::size_t& at : start.times) at += begin.size();
}

}  // namespace

void color(LineStart& start, Rank rank) {
    // Red is left to errors, and black, white and the dark blue cannot be read on every background.
    constexpr std::array kColors{36, 33, 32, 35, 94, 96, 93, 92, 95};
    const auto index = static_cast<std::size_t>(std::to_underlying(rank)) % kColors.size();
    show_as(start, fmt::format("{}", kColors[index]));
}

void embolden(LineStart& start) {
    show_as(start, "1");
}

std::string_view Timestamp::text(std::int64_t time_ns) {
    constexpr std::int64_t kNsPerMs = 1'000'000;
    std::int64_t millisecond = time_ns / kNsPerMs;
    if (time_ns % kNsPerMs < 0) millisecond--;
    if (millisecond == millisecond_) return {text_, kChars};
    millisecond_ = millisecond;
    std::int64_t second = millisecond / 1000;
    if (millisecond % 1000 < 0) second--;
    if (second != second_) {
        second_ = second;
        const std::time_t time = second;
        std::tm local{};
        localtime_r(&time, &local);
        std::strftime(text_, sizeof text_, "%Y-%m-%dT%H:%M:%S", &local);
    }
    fmt::format_to_n(text_ + 19, 4, ".{:03}", millisecond - second * 1000);
    return {text_, kChars};
}

LinePrefixer::LinePrefixer(LineStart start, PartBudget& budget)
    : start_(std::move(start)), budget_(budget) {}

void LinePrefixer::set_start(LineStart start) {
    start_ = std::move(start);
}

void LinePrefixer::add(std::string_view bytes, std::string_view stamp, BufferQueue::Filler& out) {
    if (bytes.empty()) return;
    for (const std::size_t at : start_.times) start_.text.replace(at, stamp.size(), stamp);
    if (after_cr_) {
        const bool lf = bytes.front() == '\n';
        end_part(lf ? "\r\n" : "\r", out);
        bytes.remove_prefix(lf ? 1 : 0);
    }
    if (!part_.empty()) bytes = continue_part(bytes, out);
    bytes = whole_lines(bytes, out);
    if (!bytes.empty()) continue_part(bytes, out);
}

std::string_view LinePrefixer::whole_lines(std::string_view bytes, BufferQueue::Filler& out) {
    const char* line = bytes.data();
    const char* const end = bytes.data() + bytes.size();
    const std::size_t prefix_size = start_.text.size();
    EndScanner scanner(bytes);
    while (const char* const found = scanner.next()) {
        const char* next = found + 1;
        if (*found == '\r') {
            if (next == end) break;
            if (*next == '\n') next = scanner.next() + 1;
        }
        const auto size = static_cast<std::size_t>(next - line);
        char* const to = out.at();
        if (size > budget_.line_max) {
            const auto content = static_cast<std::size_t>(found - line);
            add_to_part({line, content}, out);
            end_part({found, size - content}, out);
        } else if (prefix_size + size <= static_cast<std::size_t>(out.end() - to)) {
            std::memcpy(to, start_.text.data(), prefix_size);
            std::memcpy(to + prefix_size, line, size);
            out.advance(to + prefix_size + size);
        } else {
            out.write(start_.text);
            out.write({line, size});
        }
        line = next;
    }
    return {line, static_cast<std::size_t>(end - line)};
}

std::string_view LinePrefixer::continue_part(std::string_view bytes, BufferQueue::Filler& out) {
    const FirstLine first = first_line(bytes);
    add_to_part(bytes.substr(0, first.content), out);
    if (first.size > 0) {
        end_part(bytes.substr(first.content, first.size - first.content), out);
        return bytes.substr(first.size);
    }
    after_cr_ = first.undecided_cr;
    count_part();
    if (budget_.used > budget_.total_max && !after_cr_) end_part(cut(), out);
    return {};
}

void LinePrefixer::add_to_part(std::string_view content, BufferQueue::Filler& out) {
    const auto begin = [this] {
        part_ = start_.text;
        part_start_ = part_.size();
    };
    if (part_.empty()) begin();
    for (;;) {
        const std::size_t room = budget_.line_max - (part_.size() - part_start_);
        if (content.size() <= room) break;
        part_ += content.substr(0, room);
        content.remove_prefix(room);
        end_part(cut(), out);
        begin();
    }
    part_ += content;
}

void LinePrefixer::finish(BufferQueue::Filler& out) {
    if (after_cr_) {
        end_part("\r", out);
    } else if (!part_.empty()) {
        end_part(cut(), out);
    }
}

void LinePrefixer::end_part(std::string_view line_end, BufferQueue::Filler& out) {
    out.write(part_);
    out.write(line_end);
    after_cr_ = false;
    part_.clear();
    if (part_.capacity() > kPartCapacityKept) part_.shrink_to_fit();
    count_part();
}

void LinePrefixer::count_part() {
    budget_.used += part_.size() - counted_;
    counted_ = part_.size();
}

}  // namespace dtrun::output
