#include "lab/report/results.h"

#include "base/json_writer.h"
#include "base/utf8.h"

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

    void operator()(const char* name, std::string& text) const {
        const json::value* const value = object_.if_contains(name);
        if (value == nullptr) return;
        if (const auto* const string = value->if_string())
            text = printable(*string);
        else if (value->is_number())  // versions may be written as numbers
            text = json::serialize(*value);
    }
    void operator()(const char* name, bool& flag) const {
        if (const json::value* const value = object_.if_contains(name))
            flag = number_or<double>(*value, 0) != 0;
    }
    template <class Number>
    requires std::integral<Number> || std::floating_point<Number>
    void operator()(const char* name, Number& number) const {
        const json::value* const value = object_.if_contains(name);
        if (value == nullptr) return;
        Number otherwise = number;
        if constexpr (std::floating_point<Number>) otherwise = kUnknown;  // null is not a number
        number = number_or<Number>(*value, otherwise);
    }

    /// Objects of a list, each into a new element by `read(members, element)`.
    template <class T, class Read>
    void list(const char* name, std::vector<T>& elements, Read read) const {
        const json::value* const value = object_.if_contains(name);
        if (value == nullptr || !value->is_array()) return;
        for (const json::value& each : value->get_array())
            if (each.is_object()) read(Members(each.get_object()), elements.emplace_back());
    }
    const json::object& object() const { return object_; }

private:
    const json::object& object_;
};

/// Visits the members of a host that are one word or number.
template <class Host, class Visit>
void each_of_host(Host& it, Visit visit) {
    visit("name", it.name);
    visit("os", it.os);
    visit("kernel", it.kernel);
    visit("cpu", it.cpu);
    visit("cores", it.cores);
    visit("memory_bytes", it.memory_bytes);
    visit("gpu_links", it.gpu_links);
    visit("driver", it.driver);
    visit("cuda", it.cuda);
    visit("nccl", it.nccl);
    visit("mpi", it.mpi);
    visit("gloo", it.gloo);
    visit("oneccl", it.oneccl);
    visit("python", it.python);
    visit("torch", it.torch);
}

template <class Nic, class Visit>
void each_of_nic(Nic& it, Visit visit) {
    visit("name", it.name);
    visit("model", it.model);
    visit("speed_mbit", it.speed_mbit);
    visit("driver", it.driver);
}

template <class Gpu, class Visit>
void each_of_gpu(Gpu& it, Visit visit) {
    visit("model", it.model);
    visit("memory_bytes", it.memory_bytes);
}

template <class Comm, class Visit>
void each_of_comm(Comm& it, Visit visit) {
    visit("version", it.version);
    visit("transport", it.transport);
    visit("why", it.why);
    visit("bootstrap_ms", it.bootstrap_ms);
    visit("oversubscribed", it.oversubscribed);
}

template <class Report, class Visit>
void each_of_report(Report& it, Visit visit) {
    visit("dtrun", it.dtrun);
    visit("started", it.started);
    visit("command", it.command);
    visit("seconds", it.seconds);
    visit("interrupted", it.interrupted);
}

void read_host(const Members& members, BenchHost& host) {
    each_of_host(host, members);
    members.list("nics", host.nics, [](const Members& m, BenchNic& nic) { each_of_nic(nic, m); });
    members.list("gpus", host.gpus, [](const Members& m, BenchGpu& gpu) { each_of_gpu(gpu, m); });
}

void read_comm(const Members& members, BenchComm& comm) {
    each_of_shape(comm, members);
    each_of_comm(comm, members);
    const json::value* const details = members.object().if_contains("details");
    if (details == nullptr || !details->is_object()) return;
    for (const auto& [name, value] : details->get_object())
        if (value.is_string())
            comm.details.emplace_back(printable(name), printable(value.get_string()));
}

void read_row(const Members& members, BenchRow& row) {
    each_of_shape(row, members);
    each_of_row(row, members);
}

void read_train(const Members& members, BenchTrain& train) {
    each_of_shape(train, members);
    each_of_train(train, members);
}

void read_failure(const Members& members, BenchFailure& failure) {
    each_of_shape(failure, members);
    each_of_failure(failure, members);
}

/// Writes what it visits as a member of an object.
struct Into {
    template <class T>
    void operator()(string_view name, const T& value) const {
        out.add(name, value);
    }
    JsonWriter& out;
};

