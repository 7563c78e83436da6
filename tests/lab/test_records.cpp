#include "lab/record_json.h"
#include "lab/report/results.h"
#include "tests/support/catch.h"

#include <algorithm>
#include <cmath>
#include <concepts>

using namespace dtrun::lab;

namespace {

/// Gives every field another value, none of them the one that it begins with.
class Fill {
public:
    void operator()(std::string_view name, std::string& text) {
        text = std::string(name) + " \"" + std::to_string(++number_) + "\"";
    }
    void operator()(std::string_view, bool& flag) { flag = !flag; }
    template <class Number>
    requires std::integral<Number> || std::floating_point<Number>
    void operator()(std::string_view, Number& number) {
        number = static_cast<Number>(++number_ + 1'000'000'000);
        if constexpr (std::floating_point<Number>) number += 0.5;  // more than 7 digits
    }
    void operator()(std::string_view name, NameValues& pairs) {
        pairs = {{std::string(name), std::to_string(++number_)}, {"other", "no: \"x\""}};
    }
    template <class Record>
    void operator()(std::string_view, std::vector<Record>& records) {
        records.resize(2);
        for (Record& record : records) Record::fields(record, *this);
    }

private:
    int number_ = 0;
};

/// "name=value" of every field.
class Tell {
public:
    void operator()(std::string_view name, const std::string& text) { add(name, text); }
    template <class Number>
    requires std::integral<Number> || std::floating_point<Number>
    void operator()(std::string_view name, const Number& number) {
        add(name, std::to_string(number));
    }
    void operator()(std::string_view name, const NameValues& pairs) {
        for (const auto& [key, value] : pairs) add(name, key + ": " + value);
    }
    template <class Record>
    void operator()(std::string_view name, const std::vector<Record>& records) {
        add(name, std::to_string(records.size()));
        for (const Record& record : records) Record::fields(record, *this);
    }

    std::vector<std::string> told;

private:
    void add(std::string_view name, const std::string& value) {
        told.push_back(std::string(name) + "=" + value);
    }
};

template <class Record>
std::vector<std::string> told_of(const Record& record) {
    Tell tell;
    Record::fields(record, tell);
    return tell.told;
}

template <class Record>
Record filled() {
    Record record;
    Fill fill;
    Record::fields(record, fill);
    return record;
}

/// What a report has of a record that a rank has written.
template <class Record>
void check_round_trip(std::vector<Record> LabReport::*list) {
    const auto sent = filled<Record>();
    LabReport report;
    RecordReader reader(report);
    const auto line = reader.take(line_of(sent));
    REQUIRE(line.has_value());
    REQUIRE((report.*list).size() == 1);
    CHECK(told_of((report.*list).front()) == told_of(sent));
    CHECK(told_of(sent) != told_of(Record()));

    const auto again = parse_report(write_json(report), "a.json");
    REQUIRE(again.has_value());
    REQUIRE(((*again).*list).size() == 1);
    CHECK(told_of(((*again).*list).front()) == told_of(sent));
}

}  // namespace

TEST_CASE("what a rank writes of a host is what the report reads", "[lab]") {
    check_round_trip(&LabReport::hosts);
}

TEST_CASE("what a rank writes of a communicator is what the report reads", "[lab]") {
    check_round_trip(&LabReport::comms);
}

TEST_CASE("what a rank writes of a measurement is what the report reads", "[lab]") {
    check_round_trip(&LabReport::rows);
}

TEST_CASE("what a rank writes of a training is what the report reads", "[lab]") {
    check_round_trip(&LabReport::train);
}

TEST_CASE("what a rank writes of a pair of ranks is what the report reads", "[lab]") {
    check_round_trip(&LabReport::pairs);
}

TEST_CASE("what a rank could not do is read as one error a line", "[lab]") {
    LabReport report;
    RecordReader reader(report);
    CHECK(reader.take(line_of(ErrorRecord{"no \"GPU\""})) == RecordReader::Line::error);
    CHECK(reader.errors() == "no \"GPU\"");
}

TEST_CASE("a number that a rank does not know stays unknown", "[lab]") {
    LabReport report;
    RecordReader reader(report);
    REQUIRE(reader.take(line_of(RowRecord())) == RecordReader::Line::row);
    CHECK(std::isnan(report.rows.front().busbw_GBps));
    REQUIRE(reader.take(line_of(HostRecord())) == RecordReader::Line::host);
    CHECK(std::isnan(report.hosts.front().cores));
}

TEST_CASE("a host has a version for each backend", "[lab]") {
    const auto host = filled<HostRecord>();
    const auto told = told_of(host);
    for (const auto& backend : dtrun::collectives::kBackends)
        CHECK(std::ranges::count_if(told, [&](const std::string& field) {
                  return field.starts_with(std::string(backend.name) + "=");
              }) == 1);
}
