#pragma once

#include "base/result.h"
#include "rendezvous/wire/output_messages.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::plan {

/// What stands before a line, with room in it for the time at which the line was read.
struct LineStart {
    static constexpr std::size_t kTimeChars = 23;  ///< of "2026-11-21T10:11:12.345"

    std::string text{};
    std::vector<std::size_t> times{};  ///< where in `text` there are kTimeChars to be filled
};

/// The form of what stands before each line of a rank: text with fields in braces, such as
/// "{host}:{rank} {time} ".
class Tag {
public:
    static const Tag none;
    static const Tag rank;       ///< "[3] "
    static const Tag host;       ///< "[s2] "
    static const Tag rank_host;  ///< "[3@s2] "
    static const Tag horovod;    ///< "[3]<stdout>:"
    static const Tag logged;     ///< "2026-11-21T10:11:12.345 [3@s2 stdout] "

    /// Reads one of these by its name, with '-' for '_', or else a form of the user's own: {rank},
    /// {host}, {stream} and {time} are replaced, {{ and }} are braces, and a blank follows it unless
    /// it ends with one. Errc: invalid_input
    static Result<Tag> parse(std::string_view text);

    bool empty() const { return parts_.empty(); }
    bool has_host() const { return has(Field::host); }
    /// The same with the time in front, unless it has the time already.
    Tag timed() const;
    /// The same as a pattern of MPICH's and Intel MPI's mpirun: %r, %h and %t. Errc: invalid_input (they
    /// have no field for a stream)
    Result<std::string> hydra_pattern() const;

    /// \param ranks  a number, or several as "0-3, 5"
    /// \param hosts  a name, or several
    LineStart start(std::string_view ranks, std::string_view hosts, Stream stream) const;

    bool operator==(const Tag&) const = default;

private:
    enum class Field { text, rank, host, stream, time };
    struct Part {
        Field field = Field::text;
        std::string text{};  ///< of Field::text
        bool operator==(const Part&) const = default;
    };

    explicit Tag(std::vector<Part> parts) : parts_(std::move(parts)) {}
    static Result<Tag> parse_form(std::string_view form);
    bool has(Field field) const;

    std::vector<Part> parts_;
};

}  // namespace dtrun::plan
