#include "lab/report/results.h"

#include "base/json_writer.h"
#include "base/utf8.h"
#include "lab/record_json.h"

#include <fmt/format.h>
#include <algorithm>
#include <boost/json.hpp>
#include <concepts>

namespace dtrun::lab {
namespace {

namespace json = boost::json;
using std::string_view;

constexpr std::size_t kErrorBytesMax = 4'096;
constexpr string_view kSchema = "dtrun-bench";

template <class T>
T number_or(const json::value& value, T otherwise) {
    double number = 0;
    if (const auto* const real = value.if_double())
        number = *real;
    else if (const auto* const integer = value.if_int64())
        number = static_cast<double>(*integer);
    else if (const auto* const natural = value.if_uint64())
        number = static_cast<double>(*natural);
    else if (const auto* const flag = value.if_bool())
        number = *flag ? 1 : 0;
    else
        return otherwise;
    if constexpr (std::integral<T>) {
        constexpr double kMax =
            std::min<double>(static_cast<double>(std::numeric_limits<T>::max()), 1e18);
        return number >= 0 && number <= kMax ? static_cast<T>(number) : otherwise;
    } else {
        return number;
    }
}

/// Reads members by their names; what is missing or of another type stays as it is.
class Members {
public:
    explicit Members(const json::object& object) : object_(object) {}

    void operator()(string_view name, std::string& text) const {
        const json::value* const value = find(name);
        if (value == nullptr) return;
        if (const auto* const string = value->if_string())
            text = printable(*string);
        else if (value->is_number())  // versions may be written as numbers
            text = json::serialize(*value);
    }
    void operator()(string_view name, bool& flag) const {
        if (const json::value* const value = find(name)) flag = number_or<double>(*value, 0) != 0;
    }
    template <class Number>
    requires std::integral<Number> || std::floating_point<Number>
    void operator()(string_view name, Number& number) const {
        const json::value* const value = find(name);
        if (value == nullptr) return;
        Number otherwise = number;
        if constexpr (std::floating_point<Number>) otherwise = kUnknown;  // null is not a number
        number = number_or<Number>(*value, otherwise);
    }

    void operator()(string_view name, NameValues& pairs) const {
        const json::value* const value = find(name);
        if (value == nullptr || !value->is_object()) return;
        for (const auto& [key, text] : value->get_object())
            if (text.is_string()) pairs.emplace_back(printable(key), printable(text.get_string()));
    }
    void operator()(string_view name, std::vector<std::string>& lines) const {
        const json::value* const value = find(name);
        if (value == nullptr || !value->is_array()) return;
        for (const json::value& line : value->get_array())
            if (line.is_string()) lines.push_back(printable(line.get_string()));
    }
    template <class Record>
    void operator()(string_view name, std::vector<Record>& records) const {
        const json::value* const value = find(name);
        if (value == nullptr || !value->is_array()) return;
        for (const json::value& each : value->get_array())
            if (each.is_object())
                Record::fields(records.emplace_back(), Members(each.get_object()));
    }

private:
    const json::value* find(string_view name) const {
        return object_.if_contains({name.data(), name.size()});
    }

    const json::object& object_;
};

/// Writes a report: each element of a list on a line of its own.
class ReportFields {
public:
    explicit ReportFields(JsonWriter& object) : object_(object) {}

    template <class Value>
    void operator()(string_view name, const Value& value) const {
        object_.add(name, value);
    }
    template <class Element>
    void operator()(string_view name, const std::vector<Element>& elements) const {
        std::string lines;
        for (const Element& element : elements)
            lines += (lines.empty() ? "\n" : ",\n") + text_of(element);
        object_.raw(name, fmt::format("[{}{}]", lines, lines.empty() ? "" : "\n"));
    }

private:
    static std::string text_of(const std::string& text) {
        return json::serialize(json::string_view(text.data(), text.size()));
    }
    template <class Record>
    static std::string text_of(const Record& record) {
        return json_of(record);
    }

    JsonWriter& object_;
};

}  // namespace

bool LabReport::failed() const {
    return !failures.empty() ||
           std::ranges::any_of(rows, [](const RowRecord& row) { return row.wrong > 0; });
}

Result<RecordReader::Line> RecordReader::take(string_view line) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == string_view::npos || line[begin] != '{') return Line::other;
    boost::system::error_code error;
    const json::value value = json::parse({line.data(), line.size()}, error);
    if (error) {
        if (line.find("\"type\"") == string_view::npos) return Line::other;
        return fail(Errc::invalid_input, "unreadable line of the rank program: {}",
                    printable(line.substr(0, 160)));
    }
    const json::object& object = value.get_object();
    const Members members(object);
    std::string type;
    members("type", type);
    if (type == HostRecord::kType) {
        HostRecord host;
        HostRecord::fields(host, members);
        const auto known = std::ranges::find(report_.hosts, host.name, &HostRecord::name);
        if (known == report_.hosts.end() || host.name.empty())
            report_.hosts.push_back(std::move(host));
        else
            *known = std::move(host);
        return Line::host;
    }
    if (type == CommRecord::kType)
        return CommRecord::fields(report_.comms.emplace_back(), members), Line::comm;
    if (type == RowRecord::kType)
        return RowRecord::fields(report_.rows.emplace_back(), members), Line::row;
    if (type == PairRecord::kType)
        return PairRecord::fields(report_.pairs.emplace_back(), members), Line::pair;
    if (type == TrainRecord::kType)
        return TrainRecord::fields(report_.train.emplace_back(), members), Line::train;
    if (type == StepsRecord::kType)
        return StepsRecord::fields(steps_.emplace_back(), members), Line::steps;
    if (type != ErrorRecord::kType) return Line::other;
    ErrorRecord failed;
    ErrorRecord::fields(failed, members);
    if (errors_.size() < kErrorBytesMax) errors_ += (errors_.empty() ? "" : "\n") + failed.text;
    return Line::error;
}

std::string write_json(const LabReport& report) {
    JsonWriter object;
    object.add("schema", kSchema).add("version", LabReport::kVersion);
    LabReport::fields(report, ReportFields(object));
    return object.text() + "\n";
}

Result<LabReport> parse_report(string_view text, string_view name) {
    boost::system::error_code error;
    const json::value value = json::parse({text.data(), text.size()}, error);
    if (error) return fail(Errc::invalid_input, "{}: no JSON: {}", name, error.message());
    const json::object* const object = value.if_object();
    const json::value* const schema = object == nullptr ? nullptr : object->if_contains("schema");
    if (schema == nullptr || !schema->is_string() || schema->get_string() != kSchema)
        return fail(Errc::invalid_input, "{}: no report of dtrun bench --json", name);
    const Members members(*object);
    int version = 0;
    members("version", version);
    if (version != LabReport::kVersion)
        return fail(Errc::invalid_input, "{}: a report of version {}; this dtrun reads version {}",
                    name, version, LabReport::kVersion);
    LabReport report;
    LabReport::fields(report, members);
    return report;
}

std::string printable(string_view text) {
    std::string clean;
    while (!text.empty()) {
        const std::size_t length = utf8_length(text);
        const auto byte = static_cast<unsigned char>(text.front());
        // U+0080 to U+009F are control characters too.
        const bool high_control =
            length == 2 && byte == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0;
        const bool control = (length == 1 && (byte < 0x20 || byte == 0x7F)) || high_control;
        if (length == 0)
            clean += '?';
        else if (control && byte != '\n')
            clean += ' ';
        else
            clean += text.substr(0, length);
        text.remove_prefix(std::max<std::size_t>(length, 1));
    }
    return clean;
}

}  // namespace dtrun::lab
