#pragma once

#include "base/json_writer.h"
#include "lab/records.h"

namespace dtrun::lab {

/// Adds the fields of a record to an object of JSON.
class RecordFields {
public:
    explicit RecordFields(JsonWriter& object) : object_(object) {}

    template <class Value>
    void operator()(std::string_view name, const Value& value) const {
        object_.add(name, value);
    }
    template <class Record>
    requires requires { &Record::template fields<const Record, const RecordFields&>; }
    void operator()(std::string_view name, const std::vector<Record>& records) const {
        std::vector<JsonWriter> objects;
        for (const Record& record : records)
            Record::fields(record, RecordFields(objects.emplace_back()));
        object_.add(name, objects);
    }

private:
    JsonWriter& object_;
};

/// A record as an object of JSON.
template <class Record>
std::string json_of(const Record& record) {
    JsonWriter object;
    Record::fields(record, RecordFields(object));
    return object.text();
}

/// The line of output by which a rank sends a record to the report.
template <class Record>
std::string line_of(const Record& record) {
    JsonWriter object;
    object.add("type", Record::kType);
    Record::fields(record, RecordFields(object));
    return object.text();
}

}  // namespace dtrun::lab
