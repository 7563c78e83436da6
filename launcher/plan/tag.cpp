#include "launcher/plan/tag.h"

#include "base/strings.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace dtrun::plan {
const Tag Tag::none{std::vector<Part>{}};
const Tag Tag::rank{{{Field::text, "["}, {Field::rank}, {Field::text, "] "}}};
const Tag Tag::host{{{Field::text, "["}, {Field::host}, {Field::text, "] "}}};
const Tag Tag::rank_host{
    {{Field::text, "["}, {Field::rank}, {Field::text, "@"}, {Field::host}, {Field::text, "] "}}};
const Tag Tag::horovod{
    {{Field::text, "["}, {Field::rank}, {Field::text, "]<"}, {Field::stream}, {Field::text, ">:"}}};
const Tag Tag::logged{{{Field::time},
                       {Field::text, " ["},
                       {Field::rank},
                       {Field::text, "@"},
                       {Field::host},
                       {Field::text, " "},
                       {Field::stream},
                       {Field::text, "] "}}};

Result<Tag> Tag::parse(std::string_view text) {
    const std::pair<std::string_view, const Tag*> named[] = {{"none", &none},
                                                             {"rank", &rank},
                                                             {"host", &host},
                                                             {"rank-host", &rank_host},
                                                             {"horovod", &horovod}};
    std::vector<std::string> names;
    for (const auto& [name, tag] : named) {
        if (text == name) return *tag;
        names.emplace_back(name);
    }
    if (text.find('{') != std::string_view::npos) return parse_form(text);
    return fail(Errc::invalid_input,
                "'{}' is not one of {}, nor a form such as '{{host}}:{{rank}} {{time}}'", text,
                join_names(names));
}

Result<Tag> Tag::parse_form(std::string_view form) {
    const std::pair<std::string_view, Field> fields[] = {{"rank", Field::rank},
                                                         {"host", Field::host},
                                                         {"stream", Field::stream},
                                                         {"time", Field::time}};
    std::vector<Part> parts;
    std::string literal;
    const auto end_literal = [&] {
        if (!literal.empty()) parts.push_back({Field::text, std::exchange(literal, "")});
    };
    for (std::size_t at = 0; at < form.size(); ++at) {
        const char c = form[at];
        if (static_cast<unsigned char>(c) < ' ')
            return fail(Errc::invalid_input, "'{}' has a control character", form);
        if ((c == '{' || c == '}') && at + 1 < form.size() && form[at + 1] == c) {
            literal += c;
            ++at;
            continue;
        }
        if (c == '}') return fail(Errc::invalid_input, "'{}' has a }} without a {{", form);
        if (c != '{') {
            literal += c;
            continue;
        }
        const std::size_t end = form.find('}', at);
        if (end == std::string_view::npos)
            return fail(Errc::invalid_input, "'{}' has a {{ without a }}", form);
        const std::string_view name = form.substr(at + 1, end - at - 1);
        const auto* const found =
            std::ranges::find(fields, name, [](const auto& each) { return each.first; });
        if (found == std::end(fields))
            return fail(
                Errc::invalid_input,
                "'{}': there is no {{{}}}; there are {{rank}}, {{host}}, {{stream}} and {{time}}",
                form, name);
        end_literal();
        parts.push_back({found->second});
        at = end;
    }
    if (!literal.ends_with(' ')) literal += ' ';
    end_literal();
    return Tag(std::move(parts));
}

bool Tag::has(Field field) const {
    return std::ranges::any_of(parts_, [field](const Part& part) { return part.field == field; });
}

Tag Tag::timed() const {
    if (has(Field::time)) return *this;
    Tag timed({{Field::time}, {Field::text, " "}});
    std::ranges::copy(parts_, std::back_inserter(timed.parts_));
    return timed;
}

Result<std::string> Tag::hydra_pattern() const {
    std::string pattern;
    for (const Part& part : parts_) {
        switch (part.field) {
            case Field::text:
                for (const char c : part.text) pattern += c == '%' ? "%%" : std::string(1, c);
                break;
            case Field::rank:
                pattern += "%r";
                break;
            case Field::host:
                pattern += "%h";
                break;
            case Field::time:
                pattern += "%t";
                break;
            case Field::stream:
                return fail(Errc::invalid_input, "it has no field for {{stream}}");
        }
    }
    return pattern;
}

LineStart Tag::start(std::string_view ranks, std::string_view hosts, Stream stream) const {
    LineStart start;
    for (const Part& part : parts_) {
        switch (part.field) {
            case Field::text:
                start.text += part.text;
                break;
            case Field::rank:
                start.text += ranks;
                break;
            case Field::host:
                start.text += hosts;
                break;
            case Field::stream:
                start.text += stream == Stream::out ? "stdout" : "stderr";
                break;
            case Field::time:
                start.times.push_back(start.text.size());
                start.text.append(LineStart::kTimeChars, ' ');
                break;
        }
    }
    return start;
}

}  // namespace dtrun::plan