template <class T, class Write>
std::string list_text(const std::vector<T>& elements, Write write, string_view separator) {
    std::string text;
    for (const T& element : elements) {
        JsonWriter out;
        write(element, out);
        text += fmt::format("{}{}", text.empty() ? "" : separator, out.text());
    }
    return text;
}

void write_host(const BenchHost& host, JsonWriter& out) {
    each_of_host(host, Into{out});
    out.raw("nics", fmt::format("[{}]", list_text(
                                            host.nics,
                                            [](const BenchNic& nic, JsonWriter& o) {
                                                each_of_nic(nic, Into{o});
                                            },
                                            ",")));
    out.raw("gpus", fmt::format("[{}]", list_text(
                                            host.gpus,
                                            [](const BenchGpu& gpu, JsonWriter& o) {
                                                each_of_gpu(gpu, Into{o});
                                            },
                                            ",")));
}

void write_comm(const BenchComm& comm, JsonWriter& out) {
    each_of_shape(comm, Into{out});
    each_of_comm(comm, Into{out});
    out.add("details", comm.details);
}

}  // namespace

bool BenchReport::failed() const {
    return !failures.empty() ||
           std::ranges::any_of(rows, [](const BenchRow& row) { return row.wrong > 0; });
}

Result<BenchReader::Line> BenchReader::take(string_view line) {
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
    if (type == "host") {
        BenchHost host;
        read_host(members, host);
        const auto known = std::ranges::find(report_.hosts, host.name, &BenchHost::name);
        if (known == report_.hosts.end() || host.name.empty())
            report_.hosts.push_back(std::move(host));
        else
            *known = std::move(host);
        return Line::host;
    }
    if (type == "comm") return read_comm(members, report_.comms.emplace_back()), Line::comm;
    if (type == "row") return read_row(members, report_.rows.emplace_back()), Line::row;
    if (type == "train") return read_train(members, report_.train.emplace_back()), Line::train;
    if (type != "error") return Line::other;
    std::string text;
    members("text", text);
    if (errors_.size() < kErrorBytesMax) errors_ += (errors_.empty() ? "" : "\n") + text;
    return Line::error;
}

std::string write_json(const BenchReport& report) {
    JsonWriter out;
    out.add("schema", kSchema).add("version", BenchReport::kVersion);
    each_of_report(report, Into{out});
    std::string text = out.text();
    text.pop_back();
    const auto add = [&text](string_view name, const std::string& elements) {
        text += elements.empty() ? fmt::format(",\n\"{}\":[]", name)
                                 : fmt::format(",\n\"{}\":[\n{}\n]", name, elements);
    };
    constexpr string_view kApart = ",\n";
    add("host_facts", list_text(report.hosts, write_host, kApart));
    add("comms", list_text(report.comms, write_comm, kApart));
    const auto with_shape = [](auto each) {
        return [each](const auto& element, JsonWriter& o) {
            each_of_shape(element, Into{o});
            each(element, o);
        };
    };
    add("rows", list_text(report.rows, with_shape([](const BenchRow& row, JsonWriter& o) {
                              each_of_row(row, Into{o});
                          }),
                          kApart));
    add("train", list_text(report.train, with_shape([](const BenchTrain& train, JsonWriter& o) {
                               each_of_train(train, Into{o});
                           }),
                           kApart));
    add("failures",
        list_text(report.failures, with_shape([](const BenchFailure& failure, JsonWriter& o) {
                      each_of_failure(failure, Into{o});
                  }),
                  kApart));
    std::string skipped;
    for (const std::string& line : report.skipped)
        skipped += (skipped.empty() ? "" : ",\n") + json_text(line);
    add("skipped", skipped);
    return text + "}\n";
}

Result<BenchReport> parse_report(string_view text, string_view name) {
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
    if (version != BenchReport::kVersion)
        return fail(Errc::invalid_input, "{}: a report of version {}; this dtrun reads version {}",
                    name, version, BenchReport::kVersion);
    BenchReport report;
    each_of_report(report, members);
    members.list("host_facts", report.hosts, read_host);
    members.list("comms", report.comms, read_comm);
    members.list("rows", report.rows, read_row);
    members.list("train", report.train, read_train);
    members.list("failures", report.failures, read_failure);
    const json::value* const skipped = object->if_contains("skipped");
    if (skipped != nullptr && skipped->is_array())
        for (const json::value& line : skipped->get_array())
            if (line.is_string()) report.skipped.push_back(printable(line.get_string()));
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
